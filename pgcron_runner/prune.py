"""Prune: removes history that has been kept long enough, in small batches; never what is queued or running."""

from __future__ import annotations

from datetime import datetime

from pgcron_runner.session import Session
from pgcron_runner.store import retention

# Small enough to be over in milliseconds; a removal that is interrupted loses nothing but its own batch.
JOBS_PER_STEP = 500
RUNS_PER_JOB = 200


class Prune:
    """The duty, on the record session: each step looks at the next jobs in turn, and begins again after the last."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._after_id = 0

    async def step(self, *, now: datetime | None = None) -> int:
        """Removes one batch; returns how many rows went."""
        async with self._session.use() as connection:
            last_id, removed = await retention.prune_runs(
                connection, after_id=self._after_id, jobs=JOBS_PER_STEP, limit=RUNS_PER_JOB, now=now
            )
            self._after_id = last_id or 0
            removed += await retention.prune_orphaned_runs(connection, limit=RUNS_PER_JOB, now=now)
            removed += await retention.prune_alerts(connection, limit=RUNS_PER_JOB, now=now)
            await retention.prune_workers(connection, now=now)
        return removed
