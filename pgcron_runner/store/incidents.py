"""Statements for people about incidents and mutes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pgcron_runner.statements import query
from pgcron_runner.store.catalog import read_row, read_rows

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that is or was wrong with a job; `told` are the channels that have taken a message about it."""

    id: int
    job_name: str
    kind: str
    event: str
    opened_at: datetime
    closed_at: datetime | None
    failures: int
    reopened: int
    first_run_id: int | None
    last_run_id: int | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    told: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlert:
    """One message about an incident."""

    id: int
    channel: str
    event: str
    level: int
    repeat: int
    created_at: datetime
    send_at: datetime
    tries: int
    sent_at: datetime | None
    given_up_at: datetime | None
    error: str | None


async def list_incidents(
    connection: Connection, *, limit: int, job: str | None = None, closed: bool = False
) -> list[Incident]:
    """Open incidents, the newest first; with `closed` those that are over as well."""
    return await read_rows(connection, "list_incidents", {"limit": limit, "job": job, "closed": closed}, Incident)


async def read_incident(connection: Connection, incident_id: int) -> Incident | None:
    """One incident."""
    return await read_row(connection, "read_incident", {"incident_id": incident_id}, Incident)


async def list_incident_alerts(connection: Connection, incident_id: int) -> list[ListedAlert]:
    """What was said, and is to be said, of it."""
    return await read_rows(connection, "list_incident_alerts", {"incident_id": incident_id}, ListedAlert)


async def acknowledge_incident(connection: Connection, incident_id: int, *, who: str) -> bool | None:
    """Somebody takes it on; whether somebody had before. None: there is none, or it is over."""
    cursor = await connection.execute(query("acknowledge_incident"), {"incident_id": incident_id, "who": who})
    row = await cursor.fetchone()
    return None if row is None else bool(row[0])


async def mute_job(connection: Connection, name: str, *, until: datetime | None) -> bool:
    """Tells nobody about a job before an instant; None: again. False: there is no such job."""
    cursor = await connection.execute(query("mute_job"), {"name": name, "until": until})
    return await cursor.fetchone() is not None


async def mute_everything(connection: Connection, *, until: datetime | None) -> None:
    """Tells nobody about anything before an instant; None: again."""
    await connection.execute(query("mute_everything"), {"until": until})
