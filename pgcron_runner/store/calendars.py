"""Statements for people about calendars: named sets of days. It knows jobs by their names only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pgcron_runner.statements import query

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A calendar, the jobs that exclude it, and its days as first day, last day and label."""

    name: str
    description: str | None
    jobs: list[str]
    days: list[tuple[date, date, str | None]]


async def insert_calendar(connection: Connection, name: str, *, description: str | None) -> bool:
    """Adds a calendar without days; False: there is one of that name."""
    cursor = await connection.execute(query("insert_calendar"), {"name": name, "description": description})
    return await cursor.fetchone() is not None


async def insert_calendar_days(
    connection: Connection, name: str, first_day: date, last_day: date, *, label: str | None
) -> bool | None:
    """Adds days to a calendar; False: they were there, and are labelled anew. None: there is no such calendar."""
    given = {"name": name, "first_day": first_day, "last_day": last_day, "label": label}
    cursor = await connection.execute(query("insert_calendar_days"), given)
    row = await cursor.fetchone()
    return None if row is None else bool(row[0])


async def list_calendars(connection: Connection, name: str | None = None) -> list[Calendar]:
    """All calendars by name, or the one of that name."""
    cursor = await connection.execute(query("list_calendars"), {"name": name})
    return [
        Calendar(
            name=row[0],
            description=row[1],
            jobs=row[2],
            days=[(date.fromisoformat(first), date.fromisoformat(last), label) for first, last, label in row[3]],
        )
        for row in await cursor.fetchall()
    ]


async def remove_calendar(connection: Connection, name: str) -> bool:
    """Deletes a calendar; False: there is none, or a job excludes it."""
    cursor = await connection.execute(query("remove_calendar"), {"name": name})
    return await cursor.fetchone() is not None
