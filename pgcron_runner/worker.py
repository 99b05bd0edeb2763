"""The worker process: one guard, one tenure after the other, and what signals do to them."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import suppress

from pgcron_runner.database import Database
from pgcron_runner.errors import GuardLost
from pgcron_runner.execution.processes import Guard
from pgcron_runner.logs import get_logger
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.tenure import Tenure

log = get_logger(__name__)


def run_worker(database: Database, settings: WorkerSettings) -> None:
    """Makes this process a worker until it is told to stop. Raises as `Worker.run`."""
    # Before the event loop and any connection: the guard must share neither.
    guard = Guard.start()
    # What was imported stays for good, and runs come and go in hundreds: with the default thresholds the garbage
    # collector took a third of the time of a busy worker (measured: 99 -> 65 us a run).
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    asyncio.run(Worker(database, settings, guard).run())


class Worker:
    """Works until it is told to stop.

    The guard is started by the caller, before the event loop and any connection exist, and closed by this. `registered`
    is set once others know of this worker. Without `handle_signals` they are the caller's business.
    """

    def __init__(
        self, database: Database, settings: WorkerSettings, guard: Guard, *, handle_signals: bool = True
    ) -> None:
        self.registered = asyncio.Event()
        self._handles_signals = handle_signals
        self._database = database
        self._settings = settings
        self._guard = guard
        self._tenure: Tenure | None = None
        self._stops = 0
        self._running: asyncio.Task[bool] | None = None
        self._drain: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until it has stopped in order. Raises PgcronError where Postgres refuses, GuardLost where the guard died."""
        self._guard.attach()
        if self._handles_signals:
            self._handle_signals()
        lost = asyncio.create_task(self._guard.lost.wait())
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait({lost, working}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                log.error(
                    "guard_lost", consequence="its commands are dead; the worker ends, and should be started again"
                )
                self.request_stop(at_once=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(working, 10)
                raise GuardLost
            await working
        finally:
            lost.cancel()
            working.cancel()
            await self._guard.close()

    def request_stop(self, *, at_once: bool = False) -> None:
        """First call: drain. Second: interrupt what runs. Third: without its grace. `at_once` is all three."""
        self._stops = 3 if at_once else self._stops + 1
        if self._tenure is None or self._running is None:
            return
        if not self._tenure.registered:
            # Still waiting for Postgres: there is nothing to drain.
            self._running.cancel()
            return
        if self._drain is None:
            timeout = self._settings.drain_timeout
            self._drain = asyncio.create_task(
                self._tenure.drain(timeout.total_seconds() if timeout is not None else None)
            )
        if self._stops > 1:
            self._tenure.interrupt(now=self._stops > 2)

    async def _work(self) -> None:
        reaped = True
        while reaped and not self._stops:
            self._tenure = Tenure(self._database, self._settings, self._guard, self.registered.set)
            self._running = asyncio.create_task(self._tenure.run())
            try:
                reaped = await self._running
            except asyncio.CancelledError:
                if not self._stops:
                    raise
        if self._drain is not None:
            await self._drain
        log.info("worker_stopped")

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop)
