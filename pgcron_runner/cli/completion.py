"""What the shell offers when Tab is pressed and only the database knows. Quick, or nothing: it never complains."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

# Whoever has pressed Tab waits no longer.
_PATIENCE = 1.0
_MOST = 200

_Words = Callable[["Connection"], Awaitable[list[str]]]


def words_of_line() -> list[str]:
    """The words that are being completed, without the program's; empty where nothing is."""
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS")
    if words is None or "_PGCRON_RUNNER_COMPLETE" not in os.environ:
        return []
    try:
        return shlex.split(words)[1:]
    except ValueError:  # a quotation that has yet to end
        return words.split()[1:]


def job_names(incomplete: str) -> list[str]:
    """Jobs whose names begin so."""

    async def ask(connection: Connection) -> list[str]:
        from pgcron_runner.store.catalog import list_job_names

        return await list_job_names(connection, incomplete, limit=_MOST)

    return _asked(ask)


def queue_names(incomplete: str) -> list[str]:
    """Queues whose names begin so."""

    async def ask(connection: Connection) -> list[str]:
        from pgcron_runner.store.catalog_queues import count_queue_jobs, list_queues

        queues = await list_queues(connection, named=await count_queue_jobs(connection))
        return [queue.name for queue in queues]

    return [name for name in _asked(ask) if name.startswith(incomplete)]


def timezones(incomplete: str) -> list[str]:
    """Zones whose names begin so."""
    from zoneinfo import available_timezones

    return sorted(zone for zone in available_timezones() if zone.startswith(incomplete))


def _asked(ask: _Words) -> list[str]:
    """What the database says, or nothing."""
    import asyncio  # which takes longer to load than the rest of a command that needs no database

    try:
        return [name for name in asyncio.run(_with_patience(ask, _dsn(words_of_line()))) if name.isprintable()]
    except Exception:
        # A shell shows what goes wrong here in the middle of somebody's line.
        return []


async def _with_patience(ask: _Words, dsn: str | None) -> list[str]:
    import asyncio

    from pgcron_runner.database import Database, Purpose, resolve_dsn

    async with asyncio.timeout(_PATIENCE):
        connection = await Database(resolve_dsn(dsn)).connect(Purpose.ADMIN)
        try:
            return await ask(connection)
        finally:
            await connection.close()


def _dsn(words: Sequence[str]) -> str | None:
    """What was given by --dsn on the line so far."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--dsn" and following:
            return following
        if word.startswith("--dsn="):
            return word.removeprefix("--dsn=")
    return None
