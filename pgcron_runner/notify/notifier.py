"""The worker's side of sending: sender processes, kept for the next message, and a deadline for each."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence

from pgcron_runner.model import Alert, Channel, Delivery
from pgcron_runner.notify.process import SenderEnded, SenderProcess
from pgcron_runner.notify.redaction import redact, secrets_of_environment
from pgcron_runner.notify.request import Request
from pgcron_runner.notify.targets import PAGERDUTY, UnresolvedTarget, address_of, is_reference, scheme_of

_IDLE = 60.0
_MOST_WORDS = 300


class Notifier:
    """Sends messages, each within `deadline` seconds. `environ` is the worker's environment, where references lead to.

    Nothing is started before the first message. How many are on their way at once is for the caller to decide.
    """

    def __init__(self, *, environ: Mapping[str, str] = os.environ, deadline: float = 30.0) -> None:
        self._environ = environ
        self._deadline = deadline
        self._masked = sorted(secrets_of_environment(environ))
        self._idle: dict[SenderProcess, asyncio.TimerHandle] = {}
        self._busy: set[SenderProcess] = set()
        self._ending: set[asyncio.Task[str]] = set()
        self._closed = False

    async def send(self, channel: Channel, alerts: Sequence[Alert]) -> Delivery:
        """One message with one or more alerts. Never raises for what the channel does."""
        try:
            async with asyncio.timeout(self._deadline):
                # A thread: what a path leads to may be slow.
                request = await asyncio.to_thread(self._request, channel, alerts)
        except (UnresolvedTarget, TimeoutError) as error:
            words = str(error) or f"{channel.target} is not read within {self._deadline:g} s"
            return Delivery(sent=False, error=f"on this worker's host, {words}")
        if scheme_of(request.url) != PAGERDUTY and all(alert.event == "acknowledged" for alert in alerts):
            # That somebody takes an incident on stops a pager; others would only be disturbed.
            return Delivery(sent=True)
        return await self._send(request)

    async def close(self) -> None:
        """Ends the senders at once; a message that is on its way is cut off."""
        self._closed = True
        for sender in [*self._idle, *self._busy]:
            self._let_go(sender)
        if self._ending:
            await asyncio.wait(list(self._ending))

    def _request(self, channel: Channel, alerts: Sequence[Alert]) -> Request:
        address = address_of(channel.target, self._environ)
        # Ids of alerts are numbers of one installation's; with the incident they are unique in the world.
        keys = repr([(alert.incident_key, alert.id) for alert in alerts])
        return Request(
            url=address.url,
            secret=address.secret,
            payloads=[_facts(alert) for alert in alerts],
            message_key=hashlib.sha256(keys.encode()).hexdigest()[:32],
            deadline=self._deadline,
            masked=self._masked,
            zone=channel.timezone,
            template=channel.template,
            is_final=not is_reference(channel.target),
        )

    async def _send(self, request: Request) -> Delivery:
        sender: SenderProcess | None = None
        try:
            async with asyncio.timeout(self._deadline):
                sender = self._take_idle() or await SenderProcess.start(self._environ)
                self._busy.add(sender)
                delivery = await sender.send(request)
        except TimeoutError:
            return Delivery(sent=False, error=f"no answer within {self._deadline:g} s; the sender was killed")
        except SenderEnded as ended:
            return Delivery(sent=False, error=_last_words(ended, request))
        except OSError as error:
            return Delivery(sent=False, error=f"no sender process could be started: {error.strerror}")
        else:
            self._keep(sender)
            return delivery
        finally:
            if sender in self._busy:
                self._let_go(sender)

    def _take_idle(self) -> SenderProcess | None:
        if not self._idle:
            return None
        sender, timer = self._idle.popitem()
        timer.cancel()
        return sender

    def _keep(self, sender: SenderProcess) -> None:
        if not self._closed:
            self._busy.discard(sender)
            self._idle[sender] = asyncio.get_running_loop().call_later(_IDLE, self._let_go, sender)

    def _let_go(self, sender: SenderProcess) -> None:
        """Kills it. Nobody waits for that but `close`."""
        self._busy.discard(sender)
        if (timer := self._idle.pop(sender, None)) is not None:
            timer.cancel()
        ending = asyncio.create_task(sender.end(), name=f"end of sender {sender.pid}")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _facts(alert: Alert) -> dict[str, object]:
    return alert.payload | {
        "id": alert.id,
        "event": alert.event,
        "job": alert.payload.get("job") or alert.job_name,
        "incident_key": alert.incident_key,
        "created_at": alert.created_at.isoformat(),
    }


def _last_words(ended: SenderEnded, request: Request) -> str:
    words = redact(" ".join(ended.last_words.split()), request.secrets)[-_MOST_WORDS:]
    return "the sender process ended" + (f"; its last words: {words}" if words else "")
