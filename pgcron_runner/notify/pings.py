"""Signs of life to monitors outside, such as healthchecks: a run has begun, succeeded or failed; workers live.

Best effort: a monitor notices what does not come, so nothing is kept, tried again or waited for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ParamSpec

from pgcron_runner.logs import get_logger
from pgcron_runner.model import Outcome, Status, Task
from pgcron_runner.notify.targets import UnresolvedTarget, resolve_target

if TYPE_CHECKING:
    import aiohttp

log = get_logger(__name__)
P = ParamSpec("P")

_PATIENCE = 10.0
_MOST_PENDING = 1000


class Pings:
    """Calls addresses and forgets them. `environ` is the worker's environment, where references lead to."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._pending: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    def around(self, runner: Callable[P, Awaitable[Outcome]]) -> Callable[P, Awaitable[Outcome]]:
        """The same runner, which tells the monitor of a job that has one when a run begins and how it ends."""

        async def run(*args: P.args, **kwargs: P.kwargs) -> Outcome:
            task = args[0]
            assert isinstance(task, Task)
            if task.heartbeat_url is None:
                return await runner(*args, **kwargs)
            self.call(task.heartbeat_url, "/start")
            outcome = await runner(*args, **kwargs)
            self.call(task.heartbeat_url, "" if outcome.status is Status.SUCCEEDED else "/fail")
            return outcome

        return run

    def call(self, url: str, suffix: str = "") -> None:
        """Begins the call and returns. With very many on their way it is left out."""
        if len(self._pending) >= _MOST_PENDING:
            return
        task = asyncio.create_task(self._call(url, suffix), name="ping")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def flush(self) -> None:
        """Until all that was begun is over."""
        while self._pending:
            await asyncio.wait(list(self._pending))

    async def close(self) -> None:
        """What is on its way is cut off."""
        for task in self._pending:
            task.cancel()
        await self.flush()
        if self._session is not None:
            await self._session.close()

    async def _call(self, url: str, suffix: str) -> None:
        import aiohttp

        try:
            address = resolve_target(url, self._environ)
            if self._session is None:
                limits = aiohttp.ClientTimeout(total=_PATIENCE)
                self._session = aiohttp.ClientSession(timeout=limits, cookie_jar=aiohttp.DummyCookieJar())
            async with self._session.post(address.rstrip("/") + suffix, allow_redirects=False) as answer:
                if answer.status < 400:
                    return
                words = f"it answered {answer.status}"
        except UnresolvedTarget as unresolved:
            words = str(unresolved)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            # Not the error's own words: they may have the address in them, which is secret.
            words = type(error).__name__
        log.warning("heartbeat_not_sent", error=words, consequence="the monitor outside may raise an alarm")
