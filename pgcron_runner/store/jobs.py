"""Statements about jobs, as firing sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from pgcron_runner.database import Connection
from pgcron_runner.decisions import Lane
from pgcron_runner.model import CatchUp, DstGap, DstRepeat, DueJob, ExcludedDays, Overlap
from pgcron_runner.planning import Plan
from pgcron_runner.statements import query


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A locked job, the time to plan by, and when it was held: after `since`, up to `until`. None: it was not."""

    job: DueJob
    now: datetime
    since: datetime | None
    until: datetime


async def lock_due_jobs(
    connection: Connection, *, zone_data: str, limit: int, now: datetime | None = None
) -> list[tuple[DueJob, datetime]]:
    """Locks up to `limit` jobs whose time has come and that nobody else has locked; with each, the time to plan by.

    `zone_data` is the release to plan with; what a newer one has planned is left to a living worker that has it.
    """
    given = {"zone_data": zone_data, "limit": limit, "now": now}
    cursor = await connection.execute(query("due_jobs"), given, binary=True)
    return [(_due_job(row), row[26]) for row in await cursor.fetchall()]


async def lock_held_job(connection: Connection, name: str, *, now: datetime | None = None) -> HeldJob | None:
    """Locks a job that is to be resumed; None: there is no such job."""
    cursor = await connection.execute(query("lock_held_job"), {"name": name, "now": now})
    row = await cursor.fetchone()
    return None if row is None else HeldJob(_due_job(row), row[26], row[27], row[28])


def _due_job(row: Sequence[Any]) -> DueJob:
    return DueJob(
        id=row[0],
        name=row[1],
        schedule=row[2],
        timezone=row[3],
        planned=row[4],
        anchored_at=row[5],
        next_run_at=row[6],
        overlap=Overlap(row[7]),
        max_running=row[8],
        catch_up=CatchUp(row[9]),
        catch_up_window=row[10],
        catch_up_limit=row[11],
        dst_gap=DstGap(row[12]),
        dst_repeat=DstRepeat(row[13]),
        jitter=row[14],
        starts_at=row[15],
        ends_at=row[16],
        paused_until=row[17],
        running_run_ids=tuple(row[18]),
        queued_run_id=row[19],
        queued_count=row[20],
        excluded=tuple(
            ExcludedDays(calendar, date.fromisoformat(first), date.fromisoformat(last), label)
            for calendar, first, last, label in row[21] or ()
        ),
        fired_local=None if row[22] is None else datetime.fromisoformat(row[22]),
        last_finished_at=row[23],
        fired_until=row[24],
        other_zone_data=row[25],
    )


async def insert_planned_runs(
    connection: Connection, plans: Sequence[Plan], *, now: datetime | None = None
) -> set[Lane]:
    """Writes the rows of all plans in one statement; returns where something was queued."""
    runs = [run for plan in plans for run in plan.runs]
    if not runs:
        return set()
    cursor = await connection.execute(
        query("insert_planned_runs"),
        {
            "job_ids": [run.job_id for run in runs],
            "scheduled_for": [run.scheduled_for for run in runs],
            "run_at": [run.run_at for run in runs],
            "statuses": [run.status.value for run in runs],
            "reasons": [run.reason for run in runs],
            "missed_counts": [run.missed_count for run in runs],
            "missed_until": [run.missed_until for run in runs],
            "now": now,
        },
    )
    return {Lane(*row) for row in await cursor.fetchall()}


async def request_replacement(connection: Connection, run_ids: Sequence[int]) -> None:
    """Asks for running runs to be stopped, since their successors have been queued."""
    await connection.execute(query("request_replacement"), {"run_ids": list(run_ids)})


async def move_jobs_on(
    connection: Connection, plans: Sequence[Plan], *, zone_data: str = "", now: datetime | None = None
) -> None:
    """Sets the next time, or the problem, of every planned job; `zone_data` is the release it was computed with."""
    await connection.execute(
        query("move_jobs_on"),
        {
            "job_ids": [plan.job_id for plan in plans],
            "next_run_at": [plan.next_run_at for plan in plans],
            "problems": [plan.problem for plan in plans],
            "fired_local": [plan.fired_local.isoformat() if plan.fired_local else None for plan in plans],
            "zone_data": zone_data,
            "now": now,
        },
    )


async def replan_for_zone_data(
    connection: Connection, zone_data: str, *, limit: int, now: datetime | None = None
) -> int:
    """Has jobs planned anew whose next time was computed with older zone data; returns how many."""
    return await _count(connection, "replan_for_zone_data", {"zone_data": zone_data, "limit": limit, "now": now})


async def close_late_runs(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Closes queued runs as missed that waited longer than their job allows; returns how many."""
    return await _count(connection, "close_late_runs", {"limit": limit, "now": now})


async def withdraw_stopped_runs(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Cancels queued runs that were being made just when their job was disabled or paused; returns how many."""
    return await _count(connection, "withdraw_stopped_runs", {"limit": limit, "now": now})


async def insert_backfill(
    connection: Connection, job_id: int, times: Sequence[datetime], *, overlap: Overlap, now: datetime | None = None
) -> int:
    """Queues runs for nominal times that are to be filled in; returns how many were made."""
    parameters = {"job_id": job_id, "times": list(times), "overlap": overlap.value, "now": now}
    return await _count(connection, "insert_backfill", parameters)


async def _count(connection: Connection, name: str, parameters: dict[str, Any]) -> int:
    cursor = await connection.execute(query(name), parameters)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
