"""The watch process: sees what is late, long or lost and sends alerts, on a host that runs no jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from uuid import uuid4

from pgcron_runner.database import Connection, Database, Purpose
from pgcron_runner.deliver import EVERY as DELIVER_EVERY
from pgcron_runner.deliver import Deliver
from pgcron_runner.leases import beat_interval
from pgcron_runner.logs import get_logger
from pgcron_runner.loop import Loop
from pgcron_runner.notify import Notifier
from pgcron_runner.notify.pings import Pings
from pgcron_runner.reap import Reap
from pgcron_runner.session import Session
from pgcron_runner.watch import EVERY as WATCH_EVERY
from pgcron_runner.watch import Watch

log = get_logger(__name__)

# How long it observes a worker's silence: as long as the longest lease that is usual.
_LEASE = 30.0
_LISTEN_PROOF = 30.0
_CLOSE_WITHIN = 5.0


def run_watcher(database: Database) -> None:
    """Makes this process a watcher until it is told to stop. Raises PgcronError where Postgres refuses."""
    asyncio.run(Watcher(database).run())


class Watcher:
    """Watches until it is told to stop."""

    def __init__(self, database: Database) -> None:
        self._record = Session(database, Purpose.RECORD)
        self._listen = Session(database, Purpose.LISTEN, on_connect=self._hear)
        self._pings = Pings()
        self._watch = Watch(self._record, self._pings.call)
        # A password that is given by --dsn is as secret as one of the environment.
        notifier = Notifier(environ=os.environ | {"PGCRON_DSN": database.conninfo})
        self._deliver = Deliver(self._record, notifier, self._on_sent)
        self._reap = Reap(self._record, uuid4(), _LEASE)
        self._delivering = Loop("deliver", self._deliver.step, interval=DELIVER_EVERY)

    async def run(self) -> None:
        """Until TERM or Ctrl-C."""
        loops = (
            self._delivering,
            Loop("watch", self._watch_step, interval=WATCH_EVERY),
            Loop("reap", self._reap_step, interval=beat_interval(_LEASE)),
            Loop("listen", self._listen_step, interval=0.0),
        )
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with self._record.use():
            log.info("watching")
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(loop.run(), name=loop.name) for loop in loops]
                await stopped.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await self._close()

    async def _close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._deliver.close()
                await self._pings.close()
                for session in (self._listen, self._record):
                    await session.close()

    def _on_sent(self) -> None:
        self._delivering.wake()

    async def _watch_step(self) -> None:
        await self._watch.step()

    async def _reap_step(self) -> float | None:
        await self._reap.step()
        return self._reap.look_in(beat_interval(_LEASE))

    async def _hear(self, connection: Connection) -> None:
        await connection.execute("listen pgcron")
        self._delivering.wake()

    async def _listen_step(self) -> float:
        async with self._listen.use() as connection:
            async for notification in connection.notifies(timeout=_LISTEN_PROOF, stop_after=1):
                if notification.payload == "alerts":
                    self._delivering.wake()
                return 0.0
            await connection.execute("select 1")
        return 0.0
