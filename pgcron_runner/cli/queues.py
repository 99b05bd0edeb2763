"""`pgcron-runner queue list|pause|resume|limit`: what waits, who takes it, and what holds it back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.completion import queue_names
from pgcron_runner.cli.options import AsJson, Dsn, NamesOnly, Quiet, examples, parse_queue
from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    note,
    plural,
    print_done,
    print_json,
    print_names,
    print_table,
    relative,
    to_json,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.errors import InvalidInput
from pgcron_runner.store import catalog, catalog_queues
from pgcron_runner.store.catalog_queues import Queue

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

# More are not counted for one priority of a queue.
_COUNTED = 1000
_MOST_RUNNING = 2**31 - 1
_COLUMNS = (
    Column("NAME", flexible=True),
    Column("STATE"),
    Column("JOBS", right=True, optional=3),
    Column("DUE", right=True),
    Column("OLDEST", optional=1),
    Column("LATER", right=True, optional=2),
    Column("RUNNING", right=True),
    Column("LIMIT", right=True),
    Column("SLOTS", right=True),
    Column("WORKERS", flexible=True),
)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The queue's name.", show_default=False, autocompletion=queue_names),
]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner queue`."""
    app.command(name="list", epilog=examples("pgcron-runner queue list", "pgcron-runner queue list --json"))(list_)
    app.command(epilog=examples("pgcron-runner queue pause reports"))(pause)
    app.command(epilog=examples("pgcron-runner queue resume reports"))(resume)
    app.command(epilog=examples("pgcron-runner queue limit reports 2", "pgcron-runner queue limit reports none"))(limit)


def list_(names_only: NamesOnly = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """List the queues: what waits and runs, what holds it back, and which workers take it."""

    async def read(connection: Connection) -> tuple[list[Queue], dict[str, int], datetime]:
        jobs = await catalog_queues.count_queue_jobs(connection)
        queues = await catalog_queues.list_queues(connection, named=jobs)
        return queues, jobs, await catalog.read_clock(connection)

    found, jobs, now = with_database(dsn, read)
    if as_json:
        print_json([to_json(queue) | {"jobs": jobs.get(queue.name, 0)} for queue in found])
    elif names_only:
        print_names(queue.name for queue in found)
    else:
        print_table(_COLUMNS, [_row(queue, jobs.get(queue.name, 0), now) for queue in found])


def _row(queue: Queue, jobs: int, now: datetime) -> list[Cell]:
    return [
        queue.name,
        state_cell(queue),
        str(jobs),
        counted(queue.due),
        relative(queue.due_since, now) if queue.due_since else "-",
        counted(queue.later),
        str(queue.running),
        str(queue.max_running or "none"),
        str(queue.slots),
        served_by(queue),
    ]


def state_cell(queue: Queue) -> Cell:
    """Whether its runs are started."""
    return Styled("paused", "yellow") if queue.paused else Styled("open", "green")


def counted(number: int) -> str:
    """A number that may be larger: counting stops."""
    return f"{number}+" if number >= _COUNTED else str(number)


def served_by(queue: Queue) -> Cell:
    """Which workers take its runs."""
    if queue.workers:
        return ", ".join(queue.workers)
    return Styled("nobody", "red" if queue.due or queue.running else "yellow")


def pause(name: Name, quiet: Quiet = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Start nothing more of a queue. Its runs wait; what runs goes on."""
    parse_queue(name, field="name")

    async def change(connection: Connection) -> tuple[bool, Queue, bool]:
        before = await catalog_queues.pause_queue(connection, name, paused=True)
        return before, *await _look(connection, name)

    before, queue, is_known = with_database(dsn, change)
    still = f"{plural(queue.running, 'run goes', 'runs go')} on, " if queue.running else ""
    said = f"Queue {name} is {'still' if before else 'now'} paused: {still}{counted(queue.due)} due."
    print_done(said, _as_json(queue), as_json=as_json, quiet=quiet)
    _warn_of_unknown(name, is_known, quiet=quiet)


def resume(name: Name, quiet: Quiet = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Go on with a queue that was paused. Its runs start at once; those that are too late by now are missed."""
    parse_queue(name, field="name")

    async def change(connection: Connection) -> tuple[bool, Queue, bool]:
        before = await catalog_queues.pause_queue(connection, name, paused=False)
        return before, *await _look(connection, name)

    before, queue, is_known = with_database(dsn, change)
    done = f"Queue {name} goes on: {counted(queue.due)} due." if before else f"Queue {name} was not paused."
    print_done(done, _as_json(queue), as_json=as_json, quiet=quiet)
    _warn_of_unknown(name, is_known, quiet=quiet)


def limit(
    name: Name,
    number: Annotated[
        str,
        typer.Argument(metavar="N|none", help="At most so many runs at a time, over all workers.", show_default=False),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Limit how many runs of a queue run at a time. What runs goes on."""
    parse_queue(name, field="name")
    wanted = _parse_limit(number)

    async def change(connection: Connection) -> tuple[int | None, Queue, bool]:
        before = await catalog_queues.limit_queue(connection, name, max_running=wanted)
        return before, *await _look(connection, name)

    before, queue, is_known = with_database(dsn, change)
    new = f"at most {plural(wanted, 'run')} at a time" if wanted else "no limit"
    old = " as before" if before == wanted else f", before: {before or 'none'}"
    print_done(f"Queue {name} has {new}{old}.", _as_json(queue), as_json=as_json, quiet=quiet)
    _warn_of_unknown(name, is_known, quiet=quiet)


def _parse_limit(text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= _MOST_RUNNING:
        example = "pgcron-runner queue limit reports 2"
        problem = "is neither a number from 1 on nor none; to stop a queue: pgcron-runner queue pause NAME"
        raise InvalidInput("limit", text, problem, example=example)
    return number


async def _look(connection: Connection, name: str) -> tuple[Queue, bool]:
    """The queue as it is now, and whether any job or worker names it."""
    jobs = await catalog_queues.count_queue_jobs(connection)
    queue = next(q for q in await catalog_queues.list_queues(connection, named=[name]) if q.name == name)
    workers = await catalog.list_workers(connection, limit=_COUNTED)
    named = any(name in worker.queues for worker in workers if worker.queues is not None)
    return queue, named or name in jobs or bool(queue.due or queue.later or queue.running)


def _warn_of_unknown(name: str, is_known: bool, *, quiet: bool) -> None:
    if not is_known and not quiet and name != "default":
        note(f"Note: no job and no worker names queue {name}. See: pgcron-runner queue list")


def _as_json(queue: Queue) -> dict[str, object]:
    return {
        "name": queue.name,
        "paused": queue.paused,
        "max_running": queue.max_running,
        "running": queue.running,
        "due": queue.due,
    }
