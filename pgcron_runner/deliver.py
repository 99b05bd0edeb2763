"""Deliver: sends what waits in the outbox, one message at a time to each channel. It knows no incident."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from pgcron_runner.database import DatabaseError
from pgcron_runner.errors import PgcronError
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Alert, Channel, Delivery
from pgcron_runner.notify import Notifier
from pgcron_runner.pacing import alerts_in_message, message_in
from pgcron_runner.retry import alert_retry_in
from pgcron_runner.session import Session
from pgcron_runner.store import alerts

log = get_logger(__name__)

# NOTIFY says when there is something to send; this is the floor of truth.
EVERY = 30.0
# Longer than a message may take: the alerts of a worker that dies meanwhile are sent by another.
_CLAIMED_FOR = 120.0


class Deliver:
    """The duty, on the record session, which is never held while a message is on its way.

    `on_sent` is called after each message, since more may wait for that channel.
    """

    def __init__(self, session: Session, notifier: Notifier, on_sent: Callable[[], None]) -> None:
        self._session = session
        self._notifier = notifier
        self._on_sent = on_sent
        self._sending: dict[int, asyncio.Task[None]] = {}

    async def step(self, *, now: datetime | None = None) -> float | None:
        """Begins a message to each channel that may have one now; returns the seconds until another may."""
        pauses = []
        async with self._session.use() as connection:
            for channel, waiting in await alerts.list_due_channels(connection, now=now):
                if channel.id in self._sending:
                    continue
                if (pause := message_in(waiting)) > 0:
                    pauses.append(pause)
                    continue
                limit = alerts_in_message(waiting)
                claimed = await alerts.claim_alerts(connection, channel.id, limit=limit, retry_in=_CLAIMED_FOR, now=now)
                if claimed:
                    self._begin(channel, claimed)
        return min(pauses, default=None)

    async def flush(self) -> None:
        """Sends what may go now, and waits for it. For an orderly end: who knows when the next worker comes."""
        await self.step()
        await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Until nothing is on its way."""
        while self._sending:
            await asyncio.wait(list(self._sending.values()))

    async def close(self) -> None:
        """What is on its way is given up here, and sent again by another worker."""
        for task in self._sending.values():
            task.cancel()
        await self.wait_until_idle()
        await self._notifier.close()

    def _begin(self, channel: Channel, claimed: list[Alert]) -> None:
        task = asyncio.create_task(self._send(channel, claimed), name=f"alert to {channel.name}")
        self._sending[channel.id] = task
        task.add_done_callback(lambda _: self._end(channel))

    def _end(self, channel: Channel) -> None:
        del self._sending[channel.id]
        self._on_sent()

    async def _send(self, channel: Channel, claimed: list[Alert]) -> None:
        delivery = await self._notifier.send(channel, claimed)
        try:
            await self._record(channel, claimed, delivery)
        except (PgcronError, DatabaseError) as error:
            log.warning(
                "alerts_not_marked",
                channel=channel.name,
                alerts=len(claimed),
                sent=delivery.sent,
                error=str(error).strip(),
                consequence="they are sent again" + (", for the second time" if delivery.sent else ""),
            )

    async def _record(self, channel: Channel, claimed: list[Alert], delivery: Delivery) -> None:
        ids = [alert.id for alert in claimed]
        async with self._session.use() as connection:
            if delivery.sent:
                await alerts.mark_alerts_sent(connection, ids)
                return
            pause = alert_retry_in(max(alert.tries for alert in claimed), delivery.retry_after)
            given_up = await alerts.postpone_alerts(
                connection, ids, error=delivery.error or "not sent", retry_in=pause, permanent=delivery.permanent
            )
        _log_failure(channel, delivery, alerts=len(ids), given_up=given_up, retry_in=pause)


def _log_failure(channel: Channel, delivery: Delivery, *, alerts: int, given_up: int, retry_in: float) -> None:
    consequence = "they are given up: nobody was told" if given_up else f"they are sent again in {retry_in:.0f} s"
    log.warning("alerts_not_sent", channel=channel.name, alerts=alerts, error=delivery.error, consequence=consequence)
