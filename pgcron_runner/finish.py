"""Finish: records how runs ended, in batches, and gives their job locks back. It decides no outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from pgcron_runner.database import Connection, DatabaseError, DataError, is_connection_lost
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Finished, Outcome
from pgcron_runner.retry import retry_in
from pgcron_runner.session import Session
from pgcron_runner.store import runs
from pgcron_runner.store.runs import Ending, LockedJob

log = get_logger(__name__)


class Finish:
    """The duty: states on the record session, beside the claims; locks on the control session, which holds them."""

    def __init__(self, record: Session, control: Session, worker_id: UUID) -> None:
        self._record = record
        self._control = control
        self._worker_id = worker_id

    async def step(self, batch: Sequence[Finished], *, now: datetime | None = None) -> set[int]:
        """Records a batch; returns the ids that were not this worker's any more. What it raises, try again."""
        unrecorded = [finished for finished in batch if not finished.outcome.recorded]
        changed: set[int] = set()
        if unrecorded:
            async with self._record.use() as connection:
                await self._store_output(connection, unrecorded)
                changed = await self._write(connection, unrecorded, now)
                unchanged = [_ending(finished) for finished in unrecorded if finished.task.run_id not in changed]
                if unchanged:
                    # A try before may have been committed without an answer.
                    changed |= await runs.read_ended_so(connection, self._worker_id, unchanged)
        return {finished.task.run_id for finished in unrecorded} - changed

    async def release(self, batch: Sequence[Finished]) -> None:
        """Gives the job locks of recorded runs back. After a reconnect there is nothing to give."""
        locks = [LockedJob(finished.task.job_id, finished.task.exclusive) for finished in batch]
        async with self._control.use() as connection:
            await runs.release_job_locks(connection, locks)

    async def _store_output(self, connection: Connection, batch: Sequence[Finished]) -> None:
        outputs = [
            (f.task.run_id, f.outcome.output) for f in batch if f.outcome.output and f.outcome.output.total_bytes
        ]
        if not outputs:
            return
        try:
            await runs.store_output(connection, self._worker_id, outputs)
        except (DatabaseError, UnicodeError) as error:
            if is_connection_lost(connection, error):
                raise
            log.warning(
                "output_not_stored",
                runs=len(outputs),
                error=str(error),
                consequence="their states are recorded without it",
            )

    async def _write(self, connection: Connection, batch: Sequence[Finished], now: datetime | None) -> set[int]:
        # By job, so that two workers' batches lock the incidents of jobs that both have run in one order.
        endings = [_ending(finished) for finished in sorted(batch, key=lambda finished: finished.task.job_id)]
        try:
            return await runs.finish_runs(connection, self._worker_id, endings, now=now)
        except (DataError, UnicodeError, ValueError) as error:
            log.warning("batch_refused", runs=len(endings), error=str(error), consequence="recorded one by one")
        changed: set[int] = set()
        for ending in endings:
            changed |= await self._write_alone(connection, ending, now)
        return changed

    async def _write_alone(self, connection: Connection, ending: Ending, now: datetime | None) -> set[int]:
        """One run by itself; its state is recorded even where its texts cannot be."""
        try:
            return await runs.finish_runs(connection, self._worker_id, [ending], now=now)
        except (DataError, UnicodeError, ValueError):
            bare = Outcome(
                ending.outcome.status,
                exit_code=ending.outcome.exit_code,
                reason="its texts could not be stored in this database's encoding",
            )
            return await runs.finish_runs(connection, self._worker_id, [replace(ending, outcome=bare)], now=now)


def _ending(finished: Finished) -> Ending:
    task, outcome = finished.task, finished.outcome
    return Ending(task.run_id, outcome, retry_in(task.retry, outcome.status, task.attempt))
