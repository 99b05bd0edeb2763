"""Poolers in between, such as PgBouncer: one that keeps a session for its client alone is as good as none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import psycopg

from pgcron_runner.errors import DatabaseRefused, DatabaseUnavailable
from pgcron_runner.statements import query

if TYPE_CHECKING:
    from pgcron_runner.database.connect import Connection

# A pooler that knows no `options` says so when a session is opened, or forgets them when it was told to ignore them.
REFUSES_SETTINGS: Final = "unsupported startup parameter"
_NO_TRANSACTIONS: Final = "statement pooling mode"
_PATIENCE: Final = 5.0
# Other clients of the pool may come in between.
_ROUNDS: Final = 3


async def make_own(
    connection: Connection, settings: Mapping[str, str], open_another: Callable[[], Awaitable[Connection]]
) -> None:
    """Makes a session by way of a pooler what a direct one is, its settings included.

    Raises DatabaseRefused where the pooler lends it to others between two statements.
    """
    if await _is_lent_to_others(connection, open_another):
        raise DatabaseRefused(
            "A connection pooler in transaction or statement mode is in between: advisory locks, settings and LISTEN "
            "do not survive it. Connect to Postgres directly, or to a pool with pool_mode=session."
        )
    await connection.execute(
        query("apply_settings"), {"names": list(settings), "values": [settings[name] for name in settings]}
    )


async def _is_lent_to_others(connection: Connection, open_another: Callable[[], Awaitable[Connection]]) -> bool:
    """Whether another session in a transaction is given what was this one's a moment ago."""
    try:
        async with asyncio.timeout(_PATIENCE):
            other = await open_another()
            try:
                for _ in range(_ROUNDS):
                    if await _is_lent(connection, other):
                        return True
                return False
            finally:
                await other.close()
    except TimeoutError:
        raise DatabaseUnavailable(
            "A connection pooler in between has no second session to give, and a worker needs three, and one for each "
            "SQL job at a time. Let the pool be larger (PgBouncer: default_pool_size)."
        ) from None


async def _is_lent(connection: Connection, other: Connection) -> bool:
    own = await _backend(connection)
    try:
        await other.execute("begin")
    except psycopg.Error as error:
        if _NO_TRANSACTIONS in str(error).lower():
            return True
        raise
    lent = await _backend(other) == own or await _backend(connection) != own
    await other.execute("rollback")
    return lent


async def _backend(connection: Connection) -> int:
    # Unprepared: where a session is lent to others, they would stumble over it.
    cursor = await connection.execute(query("read_session"), prepare=False)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
