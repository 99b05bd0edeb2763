"""Statements for people: jobs, runs and workers as they are listed, shown and changed by hand.

It decides nothing, and duties never use it: what it reads may be old by the time that it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pgcron_runner.statements import query
from pgcron_runner.store.catalog_values import Health as Health
from pgcron_runner.store.catalog_values import Job as Job
from pgcron_runner.store.catalog_values import ListedJob as ListedJob
from pgcron_runner.store.catalog_values import ListedRun as ListedRun
from pgcron_runner.store.catalog_values import ListedWorker as ListedWorker
from pgcron_runner.store.catalog_values import NewJob as NewJob
from pgcron_runner.store.catalog_values import Printed as Printed
from pgcron_runner.store.catalog_values import Run as Run

if TYPE_CHECKING:
    # Only the types: whoever merely asks for help should not wait for the driver.
    from pgcron_runner.database import Connection

Row = TypeVar("Row")


async def read_clock(connection: Connection) -> datetime:
    """The database's clock."""
    cursor = await connection.execute(query("read_clock"))
    row = await cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


async def insert_job(connection: Connection, job: NewJob) -> tuple[int, datetime] | None:
    """Adds a job; its id and the instant that its schedule counts from. None: another job has this name."""
    cursor = await connection.execute(query("insert_job"), asdict(job))
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1])


async def update_job(connection: Connection, job_id: int, job: NewJob, *, read_at: datetime) -> datetime | None:
    """Writes a definition over a job whose `updated_at` is still `read_at`; the instant that its schedule counts from.

    None: somebody else has changed it since, or removed it.
    """
    cursor = await connection.execute(query("update_job"), asdict(job) | {"id": job_id, "read_at": read_at})
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def list_jobs(
    connection: Connection,
    *,
    limit: int | None,
    queue: str | None = None,
    tag: str | None = None,
    kind: str | None = None,
    problem: bool = False,
) -> list[ListedJob]:
    """Jobs by name, each with its newest run."""
    given = {"limit": limit, "queue": queue, "tag": tag, "kind": kind, "problem": problem}
    return await read_rows(connection, "list_jobs", given, ListedJob)


async def read_job(connection: Connection, name: str) -> Job | None:
    """One job by its name."""
    return await read_row(connection, "read_job", {"name": name}, Job)


async def list_job_names(connection: Connection, beginning: str, *, limit: int) -> list[str]:
    """Names of jobs that begin with a text."""
    cursor = await connection.execute(query("list_job_names"), {"beginning": beginning, "limit": limit})
    return [name for (name,) in await cursor.fetchall()]


async def pause_job(
    connection: Connection, name: str, *, until: datetime | None
) -> tuple[bool, datetime | None] | None:
    """Pauses a job until an instant, or disables it; enabled and paused_until as they are then. None: no such job."""
    cursor = await connection.execute(query("pause_job"), {"name": name, "until": until})
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1])


async def resume_job(connection: Connection, name: str, *, catch_up: bool = False, now: datetime | None = None) -> bool:
    """Enables a job and ends its pause; `catch_up`: it has been made up for. False: there is no such job."""
    cursor = await connection.execute(query("resume_job"), {"name": name, "catch_up": catch_up, "now": now})
    return await cursor.fetchone() is not None


async def remove_job(connection: Connection, name: str) -> bool:
    """Deletes a job; its history stays. False: there is no such job."""
    cursor = await connection.execute(query("remove_job"), {"name": name})
    return await cursor.fetchone() is not None


async def enqueue_run(
    connection: Connection, name: str, *, args: str | None, overlap: str | None = None
) -> tuple[int, str, str | None] | None:
    """Queues a run of a job, with a JSON text in place of its args; its id, its status and the reason for that.

    Skipped where the overlap rule says so: the given one, else the job's. None: there is no such job.
    """
    given = {"name": name, "args": args, "overlap": overlap, "now": None}
    cursor = await connection.execute(query("enqueue_run"), given)
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1], row[2])


async def cancel_run(connection: Connection, run_id: int, *, reason: str) -> str | None:
    """Cancels a queued run, asks for a running one to be stopped; its status before. None: there is no such run."""
    cursor = await connection.execute(query("cancel_run"), {"run_id": run_id, "reason": reason})
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def retry_run(connection: Connection, run_id: int, *, now: datetime | None = None) -> tuple[int, int] | None:
    """Queues one more attempt at the occurrence of a run that has ended without success; its id and its number.

    None: there is no such run, its job is gone, it has succeeded, or a later attempt is live or has succeeded.
    """
    cursor = await connection.execute(query("retry_run"), {"run_id": run_id, "now": now})
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1])


async def list_runs(
    connection: Connection, *, limit: int, status: str | None = None, since: datetime | None = None
) -> list[ListedRun]:
    """Runs of all jobs, newest first."""
    given = {"limit": limit, "status": status, "since": since}
    return await read_rows(connection, "list_runs", given, ListedRun)


async def list_job_runs(
    connection: Connection,
    job_id: int | None,
    *,
    job_name: str,
    limit: int,
    scheduled_for: datetime | None = None,
    status: str | None = None,
    since: datetime | None = None,
) -> list[ListedRun]:
    """Runs of one job, newest occurrence first; with `job_id` None those of a removed job of that name."""
    given = {
        "job_id": job_id,
        "job_name": job_name,
        "limit": limit,
        "scheduled_for": scheduled_for,
        "status": status,
        "since": since,
    }
    return await read_rows(connection, "list_job_runs", given, ListedRun)


async def read_run(connection: Connection, run_id: int) -> Run | None:
    """One run."""
    return await read_row(connection, "read_run", {"run_id": run_id}, Run)


async def read_output(connection: Connection, run_id: int) -> Printed | None:
    """What a run has printed so far."""
    return await read_row(connection, "read_output", {"run_id": run_id}, Printed)


async def list_workers(
    connection: Connection, *, limit: int, ended: bool = False, now: datetime | None = None
) -> list[ListedWorker]:
    """Workers that have not ended, and with `ended` also those that have within the last day."""
    return await read_rows(connection, "list_workers", {"limit": limit, "all": ended, "now": now}, ListedWorker)


async def read_health(connection: Connection, *, now: datetime | None = None) -> Health:
    """How the whole installation is."""
    health = await read_row(connection, "read_health", {"now": now}, Health)
    assert health is not None
    return health


async def read_row(connection: Connection, name: str, given: Mapping[str, Any], value: type[Row]) -> Row | None:
    """The one row of a statement, or None."""
    rows = await read_rows(connection, name, given, value)
    return rows[0] if rows else None


async def read_rows(connection: Connection, name: str, given: Mapping[str, Any], value: type[Row]) -> list[Row]:
    """The rows of a statement as values whose fields are named as its columns are."""
    cursor = await connection.execute(query(name), given)
    columns = [column.name for column in cursor.description or ()]
    return [value(**dict(zip(columns, row, strict=True))) for row in await cursor.fetchall()]
