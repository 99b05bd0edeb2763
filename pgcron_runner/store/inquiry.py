"""Statements behind answers: what became of an occurrence, what a backfill finds, how the server is.

As in the catalog, what is read may be old by the time that it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from pgcron_runner.explain import Circumstances, OccurrenceRun
from pgcron_runner.model import ExcludedDays
from pgcron_runner.statements import query
from pgcron_runner.store.catalog import read_row, read_rows

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True)
class Filled:
    """A nominal time of which there is something: it has succeeded, is queued or running, or was backfilled before."""

    at: datetime
    succeeded: bool
    live: bool
    backfilled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the doctor asks the server: who, where, how full, and the oldest open transaction that the role may see.

    A limit of -1 is none. A prepared transaction has no pid, and its name for an application.
    """

    version_number: int
    version: str
    role: str
    database: str
    now: datetime
    connections: int
    connections_used: int
    role_limit: int
    role_used: int
    database_limit: int
    database_used: int
    may_terminate: bool
    oldest_pid: int | None
    oldest_role: str | None
    oldest_application: str | None
    oldest_state: str | None
    oldest_age: timedelta | None


async def list_filled_times(connection: Connection, job_id: int, start: datetime, end: datetime) -> list[Filled]:
    """What there is already of the occurrences of a job in [start, end)."""
    cursor = await connection.execute(query("list_filled_times"), {"job_id": job_id, "from": start, "to": end})
    return [Filled(*row) for row in await cursor.fetchall()]


async def list_occurrence_runs(
    connection: Connection, job_id: int, start: datetime, end: datetime, *, limit: int
) -> list[OccurrenceRun]:
    """Every attempt at the occurrences of a job in [start, end), and the missed rows whose range reaches into it."""
    given = {"job_id": job_id, "from": start, "to": end, "limit": limit}
    return await read_rows(connection, "list_occurrence_runs", given, OccurrenceRun)


async def read_circumstances(connection: Connection, job_id: int, *, now: datetime | None = None) -> Circumstances:
    """What bears on a job beside its own row; of a job that is gone, what bears on any."""
    cursor = await connection.execute(query("read_circumstances"), {"job_id": job_id, "now": now})
    row = await cursor.fetchone()
    if row is None:
        return Circumstances()
    excluded = tuple(
        ExcludedDays(calendar, date.fromisoformat(first), date.fromisoformat(last), label)
        for calendar, first, last, label in row[4] or ()
    )
    return Circumstances(paused=row[0], queue_paused=row[1], keep_for=row[2], workers=row[3], excluded=excluded)


async def read_server(connection: Connection) -> Server:
    """What the doctor asks the server."""
    server = await read_row(connection, "read_server", {}, Server)
    assert server is not None
    return server


async def list_missing_rights(connection: Connection) -> list[tuple[str, str]]:
    """What the role lacks, as table or function and right."""
    cursor = await connection.execute(query("list_missing_rights"))
    return [(row[0], row[1]) for row in await cursor.fetchall()]


async def notify_doctor(connection: Connection, payload: str) -> None:
    """A notification on channel pgcron_doctor."""
    await connection.execute(query("notify_doctor"), {"payload": payload})
