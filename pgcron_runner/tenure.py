"""One registered life of a worker: its sessions, its duties in their loops, and its orderly or forced end.

A worker that was reaped while it could not be heard (stopped, cut off) begins a new one under a new id.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
from contextlib import suppress
from dataclasses import replace
from uuid import UUID, uuid4

from pgcron_runner import __version__
from pgcron_runner.claim import Claim
from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection, Database, DatabaseError, Purpose
from pgcron_runner.errors import PgcronError
from pgcron_runner.execute import Execute
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.runners import Runners
from pgcron_runner.finish import Finish
from pgcron_runner.fire import Fire
from pgcron_runner.heartbeat import Beaten, Heartbeat
from pgcron_runner.leases import ClockWatch, beat_interval, own_deadline
from pgcron_runner.logs import get_logger
from pgcron_runner.loop import Loop
from pgcron_runner.migrate import check_schema
from pgcron_runner.model import StopReason
from pgcron_runner.prune import Prune
from pgcron_runner.reap import Reap
from pgcron_runner.report import Report
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.session import Availability, Session
from pgcron_runner.settings import BATCH, WorkerSettings
from pgcron_runner.store import runs, workers
from pgcron_runner.store.jobs import Lane
from pgcron_runner.tidy import Tidy

log = get_logger(__name__)

# With so many ends waiting to be written, something is wrong with the database: nothing new is begun.
_TOO_MANY_UNRECORDED = 4 * BATCH
_PRUNE_EVERY = 60.0
_TIDY_EVERY = 15.0
_REPORT_EVERY = 1.0
_LISTEN_PROOF = 30.0
# How long a job is left alone whose lock somebody outside holds.
_REFUSED_FOR = 1.0
_OVERDUE_PAUSE = 0.02
_DROPPED = "the run had been closed by others; its late result changes nothing"


class Tenure:
    """`run` returns True where the worker was reaped and must begin anew, False after an orderly stop."""

    def __init__(self, database: Database, settings: WorkerSettings, guard: Guard) -> None:
        self.id: UUID = uuid4()
        self._settings = settings
        self._guard = guard
        self._lease = settings.lease.total_seconds()
        self._poll = settings.poll.total_seconds()
        self._deadline = 0.0
        self._suspicious_until = 0.0
        self._jobs_due_at = math.inf
        self._clock = ClockWatch()
        self._stopping = False
        self._control_pid: int | None = None
        self._has_fired = False
        self.registered = False
        self._reaped = False
        self._ended = asyncio.Event()
        self._refused: dict[int, float] = {}
        self._build(replace(database, application_name=workers.application_name(self.id), lease=settings.lease))

    def _build(self, database: Database) -> None:
        availability = Availability()
        self._control = Session(
            database, Purpose.CONTROL, on_connect=self._adopt, patient=False, availability=availability
        )
        self._record = Session(database, Purpose.RECORD, availability=availability)
        self._listen = Session(database, Purpose.LISTEN, on_connect=self._hear, availability=availability)
        self._runners = Runners(database, self.id, self._guard, slots=self._settings.slots)
        self._execute = Execute(self._runners.by_kind(), self._on_finished)
        self._fire = Fire(self._control)
        self._claim = Claim(self._control, self.id, self._settings.kinds, self._execute.locked_jobs)
        self._finish = Finish(self._record, self._control, self.id)
        self._heartbeat = Heartbeat(self._control, self.id)
        self._reap = Reap(self._record, self.id, self._lease)
        self._report = Report(self._record, self.id, self._execute.live)
        self._tidy = Tidy(self._record)
        self._prune = Prune(self._record)
        beat = beat_interval(self._lease)
        stagger = random.uniform(0, beat)  # noqa: S311 - no secret
        self._beating = Loop("heartbeat", self._beat_step, interval=beat)
        self._scheduling = Loop("schedule", self._schedule_step, interval=self._poll)
        self._finishing = Loop("finish", self._finish_step, interval=self._poll)
        self._loops = (
            self._beating,
            self._scheduling,
            self._finishing,
            Loop("watchdog", self._watchdog_step, interval=beat),
            Loop("listen", self._listen_step, interval=0.0),
            Loop("reap", self._reap_step, interval=beat, delay=stagger),
            Loop("report", self._report_step, interval=_REPORT_EVERY),
            Loop("tidy", self._tidy_step, interval=_TIDY_EVERY, delay=stagger),
            Loop("prune", self._prune_step, interval=_PRUNE_EVERY, delay=stagger * 5),
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
            await self._close()
        return self._reaped

    async def _register(self) -> None:
        if self._settings.once:
            await self._control.connect_once()
        facts = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "zone_data": zone_data_version(),
        }
        async with self._control.use() as connection:
            sent_at = boottime()
            await workers.register_worker(connection, self.id, self._settings, facts)
        self._renew(sent_at)
        self.registered = True
        log.info("worker_started", worker=str(self.id), slots=self._settings.slots, lease_s=self._lease)

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
        self._stopping = True
        self._beating.wake()
        log.info("worker_draining", running=self._execute.running)
        try:
            async with asyncio.timeout(patience):
                await self._execute.wait_until_idle()
        except TimeoutError:
            self.interrupt()
            await self._execute.wait_until_idle()
        # The finish loop writes what is left; beyond the lease others will have closed those runs as lost.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._deadline + self._lease - boottime(), 0)):
                await self._execute.wait_until_recorded()
        self._ended.set()

    def interrupt(self, *, now: bool = False) -> None:
        """Stops what is running; those runs end as `interrupted`. `now`: without the grace."""
        self._stopping = True
        log.warning(
            "runs_interrupted", running=self._execute.running, consequence="they are tried again where attempts remain"
        )
        self._execute.stop_all(StopReason.DRAIN, now=now)

    async def _close(self) -> None:
        with suppress(PgcronError, DatabaseError, TimeoutError):
            async with asyncio.timeout(5):
                if not self._reaped:
                    async with self._record.use() as connection:
                        await workers.end_worker(connection, self.id, "stopped")
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._runners.close()
                for session in (self._listen, self._record, self._control):
                    await session.close()

    # ------------------------------------------------------------------------------------ lease and locks

    async def _adopt(self, connection: Connection) -> None:
        """On each new control session: the schema is right, and the locks of the runs in hand are ours again."""
        await check_schema(connection)
        # The last claim may have been committed without our knowing, or still be on its way through a dying session.
        self._suspicious_until = boottime() + 2 * self._lease
        if self._control_pid is not None:
            # A line that was cut may look whole from the server: our own last session still has our locks.
            await workers.terminate_session(connection, self.id, self._control_pid)
        self._control_pid = connection.info.backend_pid
        locks = self._execute.locked_jobs()
        if locks and (refused := await runs.take_job_locks(connection, locks)):
            log.warning("locks_taken_over", jobs=sorted(refused), consequence="their runs are stopped")
            self._execute.stop_jobs(refused, StopReason.LEASE, now=True)
        self._beating.wake()

    def _renew(self, sent_at: float) -> None:
        lapsed = boottime() >= self._deadline
        self._deadline = own_deadline(sent_at, self._lease)
        self._guard.feed(self._deadline)
        if lapsed:
            self._scheduling.wake()

    async def _beat_step(self) -> float | None:
        suspicious = boottime() < self._suspicious_until
        beaten = await self._heartbeat.step(lambda: self._execute.run_ids, stopping=self._stopping, search=suspicious)
        if not beaten.alive:
            self._on_reaped()
            return None
        self._renew(beaten.sent_at)
        self._watch_clock(beaten)
        # A run that ended and was recorded between the list and the answer is not taken, just over.
        taken = beaten.taken & set(self._execute.run_ids)
        self._execute.stop(taken, StopReason.LEASE, now=True)
        self._execute.stop(beaten.cancelled, StopReason.CANCEL)
        if beaten.given_back:
            log.warning("claims_given_back", runs=sorted(beaten.given_back), consequence="they wait for a worker again")
            self._scheduling.wake()
        return None

    def _watch_clock(self, beaten: Beaten) -> None:
        assert beaten.database_now is not None
        before, self._clock = self._clock, self._clock.observe(beaten.database_now, beaten.sent_at, beaten.answered_at)
        if before.steady and not self._clock.steady:
            log.warning(
                "database_clock_stepped", consequence="nothing is fired until it has been steady for ten seconds"
            )
        elif not before.steady and self._clock.steady:
            log.info("database_clock_steady")
            self._scheduling.wake()

    def _on_reaped(self) -> None:
        log.warning(
            "worker_reaped",
            worker=str(self.id),
            running=self._execute.running,
            consequence="its runs were closed as lost; they are stopped, and it begins anew under a new id",
        )
        self._reaped = True
        self._stopping = True
        self._execute.stop_all(StopReason.LEASE, now=True)
        self._ended.set()

    async def _watchdog_step(self) -> float | None:
        """Stops all runs once the lease could not be renewed in time, before others may take them."""
        left = self._deadline - boottime()
        if left > 0:
            return left
        if self._execute.running:
            log.warning(
                "lease_not_renewed",
                running=self._execute.running,
                consequence="the runs are stopped, before others may take them",
            )
            self._execute.stop_all(StopReason.LEASE, now=True)
        return min(0.1, self._lease / 20)

    # ------------------------------------------------------------------------------------ fire and claim

    async def _schedule_step(self) -> float | None:
        if not self._may_begin():
            return None
        done = 0
        if self._jobs_due_at <= boottime():
            # What the last look has told of; asked for first, since every millisecond here is lateness.
            done += await self._fire_and_claim()
        due = await self._look_ahead()
        if self._jobs_due_at <= boottime():
            done += await self._fire_and_claim()
            due = await self._look_ahead()
        for waiting in sorted(due.lanes, key=lambda waiting: -waiting.lane.priority):
            if waiting.is_due:
                done += await self._claim_lane(waiting.lane)
        if self._settings.once and not self._execute.run_ids:
            if done:
                return 0.0
            self._stopping = True
            self._ended.set()
        return self._pause(due, done)

    async def _look_ahead(self) -> runs.NextDue:
        async with self._control.use() as connection:
            due = await runs.next_due(connection, zone_data=zone_data_version())
        self._jobs_due_at = math.inf if due.jobs_due_in is None else boottime() + due.jobs_due_in
        return due

    async def _fire_and_claim(self) -> int:
        """Fires batch after batch and claims at once what came of each; returns how many jobs and runs were moved."""
        done, more = 0, self._may_fire()
        while more and self._may_begin():
            fired = await self._fire.step()
            for lane in sorted(fired.lanes, key=lambda lane: -lane.priority):
                done += await self._claim_lane(lane)
            done, more = done + fired.jobs, fired.more
        self._has_fired = True
        return done

    def _may_fire(self) -> bool:
        """Not while the database's clock is unsteady; with `once` in the first round alone, else it might never end."""
        return self._clock.steady and not (self._settings.once and self._has_fired)

    def _may_begin(self) -> bool:
        return (
            not self._stopping and boottime() < self._deadline and len(self._execute.unrecorded) < _TOO_MANY_UNRECORDED
        )

    def _serves(self, lane: Lane) -> bool:
        return self._settings.queues is None or lane.queue in self._settings.queues

    async def _claim_lane(self, lane: Lane) -> int:
        """Claims until the slots are full or the lane is empty; returns how many runs were begun."""
        begun, more = 0, self._serves(lane)
        while more and self._may_begin() and (free := self._settings.slots - self._execute.running) > 0:
            claimed = await self._claim.step(lane, limit=free, refused=self._refused_now())
            self._execute.start(claimed.tasks)
            if boottime() >= self._deadline:
                # Claimed, but the answer came too late to be believed: nothing of it is begun.
                self._execute.stop_all(StopReason.LEASE, now=True)
            self._refused.update(dict.fromkeys(claimed.refused, boottime() + _REFUSED_FOR))
            more = bool(claimed.refused) or (claimed.more and bool(claimed.tasks))
            begun += len(claimed.tasks)
        return begun

    def _refused_now(self) -> list[int]:
        now = boottime()
        self._refused = {job_id: until for job_id, until in self._refused.items() if until > now}
        return list(self._refused)

    def _pause(self, due: runs.NextDue, done: int) -> float:
        """Until something falls due, by the database's clock; the poll interval is the floor of truth."""
        jobs_due_in = due.jobs_due_in
        if jobs_due_in is not None and jobs_due_in <= 0 and not done:
            # Others have those jobs locked, or nothing may be fired now: no reason to ask again and again.
            jobs_due_in = _OVERDUE_PAUSE if self._may_fire() else None
        times = [jobs_due_in, *(waiting.due_in for waiting in due.lanes if self._serves(waiting.lane))]
        if self._refused:
            times.append(_REFUSED_FOR)
        return max(min([self._poll, *(time for time in times if time is not None)]), 0.0)

    # ------------------------------------------------------------------------------------ the other duties

    def _on_finished(self) -> None:
        self._finishing.wake()
        self._scheduling.wake()

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
        return 0.0 if self._execute.unrecorded else None

    async def _hear(self, connection: Connection) -> None:
        await connection.execute("listen pgcron")
        # What was said while nobody listened is lost.
        self._scheduling.wake()
        self._beating.wake()

    async def _listen_step(self) -> float | None:
        async with self._listen.use() as connection:
            async for notification in connection.notifies(timeout=_LISTEN_PROOF, stop_after=1):
                (self._beating if notification.payload == "cancel" else self._scheduling).wake()
                return 0.0
            # Quiet for a while: a round trip proves that the line is not dead.
            await connection.execute("select 1")
        return 0.0

    async def _reap_step(self) -> float | None:
        await self._reap.step()
        return None

    async def _report_step(self) -> float | None:
        await self._report.step()
        return None

    async def _tidy_step(self) -> float | None:
        await self._tidy.step()
        return None

    async def _prune_step(self) -> float | None:
        await self._prune.step()
        return None
