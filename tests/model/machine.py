"""A machine that runs a worker: the worker's process with the product's code in it, its guard, and its commands."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from pgcron_runner.database import Purpose
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, Status, Task
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.worker import Worker
from tests.faults.checker import Mark
from tests.model.server import Server
from tests.model.truth import Truth
from tests.model.wire import Database, Line
from tests.model.world import Host, Process, World

_OBEYS_WITHIN, _DIES_WITHIN = 0.05, 0.1


@dataclass(eq=False)
class Command:
    """A process of a run: `begin` is marked when it starts, `end` when it comes to its end by itself."""

    number: int
    guard: Guard
    task: Task
    worker_id: UUID
    seconds: float
    exit_code: int
    is_stubborn: bool
    ended: asyncio.Future[int]
    begun_at: float
    awake_at: float
    is_over: bool = False
    insisting: asyncio.Task[None] | None = None

    def term(self) -> None:
        if not self.is_stubborn:
            self._later(_OBEYS_WITHIN, self.die)

    def kill(self) -> None:
        self._later(_DIES_WITHIN * self.guard.host.world.rng.random(), self.die)

    def _later(self, seconds: float, what: Any) -> None:
        self.guard.host.world.after(seconds, self.guard.host.when_awake, what)

    def die(self) -> None:
        self._end("alive", -9)

    def go_on(self) -> None:
        """Until its time, by a clock that stands still with its host, is over."""
        host = self.guard.host
        left = self.seconds - (host.monotonic() - self.awake_at)
        if left > 0:
            host.world.after(max(left / host.rate, 1e-6), host.when_awake, self.go_on)
        else:
            self._end("end", self.exit_code)

    def _end(self, word: str, code: int) -> None:
        if not self.is_over:
            self.is_over = True
            self.guard.mark(self, word, self.exit_code)
            self.guard.commands.remove(self)
            if not self.ended.done():
                self.ended.set_result(code)


class Guard:
    """What the product sees of `execution.processes.Guard`; it lives on when its worker's process is stopped."""

    def __init__(self, host: Host, truth: Truth) -> None:
        self.host, self.truth = host, truth
        self.lost = asyncio.Event()
        self.commands: list[Command] = []
        self._deadline = math.inf
        self._is_set = False

    def attach(self) -> None:
        pass

    def feed(self, deadline: float) -> None:
        self._deadline = deadline
        if not self._is_set:
            self._is_set = True
            self._watch()

    def _watch(self) -> None:
        left = self._deadline - self.host.boottime()
        if left <= 0:
            self._is_set = False
            # The window that remains: what a command does between the thaw of its host and this is not counted.
            for command in list(self.commands):
                command.die() if self.host.resumed_at == self.host.world.now else command.kill()
        else:
            self.host.world.after(left / self.host.rate + 1e-6, self.host.when_awake, self._watch)

    def kill_all(self) -> None:
        for command in list(self.commands):
            command.kill()

    def launch(self, task: Task, worker_id: UUID, rng: random.Random) -> Command | None:
        """None: the deadline has passed."""
        if self._deadline <= self.host.boottime():
            return None
        seconds, fails, is_stubborn = task.args["seconds"], task.args["fails"], task.args["stubborn"]
        seconds *= rng.uniform(0.3, 1.0)
        code = 1 if rng.random() < fails else 0
        ended = asyncio.get_running_loop().create_future()
        command = Command(
            len(self.truth.marks),
            self,
            task,
            worker_id,
            seconds,
            code,
            rng.random() < is_stubborn,
            ended,
            self.host.world.now,
            self.host.monotonic(),
        )
        self.commands.append(command)
        self.mark(command, "begin", 0)
        command.go_on()
        return command

    def mark(self, command: Command, word: str, code: int) -> None:
        task, now = command.task, self.host.world.now
        at = self.host.suspended_at if word == "alive" and now == self.host.resumed_at else now
        mark = Mark(task.job_name, task.run_id, word, max(at, command.begun_at), code)
        self.truth.marked(mark, command.number, command.worker_id)

    async def close(self) -> None:
        self.kill_all()


