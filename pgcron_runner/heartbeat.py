"""Heartbeat: renews this worker's lease and learns which of its runs are still its own and which are to be stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection
from pgcron_runner.decisions import Beaten, Standing
from pgcron_runner.session import Session
from pgcron_runner.store import runs, workers

_FORGOTTEN = "the server that has taken over does not know how it ended"


class Heartbeat:
    """The duty, on the control session: where it is lost, the locks are lost with it, and the next beat says so."""

    def __init__(self, session: Session, worker_id: UUID) -> None:
        self._session = session
        self._worker_id = worker_id

    async def step(self, in_hand: Callable[[], Collection[int]], standing: Callable[[], Standing]) -> Beaten:
        """One beat. `in_hand` names the runs in hand, `standing` tells whether to look for others, and what of them.

        They were never begun, and are queued again. Where it doubts that, they are lost: they may have been begun, and
        have even ended, and a server that has taken over need not know it.
        """
        async with self._session.use() as connection:
            # Asked when no claim is on its way, since claims use this very session; a new one may have changed much.
            run_ids, may = frozenset(in_hand()), standing()
            # Not before the session was free: only time on the wire and in the server counts against the lease.
            sent_at = boottime()
            database_now = await workers.beat_worker(connection, self._worker_id, stopping=may.is_stopping)
            answered_at = boottime()
            if database_now is None:
                return Beaten(sent_at, alive=False)
            own: dict[int, bool] = {}
            if run_ids or may.searches(sent_at):
                own = await runs.read_own_runs(connection, self._worker_id, run_ids)
            unknown, doubted = frozenset(own.keys() - run_ids), may.doubts(sent_at)
            if unknown:
                await self._settle(connection, unknown, doubted=doubted)
        return Beaten(
            sent_at,
            alive=True,
            database_now=database_now,
            answered_at=answered_at,
            taken=run_ids - own.keys(),
            given_back=frozenset() if doubted else unknown,
            lost=unknown if doubted else frozenset(),
            cancelled=frozenset(run_id for run_id, wanted in own.items() if wanted),
        )

    async def _settle(self, connection: Connection, unknown: frozenset[int], *, doubted: bool) -> None:
        if not doubted:
            await runs.give_back_runs(connection, self._worker_id, unknown)
            return
        async with connection.transaction():
            await runs.close_lost_runs(connection, self._worker_id, run_ids=unknown, reason=_FORGOTTEN)
