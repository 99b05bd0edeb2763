"""Watch: finds what is late or takes too long, and who is still to be told of it. It sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pgcron_runner.logs import get_logger
from pgcron_runner.session import Session
from pgcron_runner.settings import BATCH
from pgcron_runner.store import alerts

log = get_logger(__name__)

# All workers ask for the turn; one of them gets it, once in this time.
EVERY = 10.0


class Watch:
    """The duty, on the record session. Of all workers one at a time does it.

    `call`: begins a call of an address, and returns.
    """

    def __init__(self, session: Session, call: Callable[[str], object]) -> None:
        self._session = session
        self._call = call

    async def step(self, *, every: float = EVERY, now: datetime | None = None) -> bool:
        """One round, where it is this worker's turn; returns whether it was."""
        async with self._session.use() as connection:
            if not await alerts.take_watch(connection, every=every, now=now):
                return False
            if (url := await alerts.take_heartbeat(connection, now=now)) is not None:
                self._call(url)
            await alerts.close_settled_incidents(connection, limit=BATCH, now=now)
            await alerts.note_late_runs(connection, limit=BATCH, now=now)
            await alerts.note_long_runs(connection, limit=BATCH, now=now)
            for name, reason in await alerts.pause_failing_jobs(connection, limit=BATCH):
                log.warning(
                    "job_disabled", job=name, reason=reason, consequence="it starts nothing until it is resumed"
                )
        await self._tell(now)
        return True

    async def _tell(self, now: datetime | None) -> None:
        after_id: int | None = 0
        while after_id is not None:
            # Each batch by itself: finishing runs must not wait for all of them.
            async with self._session.use() as connection:
                after_id, _ = await alerts.tell_again(connection, after_id=after_id, limit=BATCH, now=now)
