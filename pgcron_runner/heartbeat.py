"""Heartbeat: renews this worker's lease and learns which of its runs are still its own and which are to be stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from pgcron_runner.clock import boottime
from pgcron_runner.decisions import Beaten
from pgcron_runner.session import Session
from pgcron_runner.store import runs, workers


class Heartbeat:
    """The duty, on the control session: where it is lost, the locks are lost with it, and the next beat says so."""

    def __init__(self, session: Session, worker_id: UUID) -> None:
        self._session = session
        self._worker_id = worker_id

    async def step(self, in_hand: Callable[[], Collection[int]], *, stopping: bool, search: bool = False) -> Beaten:
        """One beat. `in_hand` names the runs in hand; `search` looks for others even where it names none."""
        async with self._session.use() as connection:
            # Asked when no claim is on its way, since claims use this very session.
            run_ids = frozenset(in_hand())
            # Not before the session was free: only time on the wire and in the server counts against the lease.
            sent_at = boottime()
            database_now = await workers.beat_worker(connection, self._worker_id, stopping=stopping)
            answered_at = boottime()
            if database_now is None:
                return Beaten(sent_at, alive=False)
            own = await runs.read_own_runs(connection, self._worker_id, run_ids) if run_ids or search else {}
            given_back = own.keys() - run_ids
            if given_back:
                await runs.give_back_runs(connection, self._worker_id, given_back)
        return Beaten(
            sent_at,
            alive=True,
            database_now=database_now,
            answered_at=answered_at,
            taken=run_ids - own.keys(),
            given_back=frozenset(given_back),
            cancelled=frozenset(run_id for run_id, wanted in own.items() if wanted),
        )
