"""Statements that remove what has been kept long enough."""

from __future__ import annotations

from datetime import datetime

from pgcron_runner.database import Connection
from pgcron_runner.statements import query


async def prune_runs(
    connection: Connection, *, after_id: int, jobs: int, limit: int, now: datetime | None = None
) -> tuple[int | None, int]:
    """Removes finished runs of the next `jobs` jobs, at most `limit` each.

    Returns the last job that was looked at, None where there are no more, and how many rows went.
    """
    cursor = await connection.execute(
        query("prune_runs"), {"after_id": after_id, "jobs": jobs, "limit": limit, "now": now}
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def prune_orphaned_runs(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Removes one batch of what deleted jobs have left; returns how many rows went."""
    cursor = await connection.execute(query("prune_orphaned_runs"), {"limit": limit, "now": now})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def prune_alerts(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Removes one batch of old alerts and closed incidents; returns how many rows went."""
    cursor = await connection.execute(query("prune_alerts"), {"limit": limit, "now": now})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def prune_workers(connection: Connection, *, now: datetime | None = None) -> None:
    """Removes the rows of workers that ended more than a day ago."""
    await connection.execute(query("prune_workers"), {"now": now})
