"""Heartbeat: renews this worker's lease and learns which of its runs are still its own and which are to be stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from pgcron_runner.clock import boottime
from pgcron_runner.database import Session
from pgcron_runner.store import runs, workers


@dataclass(frozen=True, slots=True)
class Beaten:
    """What a heartbeat brought. `sent_at` (boot-time clock) was read before it was sent: the lease counts from there.

    `alive` false: the row was closed by others, and with it all runs. `taken`: runs that are no longer this worker's.
    """

    sent_at: float
    alive: bool
    database_now: datetime | None = None
    answered_at: float = 0.0
    taken: frozenset[int] = frozenset()
    cancelled: frozenset[int] = field(default_factory=frozenset)


class Heartbeat:
    """The duty, on the control session: where it is lost, the locks are lost with it, and the next beat says so."""

    def __init__(self, session: Session, worker_id: UUID) -> None:
        self._session = session
        self._worker_id = worker_id

    async def step(self, run_ids: Sequence[int], *, stopping: bool) -> Beaten:
        """One beat; `run_ids` are the runs in hand as they were before it was sent."""
        async with self._session.use() as connection:
            # Not before the session was free: only time on the wire and in the server counts against the lease.
            sent_at = boottime()
            database_now = await workers.beat_worker(connection, self._worker_id, stopping=stopping)
            answered_at = boottime()
            if database_now is None:
                return Beaten(sent_at, alive=False)
            own = await runs.read_own_runs(connection, self._worker_id, run_ids) if run_ids else {}
        return Beaten(
            sent_at,
            alive=True,
            database_now=database_now,
            answered_at=answered_at,
            taken=frozenset(run_ids) - own.keys(),
            cancelled=frozenset(run_id for run_id, wanted in own.items() if wanted),
        )
