"""The worker's side of sending: sender processes, kept for the next message, killed when one takes too long."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pgcron_runner.model import Alert, Channel, Delivery
from pgcron_runner.notify.request import Request
from pgcron_runner.notify.targets import PAGERDUTY, UnresolvedTarget, resolve_target, scheme_of

_IDLE = 60.0
# What programs expect, and how to get out; nothing that could hold a secret of the worker's.
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY",
              "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")  # fmt: skip


class Notifier:
    """Sends messages, at most `processes` at once. `deadline`: seconds that one may take.

    `environ` is the worker's environment, where references lead to.
    """

    def __init__(self, *, environ: Mapping[str, str] = os.environ, deadline: float = 30.0, processes: int = 4) -> None:
        self._environ = environ
        self._deadline = deadline
        self._places = asyncio.Semaphore(processes)
        self._idle: list[_Sender] = []
        self._closed = False

    async def send(self, channel: Channel, alerts: Sequence[Alert]) -> Delivery:
        """One message with one or more alerts. Never raises for what the channel does."""
        try:
            request = self._request(channel, alerts)
        except UnresolvedTarget as unresolved:
            return Delivery(sent=False, error=str(unresolved))
        if scheme_of(request.target) != PAGERDUTY and all(alert.event == "acknowledged" for alert in alerts):
            # That somebody takes an incident on stops a pager; others would only be disturbed.
            return Delivery(sent=True)
        async with self._places:
            return await self._send(request)

    async def close(self) -> None:
        """Ends the senders; a message that is on its way is cut off."""
        self._closed = True
        for sender in self._idle:
            sender.kill()
        await asyncio.gather(*(sender.end() for sender in self._idle))
        self._idle.clear()

    def _request(self, channel: Channel, alerts: Sequence[Alert]) -> Request:
        return Request(
            target=resolve_target(channel.target, self._environ),
            payloads=[alert.payload | {"event": alert.event, "incident_key": alert.incident_key} for alert in alerts],
            message_key=hashlib.sha256(repr([alert.id for alert in alerts]).encode()).hexdigest()[:32],
            deadline=self._deadline,
            zone=channel.timezone,
            template=channel.template,
        )

    async def _send(self, request: Request) -> Delivery:
        sender = self._idle.pop() if self._idle else await _Sender.start(self._environ)
        sender.stay()
        try:
            async with asyncio.timeout(self._deadline):
                delivery = await sender.send(request)
        except TimeoutError:
            return Delivery(sent=False, error=f"no answer within {self._deadline:g} s; the sender was killed")
        except (OSError, EOFError, ValueError) as error:
            return Delivery(sent=False, error=f"the sender process ended: {type(error).__name__}")
        else:
            self._keep(sender)
            return delivery
        finally:
            if sender not in self._idle:
                sender.kill()
                await sender.end()

    def _keep(self, sender: _Sender) -> None:
        if not self._closed:
            self._idle.append(sender)
            sender.leave_after(_IDLE, self._forget)

    def _forget(self, sender: _Sender) -> None:
        if sender in self._idle:
            self._idle.remove(sender)
        sender.close()


class _Sender:
    """One process of `sender.py`, and the pipes to and from it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, environ: Mapping[str, str]) -> _Sender:
        # Messages and targets go through its standard input, never through arguments or environment.
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "pgcron_runner.notify.sender",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env={name: environ[name] for name in _PASSED_ON if name in environ}
                | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        )

    async def send(self, request: Request) -> Delivery:
        """Raises EOFError or OSError where the process has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(request.encode())
        await stdin.drain()
        length = int.from_bytes(await stdout.readexactly(4), "big")
        return _delivery(await stdout.readexactly(length))

    def leave_after(self, seconds: float, leave: Any) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, leave, self)

    def stay(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """At the end of its input it ends by itself."""
        self.stay()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        self.stay()
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        await self._process.wait()


def _delivery(answer: bytes) -> Delivery:
    return Delivery(**json.loads(answer))
