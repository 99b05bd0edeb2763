"""Statements about workers: registration, heartbeats, and the end of those that fell silent."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection
from pgcron_runner.leases import Beat
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.statements import query


def application_name(worker_id: UUID) -> str:
    """What all sessions of a worker are called; found again by it when the worker is dead. 63 bytes at most."""
    return f"pgcron {worker_id}"


async def register_worker(
    connection: Connection, worker_id: UUID, settings: WorkerSettings, facts: dict[str, Any]
) -> None:
    """Enters a worker. `facts` are host, pid, version and zone_data."""
    await connection.execute(
        query("register_worker"),
        {
            "id": worker_id,
            "name": settings.name,
            "queues": None if settings.queues is None else list(settings.queues),
            "kinds": [kind.value for kind in settings.kinds],
            "slots": settings.slots,
            "lease": settings.lease,
            **facts,
        },
    )


async def note_timeline(connection: Connection, lease: timedelta) -> tuple[str, float]:
    """Which system this is and on which of its timelines, and for how many seconds nothing may be begun on it yet."""
    cursor = await connection.execute(query("note_timeline"), {"lease": lease})
    row = await cursor.fetchone()
    assert row is not None
    return str(row[0]), float(row[1])


async def beat_worker(connection: Connection, worker_id: UUID, *, stopping: bool) -> datetime | None:
    """One heartbeat; returns the database's clock. None: the worker's row was closed, its runs are lost."""
    cursor = await connection.execute(query("beat_worker"), {"id": worker_id, "stopping": stopping})
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def end_worker(connection: Connection, worker_id: UUID, reason: str) -> bool:
    """Closes a worker's row; False where it was closed already."""
    cursor = await connection.execute(query("end_worker"), {"id": worker_id, "reason": reason})
    return await cursor.fetchone() is not None


async def list_beats(connection: Connection) -> list[Beat]:
    """Every living worker's beat, and workers that have running runs but no living row."""
    cursor = await connection.execute(query("list_beats"))
    return [Beat(*row) for row in await cursor.fetchall()]


async def lock_silent_worker(connection: Connection, silent: Beat) -> bool:
    """Locks the row of a silent worker, if nothing has changed since it was observed."""
    cursor = await connection.execute(query("lock_silent_worker"), {"id": silent.worker_id, "beat": silent.beat})
    return await cursor.fetchone() is not None


async def terminate_session(connection: Connection, worker_id: UUID, pid: int) -> None:
    """Ends one earlier session of a worker, if the server still has it."""
    await connection.execute(query("terminate_session"), {"application_name": application_name(worker_id), "pid": pid})


async def terminate_sessions(connection: Connection, worker_id: UUID) -> tuple[int, int]:
    """Ends the sessions of a dead worker where the role may: how many there were, how many have ended."""
    cursor = await connection.execute(query("terminate_sessions"), {"application_name": application_name(worker_id)})
    row = await cursor.fetchone()
    assert row is not None
    found, left = row[0], row[0]
    patience = boottime() + 1.5
    while left and boottime() < patience:
        await connection.execute("select pg_stat_clear_snapshot()")
        cursor = await connection.execute(query("count_sessions"), {"application_name": application_name(worker_id)})
        counted = await cursor.fetchone()
        assert counted is not None
        left = counted[0]
        if left:
            await asyncio.sleep(0.01)
    return found, found - left
