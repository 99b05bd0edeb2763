"""Statements for a screen that is drawn each second: what runs, waits, fails and works. Each one reads a few pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgcron_runner.store.catalog import read_row, read_rows
from pgcron_runner.store.catalog_queues import Queue, list_queues
from pgcron_runner.store.catalog_values import ListedWorker

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The database's clock, whether all is paused, and the runs that failed within an hour, up to 1,000."""

    now: datetime
    paused: bool
    failed_last_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRun:
    """One of `total` runs that run. `max_attempts` and `timeout` are its job's, None once that was removed."""

    id: int
    job_name: str
    kind: str
    queue: str
    trigger: str
    scheduled_for: datetime
    started_at: datetime
    attempt: int
    max_attempts: int | None
    timeout: timedelta | None
    progress: Any
    worker: str | None
    cancel_requested_at: datetime | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJob:
    """A job and when it is due next; until it is `planned`, that says nothing."""

    name: str
    kind: str
    queue: str
    timezone: str
    next_run_at: datetime
    planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingJob:
    """One of `total` open incidents; with kind failing, `failures` counts those in a row."""

    id: int
    job_name: str
    kind: str
    event: str
    failures: int
    opened_at: datetime
    acknowledged_by: str | None
    total: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that the screen shows. The lists end at the limit that was given."""

    pulse: Pulse
    running: list[RunningRun]
    due: list[DueJob]
    failing: list[FailingJob]
    queues: list[Queue]
    workers: list[ListedWorker]


async def read_snapshot(connection: Connection, *, limit: int) -> Snapshot:
    """Six small statements, one after the other: they need not agree to the millisecond."""
    pulse = await read_row(connection, "read_pulse", {}, Pulse)
    assert pulse is not None
    return Snapshot(
        pulse=pulse,
        running=await read_rows(connection, "list_running", {"limit": limit}, RunningRun),
        due=await read_rows(connection, "list_due", {"limit": limit}, DueJob),
        failing=await read_rows(connection, "list_failing", {"limit": limit}, FailingJob),
        queues=await list_queues(connection),
        workers=await read_rows(connection, "list_workers", {"limit": limit, "all": False, "now": None}, ListedWorker),
    )
