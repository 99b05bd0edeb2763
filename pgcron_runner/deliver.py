"""Deliver: sends what waits in the outbox, one message at a time to each channel. It knows no incident."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

from pgcron_runner.database import Connection, DatabaseError
from pgcron_runner.errors import PgcronError
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Alert, Channel, Delivery
from pgcron_runner.notify import Notifier
from pgcron_runner.pacing import alerts_in_message, message_in
from pgcron_runner.places import PATIENCE, Places
from pgcron_runner.retry import alert_retry_in
from pgcron_runner.session import Session
from pgcron_runner.store import alerts

log = get_logger(__name__)

# NOTIFY says when there is something to send; this is the floor of truth.
EVERY = 30.0
# Longer than a message may take: the alerts of a worker that dies meanwhile are sent by another.
_CLAIMED_FOR = 120.0
_BEHIND_OTHERS = 5.0


class Deliver:
    """The duty, on the record session, which is never held while a message is on its way.

    `on_sent` is called after each message, since more may wait for that channel.
    """

    def __init__(self, session: Session, notifier: Notifier, on_sent: Callable[[], None]) -> None:
        self._session = session
        self._notifier = notifier
        self._on_sent = on_sent
        self._sending: set[asyncio.Task[None]] = set()
        self._places = Places()

    async def step(self, *, now: datetime | None = None) -> float | None:
        """Begins a message to each channel that may have one now; returns the seconds until another may."""
        pauses = []
        async with self._session.use() as connection:
            for channel, waiting in await alerts.list_due_channels(connection, now=now):
                if (pause := message_in(waiting)) > 0:
                    pauses.append(pause)
                # Before the claim: what is claimed must not wait for a place until others think it abandoned.
                elif not self._places.take(channel.id, time.monotonic()):
                    pauses.append(PATIENCE)
                elif not await self._begin(connection, channel, alerts_in_message(waiting), now):
                    # Others have it in hand, or what waits comes after something that is not due.
                    pauses.append(_BEHIND_OTHERS)
        return min(pauses, default=None)

    async def flush(self) -> None:
        """Sends what may go now, and waits for it. For an orderly end: who knows when the next worker comes."""
        await self.step()
        await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Until nothing is on its way."""
        while self._sending:
            await asyncio.wait(list(self._sending))

    async def close(self) -> None:
        """What is on its way is given up here, and sent again by another worker."""
        for task in self._sending:
            task.cancel()
        await self.wait_until_idle()
        await self._notifier.close()

    async def _begin(self, connection: Connection, channel: Channel, limit: int, now: datetime | None) -> bool:
        claimed: list[Alert] = []
        try:
            claimed = await alerts.claim_alerts(connection, channel.id, limit=limit, retry_in=_CLAIMED_FOR, now=now)
        finally:
            if not claimed:
                self._places.give_back(channel.id)
        if claimed:
            task = asyncio.create_task(self._send(channel, claimed), name=f"alert to {channel.name}")
            self._sending.add(task)
            task.add_done_callback(self._end)
        return bool(claimed)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._on_sent()

    async def _send(self, channel: Channel, claimed: list[Alert]) -> None:
        delivery = None
        try:
            delivery = await self._notifier.send(channel, claimed)
            await self._record(channel, claimed, delivery)
        except (PgcronError, DatabaseError) as error:
            log.warning(
                "alerts_not_marked",
                channel=channel.name,
                alerts=len(claimed),
                error=str(error).strip(),
                consequence="they are sent again" + (", for the second time" if delivery and delivery.sent else ""),
            )
        finally:
            self._places.give_back(channel.id, taken=None if delivery is None else delivery.sent)

    async def _record(self, channel: Channel, claimed: list[Alert], delivery: Delivery) -> None:
        ids = [alert.id for alert in claimed]
        taken = len(ids) if delivery.sent else delivery.taken
        async with self._session.use() as connection:
            if taken:
                await alerts.mark_alerts_sent(connection, ids[:taken])
            if not (ids := ids[taken:]):
                return
            pause = alert_retry_in(max(alert.tries for alert in claimed), delivery.retry_after)
            given_up = await alerts.postpone_alerts(
                connection, ids, error=delivery.error or "not sent", retry_in=pause, permanent=delivery.permanent
            )
        _log_failure(channel, delivery, alerts=len(ids), given_up=given_up, retry_in=pause)


def _log_failure(channel: Channel, delivery: Delivery, *, alerts: int, given_up: int, retry_in: float) -> None:
    consequence = "they are given up: nobody was told" if given_up else f"they are sent again in {retry_in:.0f} s"
    log.warning("alerts_not_sent", channel=channel.name, alerts=alerts, error=delivery.error, consequence=consequence)
