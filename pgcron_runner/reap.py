"""Reap: closes the runs of workers whose lease has ended, by this observer's own clock alone."""

from __future__ import annotations

from uuid import UUID

from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection, DatabaseError, is_connection_lost
from pgcron_runner.leases import Beat, Watch
from pgcron_runner.logs import get_logger
from pgcron_runner.session import Session
from pgcron_runner.store import runs, workers

log = get_logger(__name__)

_VANISHED = "its worker vanished: no heartbeat for a whole lease"


class Reap:
    """The duty, on the record session; safe on all workers at once: it locks the row and compares the beat."""

    def __init__(self, session: Session, worker_id: UUID, lease: float) -> None:
        self._session = session
        self._worker_id = worker_id
        self._watch = Watch(lease)

    async def step(self) -> int:
        """Looks at everybody's beat once and reaps the silent; returns how many runs were closed as lost."""
        async with self._session.use() as connection:
            beats = [beat for beat in await workers.list_beats(connection) if beat.worker_id != self._worker_id]
            # The clock is read after the answer: an observer may only ever wait longer than the lease, never less.
            self._watch, silent = self._watch.observe(beats, boottime())
            return sum([await self._reap(connection, beat) for beat in silent])

    def look_in(self, interval: float) -> float | None:
        """Seconds to the next look where a lease may end before the interval does: whoever waits, waits no longer."""
        left = self._watch.look_in(boottime())
        return left if left is not None and left < interval else None

    async def _reap(self, connection: Connection, silent: Beat) -> int:
        async with connection.transaction():
            if silent.beat is not None and not await workers.lock_silent_worker(connection, silent):
                return 0
            # First its sessions: nothing of it may commit any more, and its job locks become free.
            found, ended = await _terminate(connection, silent)
            lost = await runs.close_lost_runs(connection, silent.worker_id, reason=_VANISHED)
            await workers.end_worker(connection, silent.worker_id, "lost")
        log.warning(
            "worker_lost",
            worker=str(silent.worker_id),
            runs=lost,
            sessions_ended=ended,
            consequence="its lease has ended; its runs are closed as lost and tried again where attempts remain",
        )
        if found > ended:
            log.warning(
                "sessions_left",
                worker=str(silent.worker_id),
                sessions=found - ended,
                consequence="its job locks may delay the next attempts until the server drops them",
            )
        return lost


async def _terminate(connection: Connection, silent: Beat) -> tuple[int, int]:
    """In a savepoint: what Postgres refuses here must not keep the runs from being closed."""
    try:
        async with connection.transaction():
            return await workers.terminate_sessions(connection, silent.worker_id)
    except DatabaseError as error:
        if is_connection_lost(connection, error):
            raise
        log.warning("sessions_not_ended", worker=str(silent.worker_id), error=str(error).strip())
        return 0, 0