class Runners:
    """What the product sees of `execution.runners.Runners`."""

    def __init__(self, database: Database, worker_id: UUID, guard: Guard, *options: Any) -> None:
        self._database, self._worker_id, self._guard = database, worker_id, guard
        self._rng = guard.host.world.rng

    def by_kind(self) -> dict[Kind, Any]:
        return {Kind.SHELL: self._shell, Kind.SQL: self._sql}

    async def close(self) -> None:
        pass

    async def _shell(self, task: Task, stop: Stop, live: Live) -> Outcome:
        command = self._guard.launch(task, self._worker_id, self._rng)
        if command is None:
            return Outcome(Status.FAILED, error="launch failed: the guard's deadline has passed")
        with stop.calls(lambda: self._stop(command, stop, task.kill_grace)):
            code = await command.ended
        return Outcome(Status.SUCCEEDED if code == 0 else Status.FAILED, exit_code=code)

    @staticmethod
    def _stop(command: Command, stop: Stop, grace: timedelta) -> None:
        command.term()

        async def insist() -> None:
            await stop.is_urgent_within(grace.total_seconds())
            command.kill()

        command.insisting = asyncio.create_task(insist())

    async def _sql(self, task: Task, stop: Stop, live: Live) -> Outcome:
        """One transaction: lock, work, `succeeded`, COMMIT. An unanswered COMMIT is settled on another session."""
        connection = await self._database.connect_patiently(Purpose.JOB)
        is_committing = False
        with stop.calls(connection.abandon_with_error):
            try:
                facts = {"run_id": task.run_id, "worker_id": self._worker_id, "job_id": task.job_id}
                opened = await connection.send([("begin", {}), ("open_sql_run", facts | {"exclusive": task.exclusive})])
                locked, ours = opened[0]
                if not (locked and ours):
                    return Outcome(Status.FAILED if ours else Status.LOST, reason="the lock is held, or it was taken")
                effect = {"run_id": task.run_id, "nominal": task.scheduled_for}
                seconds = task.args["seconds"] * self._rng.random()
                await connection.send([("sleep", {"seconds": seconds}), ("work", effect)])
                if self._rng.random() < task.args["fails"]:
                    return Outcome(Status.FAILED, error="model: the statement failed")
                is_committing = True
                await connection.send([("succeed_sql_run", facts), ("commit", {})])
                return Outcome(Status.SUCCEEDED, recorded=True)
            except psycopg.errors.DivisionByZero:
                return Outcome(Status.LOST, reason="the run was taken over by another worker")
            except psycopg.Error:
                if not is_committing:
                    return Outcome(Status.LOST, reason="the session was lost; the work was rolled back")
            finally:
                connection.abandon()
        return await self._settle(task, stop)

    async def _settle(self, task: Task, stop: Stop) -> Outcome:
        reading = asyncio.create_task(self._read_settled(task))
        urgent = asyncio.create_task(stop.now.wait())
        await asyncio.wait([reading, urgent], return_when=asyncio.FIRST_COMPLETED)
        status = reading.result() if reading.done() else None
        reading.cancel()
        urgent.cancel()
        if status == "succeeded":
            return Outcome(Status.SUCCEEDED, recorded=True)
        return Outcome(Status.LOST, reason="the server failed during the commit; the work was rolled back")

    async def _read_settled(self, task: Task) -> str | None:
        while True:
            connection = await self._database.connect_patiently(Purpose.RECORD)
            try:
                facts = {"run_id": task.run_id, "job_id": task.job_id}
                over, _ = (await connection.send([("settle_sql_run", facts)]))[0]
                if over:
                    status: str | None = (await connection.send([("settle_sql_run", facts)]))[0][1]
                    return status
            except psycopg.Error:
                pass
            finally:
                connection.abandon()
            await asyncio.sleep(0.1)


class Machine:
    """A host with at most one worker process at a time."""

    def __init__(self, world: World, server: Server, truth: Truth, name: str, settings: WorkerSettings) -> None:
        rng = world.rng
        self.world, self.truth, self.settings = world, truth, settings
        self.host = Host(world, name, rate=rng.uniform(0.975, 1.025), booted=rng.uniform(1000, 9000))
        self.line = Line(self.host, server)
        self.process: Process | None = None
        self.guard: Guard | None = None
        self.worker: Worker | None = None

    def start(self) -> None:
        """A new worker process, unless there is one."""
        if self.process is not None:
            return
        self.process = Process(self.host, self.host.name)
        self.process.call_soon(self._begin)

    def _begin(self) -> None:
        assert self.process is not None
        self.guard = Guard(self.host, self.truth)
        self.worker = worker = Worker(Database(self.line), self.settings, self.guard)  # type: ignore[arg-type]
        task = self.process.create_task(worker.run(), name="worker")
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.truth.complaints.append(f"{self.host.name}: the worker has failed: {error!r}")
        self._bury()
        # Whoever told it to stop wants another one.
        self.world.after(self.world.rng.random(), self.start)

    @property
    def worker_id(self) -> UUID | None:
        """Of its present tenure."""
        tenure = self.worker._tenure if self.worker else None
        return tenure.id if tenure and self.process else None

    @property
    def holds_its_lease(self) -> bool:
        """It works, and has not been told to stop."""
        tenure = self.worker._tenure if self.worker else None
        return bool(tenure and self.process and tenure._standing.may_begin(tenure._in_hand, self.host.boottime()))

    def kill(self) -> None:
        """kill -9 of the worker: its guard sees that and kills the commands."""
        if self.process is not None:
            self._bury()

    def _bury(self) -> None:
        process, self.process = self.process, None
        assert process is not None
        process.kill()
        for connection in [one for one in self.line.connections if one.process is process]:
            connection.abandon()
        if self.guard is not None:
            self.guard.kill_all()
