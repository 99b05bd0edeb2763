"""One registered life of a worker: its sessions, its duties in their loops, and its orderly or forced end.

What it may do and must stop is decided in `decisions`; here that is performed. A worker that was reaped while it could
not be heard (stopped, cut off) begins a new tenure under a new id.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never
from uuid import UUID, uuid4

from pgcron_runner import __version__
from pgcron_runner.adopt import Adopt
from pgcron_runner.claim import Claim
from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection, Database, DatabaseError, Purpose, explain
from pgcron_runner.decisions import Action, Beat, End, Feed, InHand, Look, Phase, Say, Standing, StopRuns
from pgcron_runner.deliver import EVERY as DELIVER_EVERY
from pgcron_runner.deliver import Deliver
from pgcron_runner.dispatch import Dispatch
from pgcron_runner.errors import DatabaseUnavailable, PgcronError
from pgcron_runner.execute import Execute
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.runners import Runners
from pgcron_runner.finish import Finish
from pgcron_runner.fire import Fire
from pgcron_runner.heartbeat import Heartbeat
from pgcron_runner.leases import beat_interval
from pgcron_runner.logs import get_logger
from pgcron_runner.loop import Loop, Step
from pgcron_runner.notify import Notifier
from pgcron_runner.notify.pings import Pings
from pgcron_runner.prune import Prune
from pgcron_runner.reap import Reap
from pgcron_runner.report import Report
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.session import Availability, Session
from pgcron_runner.settings import BATCH, WorkerSettings
from pgcron_runner.store import workers
from pgcron_runner.tidy import Tidy
from pgcron_runner.watch import EVERY as WATCH_EVERY
from pgcron_runner.watch import Watch

log = get_logger(__name__)

_PRUNE_EVERY = 60.0
_TIDY_EVERY = 15.0
_REPORT_EVERY = 1.0
_LISTEN_PROOF = 30.0
_CLOSE_WITHIN = 5.0
_NEXT_TRY = 0.5
_DROPPED = "the run had been closed by others; its late result changes nothing"


class Tenure:
    """`run` returns True where the worker was reaped and must begin anew, False after an orderly stop."""

    def __init__(
        self,
        database: Database,
        settings: WorkerSettings,
        guard: Guard,
        on_registered: Callable[[], None] | None = None,
    ) -> None:
        self._on_registered = on_registered
        self.id: UUID = uuid4()
        self.registered = False
        self._settings = settings
        self._guard = guard
        self._lease = settings.lease.total_seconds()
        self._standing = Standing(str(self.id), self._lease)
        self._ended = asyncio.Event()
        self._build_sessions(
            replace(database, application_name=workers.application_name(self.id), lease=settings.lease)
        )
        # A password that is given by --dsn is as secret as one of the environment.
        self._build_duties(Notifier(environ=os.environ | {"PGCRON_DSN": database.conninfo}))
        self._build_loops()

    def _build_sessions(self, database: Database) -> None:
        availability = Availability()
        self._control = Session(
            database, Purpose.CONTROL, on_connect=self._adopt_session, patient=False, availability=availability
        )
        self._record = Session(database, Purpose.RECORD, availability=availability)
        self._listen = Session(database, Purpose.LISTEN, on_connect=self._hear, availability=availability)
        self._runners = Runners(database, self.id, self._guard, self._settings)

    def _build_duties(self, notifier: Notifier) -> None:
        self._pings = Pings()
        runners = {kind: self._pings.around(runner) for kind, runner in self._runners.by_kind().items()}
        self._execute = Execute(runners, self._on_finished)
        claim = Claim(self._control, self.id, self._settings.kinds, self._execute.locked_jobs)
        duties = (Fire(self._control), claim, self._execute)
        self._dispatch = Dispatch(self._control, duties, self._settings, lambda: self._standing)
        self._finish = Finish(self._record, self._control, self.id)
        self._heartbeat = Heartbeat(self._control, self.id)
        self._adopt = Adopt(self.id, self._settings.lease, lambda: self._execute.tasks)
        self._reap = Reap(self._record, self.id, self._lease)
        self._report = Report(self._record, self.id, self._execute.live)
        self._tidy = Tidy(self._record)
        self._prune = Prune(self._record)
        self._watch = Watch(self._record, self._pings.call)
        self._deliver = Deliver(self._record, notifier, self._on_sent)

    def _build_loops(self) -> None:
        beat = beat_interval(self._lease)
        poll = self._settings.poll.total_seconds()
        stagger = random.uniform(0, beat)  # noqa: S311 - no secret
        self._beating = Loop("heartbeat", self._beat_step, interval=beat)
        self._scheduling = Loop("schedule", self._schedule_step, interval=poll)
        self._finishing = Loop("finish", self._finish_step, interval=poll)
        self._delivering = Loop("deliver", self._deliver.step, interval=DELIVER_EVERY, delay=stagger)
        self._watchdog = Loop("watchdog", self._watchdog_step, interval=beat)
        self._loops = (
            self._beating,
            self._scheduling,
            self._finishing,
            self._watchdog,
            self._delivering,
            Loop("listen", self._listen_step, interval=0.0),
            Loop("reap", self._reap_step, interval=beat, delay=stagger),
            Loop("report", _regularly(self._report.step), interval=_REPORT_EVERY),
            Loop("watch", _regularly(self._watch.step), interval=WATCH_EVERY, delay=stagger),
            Loop("tidy", _regularly(self._tidy.step), interval=_TIDY_EVERY, delay=stagger),
            Loop("prune", _regularly(self._prune.step), interval=_PRUNE_EVERY, delay=stagger * 5),
        )

    # ------------------------------------------------------------------------------------ the life of it

    async def run(self) -> bool:
        """Registers, works, and ends. Raises PgcronError where Postgres refuses from the start."""
        await self._register()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(loop.run(), name=loop.name) for loop in self._loops]
                await self._ended.wait()
                for task in tasks:
                    task.cancel()
            if self._reaped:
                await self._abandon()
        finally:
            self._ended.set()
            await self._close()
        return self._reaped

    @property
    def _reaped(self) -> bool:
        return self._standing.phase is Phase.REAPED

    async def _register(self) -> None:
        if self._settings.once:
            await self._control.connect_once()
        facts = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "zone_data": zone_data_version(),
        }
        while not self.registered:
            # A session that is lost at this moment must not cost the worker: it comes back.
            with suppress(DatabaseUnavailable):
                await self._enter(facts)
        log.info("worker_started", worker=str(self.id), slots=self._settings.slots, lease_s=self._lease)

    async def _enter(self, facts: dict[str, Any]) -> None:
        """One try to register. Raises DatabaseUnavailable where the next one may do, a moment later."""
        try:
            async with self._control.use() as connection:
                sent_at = boottime()
                await workers.register_worker(connection, self.id, self._settings, facts)
        except DatabaseError as error:
            trouble = explain(error)
            if isinstance(trouble, DatabaseUnavailable):
                log.warning("registration_failed", error=str(trouble), consequence=f"tried again in {_NEXT_TRY:g} s")
                await asyncio.sleep(_NEXT_TRY)
            raise trouble from error
        self._decide(self._standing.renewed(sent_at, boottime()))
        self.registered = True
        if self._on_registered is not None:
            self._on_registered()

    async def _abandon(self) -> None:
        """After others have closed the runs: waits until the stopped commands are gone, and drops what they came to."""
        with suppress(TimeoutError):
            # Bounded, since a function in a thread cannot be stopped.
            async with asyncio.timeout(self._lease):
                await self._execute.wait_until_idle()
        for run_id in self._execute.unwritten:
            log.warning("result_dropped", run=run_id, consequence=_DROPPED)

    async def drain(self, patience: float | None) -> None:
        """Takes nothing new, lets what runs come to its end (at most `patience` seconds), records it all and ends."""
        self._decide(self._standing.told_to_stop(patience, self._in_hand, boottime()))
        self._watchdog.wake()
        await self._ended.wait()

    def interrupt(self, *, now: bool = False) -> None:
        """Stops what is running; those runs end as `interrupted`. `now`: without the grace."""
        self._decide(self._standing.interrupted(self._in_hand, at_once=now))

    async def _close(self) -> None:
        with suppress(PgcronError, DatabaseError, TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._deliver.flush()
                await self._pings.flush()
        with suppress(PgcronError, DatabaseError, TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._deliver.close()
                await self._pings.close()
                if not self._reaped:
                    async with self._record.use() as connection:
                        await workers.end_worker(connection, self.id, "stopped")
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._runners.close()
                for session in (self._listen, self._record, self._control):
                    await session.close()

    # ------------------------------------------------------------------------------------ decisions, performed

    @property
    def _in_hand(self) -> InHand:
        return InHand(self._execute.running, len(self._execute.unrecorded))

    def _decide(self, decision: tuple[Standing, tuple[Action, ...]]) -> None:
        self._standing, actions = decision
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Feed():
                self._guard.feed(action.deadline)
            case StopRuns():
                run_ids = self._execute.run_ids if action.run_ids is None else action.run_ids
                self._execute.stop(run_ids, action.reason, now=action.now)
            case Beat():
                self._beating.wake()
            case Look():
                self._scheduling.wake()
            case End():
                self._ended.set()
            case Say():
                (log.warning if action.warning else log.info)(action.event, **action.facts)
            case _:
                assert_never(action)

    async def _adopt_session(self, connection: Connection) -> None:
        adopted = await self._adopt.step(connection)
        self._decide(self._standing.adopted(adopted, self._execute.running_ids, boottime()))

    async def _beat_step(self) -> None:
        beaten = await self._heartbeat.step(lambda: self._execute.run_ids, lambda: self._standing)
        self._decide(self._standing.beaten(beaten, self._execute.run_ids, boottime()))

    async def _watchdog_step(self) -> float:
        self._decide(self._standing.elapsed(self._in_hand, boottime()))
        return min(self._standing.elapses_in(self._in_hand, boottime()), beat_interval(self._lease))

    async def _reap_step(self) -> float | None:
        await self._reap.step()
        return self._reap.look_in(beat_interval(self._lease))

    # ------------------------------------------------------------------------------------ runs

    async def _schedule_step(self) -> float | None:
        was_idle = not self._execute.running
        pause, done = await self._dispatch.step()
        if was_idle and self._execute.running:
            self._watchdog.wake()
        if self._settings.once and not self._execute.run_ids:
            if done:
                return 0.0
            self._decide(self._standing.told_to_stop(None, self._in_hand, boottime()))
            self._watchdog.wake()
        return pause

    def _on_finished(self) -> None:
        self._finishing.wake()
        self._scheduling.wake()
        if self._standing.is_stopping:
            self._watchdog.wake()

    async def _finish_step(self) -> float | None:
        batch = list(self._execute.unrecorded.values())[:BATCH]
        if not batch:
            return None
        taken = await self._finish.step(self._execute.to_write(batch))
        for run_id in taken:
            log.warning("result_dropped", run=run_id, consequence=_DROPPED)
        # Before the locks: they may have to be given back in another try, and nothing may be told or written twice.
        self._execute.written(batch)
        await self._finish.release(batch)
        self._execute.recorded(finished.task.run_id for finished in batch)
        self._scheduling.wake()
        if self._standing.is_stopping:
            self._watchdog.wake()
        return 0.0 if self._execute.unrecorded else None

    # ------------------------------------------------------------------------------------ hints

    async def _hear(self, connection: Connection) -> None:
        await connection.execute("listen pgcron")
        # What was said while nobody listened is lost.
        self._scheduling.wake()
        self._beating.wake()

    async def _listen_step(self) -> float | None:
        async with self._listen.use() as connection:
            async for notification in connection.notifies(timeout=_LISTEN_PROOF, stop_after=1):
                self._loop_for(notification.payload).wake()
                return 0.0
            # Quiet for a while: a round trip proves that the line is not dead.
            await connection.execute("select 1")
        return 0.0

    def _loop_for(self, payload: str) -> Loop:
        match payload:
            case "cancel":
                return self._beating
            case "alerts":
                return self._delivering
        return self._scheduling

    def _on_sent(self) -> None:
        self._delivering.wake()


def _regularly(step: Callable[[], Awaitable[object]]) -> Step:
    """A step that sleeps for its loop's interval whatever it has found."""

    async def regularly() -> None:
        await step()

    return regularly
