"""Claim: takes due queued runs for this worker, with their job locks. It executes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from uuid import UUID

from pgcron_runner.database import Connection, DatabaseError, UniqueViolation
from pgcron_runner.decisions import Lane
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Kind
from pgcron_runner.session import Session
from pgcron_runner.settings import BATCH
from pgcron_runner.store import runs
from pgcron_runner.store.runs import Claimed, LockedJob

log = get_logger(__name__)

_NOTHING = Claimed([], frozenset(), more=False)


class Claim:
    """The duty, on the control session, since that is where the job locks live.

    `in_hand` tells which locks this worker is meant to hold: after a claim that failed half-way, every other one is
    given back, because a session lock survives the rollback that undid its row.
    """

    def __init__(
        self, session: Session, worker_id: UUID, kinds: Iterable[Kind], in_hand: Callable[[], list[LockedJob]]
    ) -> None:
        self._session = session
        self._worker_id = worker_id
        self._kinds = tuple(kinds)
        self._in_hand = in_hand

    async def step(
        self,
        lane: Lane,
        *,
        limit: int,
        refused: Collection[int] = (),
        allowed: Callable[[], bool] = lambda: True,
        now: datetime | None = None,
    ) -> Claimed:
        """Claims at most `limit` due runs of one queue and priority, oldest first; leaves out the `refused` jobs.

        `allowed` is asked once the session is there: waiting for a new one takes time, and what it found may forbid it.
        """
        async with self._session.use() as connection:
            if not allowed():
                return _NOTHING
            try:
                async with connection.transaction():
                    limit = await self._places(connection, lane, min(limit, BATCH))
                    if limit <= 0:
                        return _NOTHING
                    return await runs.claim_runs(
                        connection, self._worker_id, lane, kinds=self._kinds, limit=limit, refused=refused, now=now
                    )
            except DatabaseError as error:
                if not connection.closed:
                    await self.release_strays(connection)
                if isinstance(error, UniqueViolation):
                    # Two workers chose the same lane of a job that allows overlap: the constraint decided.
                    log.debug("claim_collided", queue=lane.queue)
                    return _NOTHING
                raise

    @staticmethod
    async def _places(connection: Connection, lane: Lane, limit: int) -> int:
        if lane.max_running is None:
            return limit
        return min(limit, await runs.places_in_queue(connection, lane.queue))

    async def release_strays(self, connection: Connection) -> int:
        """Gives back job locks of this session that no run in hand accounts for; returns how many rounds it took.

        A leak would keep a job from everybody and fill the server's lock table.
        """
        kept = set(self._in_hand())
        strays = [lock for lock in await runs.list_own_locks(connection) if lock not in kept]
        # A lock that was taken several times needs as many releases; each round gives back one.
        rounds = 0
        while strays:
            await runs.release_job_locks(connection, strays)
            rounds += 1
            strays = [lock for lock in await runs.list_own_locks(connection) if lock not in kept]
        if rounds:
            log.warning("stray_locks_released", rounds=rounds, consequence="none; the jobs are free again")
        return rounds
