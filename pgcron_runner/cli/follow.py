"""Waiting for a run: its states and its output as they come. It changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from pgcron_runner.cli.output import clean, note, relative, say, span
from pgcron_runner.errors import NotFound
from pgcron_runner.model import Status
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import Run

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_SHORTEST, _LONGEST = 0.1, 1.0
_MOST_WORKERS = 1000
# So many characters are enough to find the place again.
_REMEMBERED = 200


async def follow_run(
    connection: Connection, run_id: int, *, until: Status = Status.SUCCEEDED, quiet: bool = False
) -> bool:
    """Tells each change of a run, and of the attempts that follow it, until the last one is final; or only waits.

    True where that ended in the wanted state. A cancelled run is not followed to another attempt: there is none.
    """
    said, pause = "", _SHORTEST
    if not quiet:
        await _warn_if_nobody_takes(connection, await _read(connection, run_id))
    while True:
        run = await _read(connection, run_id)
        if run.status != said and run.status != Status.QUEUED:
            said, pause = run.status, _SHORTEST
            _say(_sentence(run), quiet=quiet)
        if Status(run.status).is_final:
            following = await _next_attempt(connection, run)
            if following is None:
                return run.status == until
            run_id, said = following.id, ""
            now = await catalog.read_clock(connection)
            when = relative(max(following.run_at, now), now)
            _say(f"Attempt {following.attempt} is run {following.id}, {when}.", quiet=quiet)
            continue
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        say(text)


async def _read(connection: Connection, run_id: int) -> Run:
    run = await catalog.read_run(connection, run_id)
    if run is None:
        raise NotFound(f"Run {run_id} is gone: somebody removed it.")
    return run


async def _warn_if_nobody_takes(connection: Connection, run: Run) -> None:
    workers = await catalog.list_workers(connection, limit=_MOST_WORKERS)
    fitting = [w for w in workers if (w.queues is None or run.queue in w.queues) and run.kind in w.kinds]
    if not any(worker.state == "alive" for worker in fitting):
        note(f"It waits: no worker is alive that runs {run.kind} jobs of queue {run.queue}. See: pgcron-runner workers")


async def _next_attempt(connection: Connection, run: Run) -> catalog.ListedRun | None:
    """Written in the statement that ended the attempt before, so what is not there yet never comes."""
    attempts = await catalog.list_job_runs(
        connection, run.job_id, job_name=run.job_name, limit=1, scheduled_for=run.scheduled_for
    )
    return attempts[0] if attempts and attempts[0].attempt > run.attempt else None


def _sentence(run: Run) -> str:
    text = f"Run {run.id} is {run.status}" if not Status(run.status).is_final else f"Run {run.id}: {run.status}"
    if run.status == Status.RUNNING:
        return f"{text} on {clean(run.worker or str(run.worker_id))}."
    if run.started_at and run.finished_at:
        text += f" after {span(run.finished_at - run.started_at)}"
    why = run.reason or (run.error or "").partition("\n")[0] or (f"exit code {run.exit_code}" if run.exit_code else "")
    return f"{text}: {clean(why)}" if why else f"{text}."


async def follow_output(connection: Connection, run_id: int, *, follow: bool, raw: bool) -> None:
    """Prints what a run has printed, and with `follow` what comes, until it has ended."""
    shown, pause = "", _SHORTEST
    while True:
        printed = await catalog.read_output(connection, run_id)
        if printed is None:
            return
        text = printed.output or ""
        if text != shown:
            _print_more(shown, text, raw=raw)
            shown, pause = text, _SHORTEST
        if not follow or Status(printed.status).is_final:
            break
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
    if not shown:
        note("It is still to run." if printed.status == Status.QUEUED else "It printed nothing.")
    elif not shown.endswith("\n"):
        typer.echo()


def _print_more(shown: str, text: str, *, raw: bool) -> None:
    more = _news(shown, text)
    typer.echo(more if raw else clean(more, lines=True), nl=False, color=True)


def _news(shown: str, text: str) -> str:
    """What of `text` has not been shown. Where more was printed than is kept, the middle has been left out since."""
    if text.startswith(shown):
        return text[len(shown) :]
    last = shown[-_REMEMBERED:]
    known = text.rfind(last)
    if known >= 0:
        return text[known + len(last) :]
    return "\n[…]\n" + text[len(text) // 2 :].partition("\n")[2]
