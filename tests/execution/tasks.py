"""Claimed runs for the tests of what runs them, and a gate at which a job's text can be made to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, RetryPolicy, Status, StopReason, Task
from tests.statements.builders import WORKER, add_job, add_running
from tests.support.databases import Database
from tests.support.waiting import eventually_async

SESSION_NAME = "sql-jobs"
SCHEDULED_FOR = datetime(2026, 3, 1, 18, tzinfo=UTC)
# In a job's text: waits while the gate is shut.
AT_THE_GATE = "select pg_advisory_xact_lock(4711)"

Run = Callable[[Task, Stop, Live], Awaitable[Outcome]]


def some_task(command: str = "true", **changes: Any) -> Task:
    """A claimed run that no database knows of."""
    values: dict[str, Any] = {
        "run_id": 77,
        "job_id": 5,
        "job_name": "nightly",
        "kind": Kind.SHELL,
        "command": command,
        "args": {},
        "scheduled_for": SCHEDULED_FOR,
        "attempt": 1,
        "exclusive": True,
        "timeout": timedelta(hours=1),
        "kill_grace": timedelta(seconds=10),
        "retry": RetryPolicy(),
    }
    return Task(**(values | changes))


def claimed_task(database: Database, command: str, *, name: str = "nightly", **changes: Any) -> Task:
    """A claimed run of a job of its own, as WORKER holds it."""
    kind = changes.pop("kind", Kind.SQL)
    job_id = add_job(database, name, kind=kind.value, command=command)
    run_id = add_running(database, job_id, WORKER, scheduled_for=SCHEDULED_FOR)
    return some_task(command, run_id=run_id, job_id=job_id, job_name=name, kind=kind, **changes)


def next_task(database: Database, task: Task) -> Task:
    """A second claimed run of the same job, after the first was closed as lost."""
    database.execute("update pgcron.runs set status = 'lost', finished_at = now() where id = %s", (task.run_id,))
    run_id = add_running(database, task.job_id, WORKER, scheduled_for=SCHEDULED_FOR + timedelta(days=1))
    return some_task(task.command, run_id=run_id, job_id=task.job_id, job_name=task.job_name, kind=task.kind)


def recorded_status(database: Database, task: Task) -> str | None:
    """The state of the run's row; None where there is no row."""
    status: str | None = database.value("select status from pgcron.runs where id = %s", (task.run_id,))
    return status


def value_of(outcome: Outcome) -> Any:
    """The first value that a SQL job returned."""
    assert outcome.status is Status.SUCCEEDED, outcome
    return outcome.result["value"]


def text_of(outcome: Outcome) -> str:
    """What the run printed."""
    assert outcome.output is not None
    return outcome.output.text


def session_pids(database: Database) -> list[int]:
    """The server's processes for the sessions of SQL jobs."""
    rows = database.rows("select pid from pg_stat_activity where application_name = %s", (SESSION_NAME,))
    return [row[0] for row in rows]


def terminate_sessions(database: Database) -> None:
    """Ends them, busy or not, and waits until they are gone."""
    database.rows(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = %s", (SESSION_NAME,)
    )


@contextmanager
def shut_gate(database: Database) -> Iterator[Callable[[], None]]:
    """Shuts the gate; what is yielded opens it, and so does the end of the block."""

    def open_gate() -> None:
        database.rows("select pg_advisory_unlock(4711) from pg_locks where objid = 4711 and pid = pg_backend_pid()")

    database.execute("select pg_advisory_lock(4711)")
    try:
        yield open_gate
    finally:
        open_gate()


async def someone_waits(database: Database) -> int:
    """Until a SQL job's session waits at the gate; its process."""

    async def pid() -> Any:
        return database.value(
            "select pid from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'", (SESSION_NAME,)
        )

    return int(await eventually_async(pid, message="a SQL job waits at the gate"))


@asynccontextmanager
async def running(
    run: Run, task: Task, stop: Stop | None = None, live: Live | None = None
) -> AsyncIterator[asyncio.Task[Outcome]]:
    """The run, going on beside the block; the block awaits it, or it is cancelled."""
    going = asyncio.ensure_future(run(task, stop or Stop(), live or Live()))
    try:
        yield going
    finally:
        if not going.done():
            going.cancel()
            await asyncio.wait({going})


def stopped(reason: StopReason = StopReason.CANCEL, *, now: bool = False) -> Stop:
    """A stop that was asked for already."""
    stop = Stop()
    stop.request(reason, now=now)
    return stop
