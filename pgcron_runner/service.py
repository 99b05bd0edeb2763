"""A worker inside a service of one's own: `async with Worker(...)`. It is the same worker as the command's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from pgcron_runner.database import Database, resolve_dsn
from pgcron_runner.errors import PgcronError
from pgcron_runner.execution.processes import Guard
from pgcron_runner.model import Kind
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.worker import Worker as _Worker


class Worker:
    """Runs jobs while the `async with` block lasts, on the loop of the service.

        async with Worker(dsn, queues=["reports"]) as worker:
            await serve()

    Entering waits until the worker is registered, for a Postgres that is not there yet too. Leaving lets what runs come
    to its end, `drain_timeout` at most. Commands and Python functions run in processes of their own as ever; functions
    with `"isolation": "thread"` share the service's memory, and coroutines its loop. Signals are left to the service.
    Settings are those of `pgcron-runner worker`; `dsn` None: PGCRON_DSN, else libpq's own variables.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        queues: Sequence[str] | None = None,
        kinds: Sequence[Kind | str] = tuple(Kind),
        slots: int = 10,
        name: str | None = None,
        lease: timedelta = timedelta(seconds=20),
        poll: timedelta = timedelta(seconds=5),
        drain_timeout: timedelta | None = None,
        preload: Sequence[str] = (),
        connections: Mapping[str, str] | None = None,
    ) -> None:
        self._database = Database(resolve_dsn(dsn))
        named: dict[str, Any] = {} if name is None else {"name": name}
        self._settings = WorkerSettings(
            **named,
            queues=None if queues is None else tuple(queues),
            kinds=tuple(Kind(kind) for kind in kinds),
            slots=slots,
            lease=lease,
            poll=poll,
            drain_timeout=drain_timeout,
            preload=tuple(preload),
            connections=dict(connections or {}),
        )
        self._worker: _Worker | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise PgcronError("This worker runs already; another one is another Worker.")
        # It waits for its process, which must not stop the service's loop.
        guard = await asyncio.to_thread(Guard.start, in_service=True)
        self._worker = _Worker(self._database, self._settings, guard, handle_signals=False)
        self._running = asyncio.create_task(self._worker.run(), name="pgcron-worker")
        registered = asyncio.create_task(self._worker.registered.wait())
        try:
            await asyncio.wait({self._running, registered}, return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                self._running.result()
        except BaseException:
            await self._stop(at_once=True)
            raise
        finally:
            registered.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(at_once=False)

    async def wait(self) -> None:
        """Until the worker ends by itself, which it only does where it cannot go on. Raises GuardLost and its kin."""
        assert self._running is not None
        await asyncio.shield(self._running)

    async def _stop(self, *, at_once: bool) -> None:
        assert self._worker is not None
        assert self._running is not None
        self._worker.request_stop(at_once=at_once)
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:
            # The service cannot wait any longer.
            self._worker.request_stop(at_once=True)
            with suppress(asyncio.CancelledError):
                await self._running
            raise
