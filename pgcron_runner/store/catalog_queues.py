"""Statements for people: queues, what waits in them, and what holds them back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pgcron_runner.statements import query
from pgcron_runner.store.catalog import read_rows

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue. `due` and `later` count its queued runs, up to 1,000 for each priority; `workers` names ten at most."""

    name: str
    due: int
    later: int
    due_since: datetime | None
    running: int
    max_running: int | None
    paused: bool
    workers: list[str]
    slots: int


async def list_queues(connection: Connection, *, named: Iterable[str] = (), now: datetime | None = None) -> list[Queue]:
    """Queues by name: those with a row, with live runs, named by a worker, or here. Cheap, whatever is in there."""
    return await read_rows(connection, "list_queues", {"named": list(named), "now": now}, Queue)


async def count_queue_jobs(connection: Connection) -> dict[str, int]:
    """How many jobs each queue has. It reads all jobs."""
    cursor = await connection.execute(query("count_queue_jobs"))
    return dict(await cursor.fetchall())


async def pause_queue(connection: Connection, name: str, *, paused: bool) -> bool:
    """Pauses a queue, or lets it go on; whether it was paused before."""
    cursor = await connection.execute(query("pause_queue"), {"name": name, "paused": paused})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def limit_queue(connection: Connection, name: str, *, max_running: int | None) -> int | None:
    """Sets how many runs of a queue may run at a time, None: any number; the limit before."""
    cursor = await connection.execute(query("limit_queue"), {"name": name, "max_running": max_running})
    row = await cursor.fetchone()
    return None if row is None else row[0]
