"""Tidy: closes runs that waited too long or should not wait, has times of older zone data planned anew.

It also removes jobs that their files have not had for two weeks.
"""

from __future__ import annotations

from datetime import datetime

from pgcron_runner.database import Connection
from pgcron_runner.logs import get_logger
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.session import Session
from pgcron_runner.settings import BATCH
from pgcron_runner.store import definitions, jobs

log = get_logger(__name__)

_STEPS_PER_ZONE_CHECK = 40


class Tidy:
    """The duty, on the record session; safe on all workers at once: what one has changed the others find changed."""

    def __init__(self, session: Session, *, zone_data: str | None = None) -> None:
        """`zone_data` is the release that plans are made with; by default it is this host's."""
        self._session = session
        self._zone_data = zone_data or zone_data_version()
        self._steps = 0
        self._more_stale = True

    async def step(self, *, now: datetime | None = None) -> int:
        """One batch of each; returns how many rows were changed."""
        async with self._session.use() as connection:
            late = await jobs.close_late_runs(connection, limit=BATCH, now=now)
            stopped = await jobs.withdraw_stopped_runs(connection, limit=BATCH, now=now)
            stale = await self._replan(connection, now)
            buried = await definitions.remove_buried_jobs(connection, limit=BATCH, now=now)
        if late:
            log.warning(
                "runs_too_late", runs=late, consequence="they are closed as missed; more slots or workers would help"
            )
        if stale:
            log.info(
                "zone_data_is_newer",
                jobs=stale,
                release=self._zone_data,
                consequence="their next times are computed anew",
            )
        if buried:
            log.info("jobs_removed", jobs=buried, consequence="their files have not had them for two weeks")
        return late + stopped + stale + buried

    async def _replan(self, connection: Connection, now: datetime | None) -> int:
        """At the start, and seldom afterwards: it looks at all jobs, and only a worker with older data leaves any."""
        self._steps += 1
        if not self._more_stale and self._steps % _STEPS_PER_ZONE_CHECK:
            return 0
        stale = await jobs.replan_for_zone_data(connection, self._zone_data, limit=BATCH, now=now)
        self._more_stale = stale == BATCH
        return stale
