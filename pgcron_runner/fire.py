"""Fire: turns due occurrences into rows, queued or accounted for, and moves the jobs on. It starts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection
from pgcron_runner.decisions import Lane
from pgcron_runner.leases import ClockWatch
from pgcron_runner.logs import get_logger
from pgcron_runner.model import DueJob
from pgcron_runner.planning import Plan, plan_job
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.session import Session
from pgcron_runner.settings import BATCH
from pgcron_runner.store import jobs

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fired:
    """How many jobs were moved on, where runs were queued, and whether more jobs may be due."""

    jobs: int
    lanes: frozenset[Lane]
    more: bool


class Fire:
    """The duty, on one session; safe on all workers at once by row locks and the unique occurrence."""

    def __init__(self, session: Session, *, zone_data: str | None = None) -> None:
        """`zone_data` is the release that plans are made with; by default it is this host's."""
        self._session = session
        self._zone_data = zone_data or zone_data_version()

    async def step(self, *, limit: int = BATCH, clock: ClockWatch | None = None, now: datetime | None = None) -> Fired:
        """One batch in one transaction: lock, plan, write, move on.

        Nothing where the time that it would plan by has stepped since `clock`, what heartbeats know of the database's
        clock: most of a step's length would be missed at once, and no heartbeat may have seen the step yet.
        """
        async with self._session.use() as connection:
            sent_at = boottime()
            async with connection.transaction():
                due = await jobs.lock_due_jobs(connection, zone_data=self._zone_data, limit=limit, now=now)
                if not due or (clock is not None and not clock.observe(due[0][1], sent_at, boottime()).steady):
                    return Fired(0, frozenset(), more=False)
                return await self._move_on(connection, due, limit, now)

    async def _move_on(
        self, connection: Connection, due: list[tuple[DueJob, datetime]], limit: int, now: datetime | None
    ) -> Fired:
        plans = [_plan(job, clock) for job, clock in due]
        lanes = await jobs.insert_planned_runs(connection, plans, now=now)
        replaced = [run_id for plan in plans for run_id in plan.replace]
        if replaced:
            await jobs.request_replacement(connection, replaced)
        await jobs.move_jobs_on(connection, plans, zone_data=self._zone_data, now=now)
        return Fired(len(due), frozenset(lanes), more=len(due) == limit)


def _plan(job: DueJob, now: datetime) -> Plan:
    try:
        plan = plan_job(job, now)
    except Exception as error:  # one job must never stop the others, whatever is in its row
        log.exception("planning_failed", job=job.name, consequence="the job is marked and left out")
        plan = Plan(job.id, (), None, problem=f"planning failed: {error!r}")
    if plan.problem is not None:
        log.warning(
            "job_has_a_problem",
            job=job.name,
            problem=plan.problem,
            consequence="it is not scheduled until it is edited",
        )
    return plan
