"""The play: what the demo does, act by act. It waits for states in the database, never for a time to pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from pgcron_runner.cli.demo import history
from pgcron_runner.cli.demo.history import Snapshot
from pgcron_runner.cli.demo.screen import Screen
from pgcron_runner.cli.demo.stage import LEASE, PARTS, Stage, WorkerProcess
from pgcron_runner.database import Connection, Database, DatabaseError, Purpose, explain
from pgcron_runner.errors import PgcronError
from pgcron_runner.migrate import migrate
from pgcron_runner.model import Status
from pgcron_runner.promises import CountedJob, Mark, RunRow

NAMES = ["worker-1", "worker-2", "worker-3"]
# Far beyond what a busy machine needs; then something is broken, and the demo says what.
_PATIENCE = 90.0
_LOOK_EVERY = 0.15
# What the last act takes, so that all of it ends near the time that was asked for.
_LAST_ACT = 5.0


@dataclass(frozen=True, slots=True)
class Told:
    """What the play came to: the rows and marks at its end, and when and what was killed (seconds of the screen)."""

    jobs: list[CountedJob]
    last: Snapshot
    reports: list[int]
    marks: list[Mark]
    killed: str
    killed_at: float
    parts: list[tuple[int, int]]


class Play:
    """`perform` plays it from the empty database to the last worker's end."""

    def __init__(self, dsn: str, stage: Stage, screen: Screen, *, seconds: float) -> None:
        self._database = Database(dsn, application_name="pgcron-runner demo")
        self._stage = stage
        self._screen = screen
        self._seconds = seconds
        self._firsts = dict(_FIRSTS)
        self._dead: set[str] = set()
        self._connection: Connection

    async def perform(self) -> Told:
        await self._schema()
        self._connection = await self._database.connect(Purpose.ADMIN)
        try:
            return await self._acts()
        except DatabaseError as error:
            raise explain(error) from error
        finally:
            await self._connection.close()

    async def _acts(self) -> Told:
        await history.create_report_table(self._connection)
        await self._workers()
        await self._jobs()
        victim, killed_at = await self._kill()
        await self._recovery(victim, killed_at)
        jobs = await self._end()
        last = await history.read_snapshot(self._connection)
        reports = await history.list_reports(self._connection)
        return Told(jobs, last, reports, self._stage.marks(), victim.name, killed_at, self._stage.parts())

    # ---------------------------------------------------------------------------------------------- acts

    async def _schema(self) -> None:
        await migrate(self._database)
        self._screen.say("it has the schema pgcron now, by: pgcron-runner migrate")

    async def _workers(self) -> None:
        self._screen.act("Act 2: three workers, no leader")
        self._stage.start_workers(self._database.conninfo, NAMES)
        await self._until(lambda now: len(now.workers) == len(NAMES), "three processes are starting")
        pids = ", ".join(str(worker.pid) for worker in self._stage.workers.values())
        self._screen.say(f"processes {pids} registered; each has a lease of {LEASE} s")

    async def _jobs(self) -> None:
        self._screen.act("Act 3: a job is a row")
        await history.add_jobs(self._connection)
        self._screen.code(history.first_insert())
        self._screen.say("inserted, and four more: ping, slow, flaky and backup")
        await self._until(_is_planned, "the workers plan the new jobs")

    async def _kill(self) -> tuple[WorkerProcess, float]:
        """In the middle of the backup, the worker that runs it."""
        await self._until(
            lambda now: bool(now.runs_of("backup", Status.RUNNING)) and len(self._stage.parts()) >= 2,
            "soon the worker that runs the backup is killed",
        )
        now = await history.read_snapshot(self._connection)
        if not (running := now.runs_of("backup", Status.RUNNING)):
            raise PgcronError("The backup had ended before its worker could be killed: this machine is too busy.")
        victim = self._stage.workers[running[0].worker or ""]
        self._screen.act("Act 4: a worker is killed")
        held = self._stage.watch_commands()
        killed_at = self._screen.elapsed
        victim.kill()
        self._dead.add(victim.name)
        self._screen.say(f"kill -9 {victim.name}, in the middle of backup (run {running[0].id}, {self._parts_made()})")
        await self._commands_die(victim, held)
        return victim, killed_at

    async def _commands_die(self, victim: WorkerProcess, held: list[Mark]) -> None:
        """Nobody but the dead worker's guard kills them."""
        killed = time.monotonic()
        now = await history.read_snapshot(self._connection)
        mine = {run.id for run in now.running if run.worker == victim.name}
        while living := [mark for mark in self._stage.watch_commands() if mark.run_id in mine]:
            if time.monotonic() - killed > _PATIENCE:
                raise PgcronError(f"A command of the killed worker lives on: {living[0].job_name}")
            await asyncio.sleep(0.01)
        jobs = " and ".join(mark.job_name for mark in held if mark.run_id in mine)
        took = (time.monotonic() - killed) * 1000
        self._screen.say(f"its guard killed what it ran ({jobs}) within {took:.0f} ms")

    async def _recovery(self, victim: WorkerProcess, killed_at: float) -> None:
        self._screen.act("Act 5: its lease ends, and another worker takes over")
        now = await self._until(
            lambda now: bool(now.runs_of("backup", Status.LOST)),
            f"until the lease of {victim.name} has ended, nobody may touch its runs",
        )
        lost = now.runs_of("backup", Status.LOST)[0]
        assert lost.finished_at is not None
        after = self._screen.since(lost.finished_at) - killed_at
        closed = _joined([run for run in now.runs if run.status is Status.LOST])
        self._screen.say(f"its lease ended: {closed} closed as lost, {after:.1f} s after the kill")
        others = [run for run in now.runs if run.started_at and self._screen.since(run.started_at) > killed_at]
        self._screen.say(f"meanwhile the other two workers went on, with {len(others)} runs")
        now = await self._until(
            lambda now: any(run.attempt == 2 and run.started_at for run in now.runs_of("backup")),
            f"backup has an attempt left: it comes after run {lost.id}",
        )
        second = now.runs_of("backup")[-1]
        self._screen.say(f"attempt 2 of backup (run {second.id}) began on {second.worker}: it makes what is missing")
        await self._until(
            lambda now: bool(now.runs_of("backup", Status.SUCCEEDED)),
            f"{second.worker} makes the rest of the backup",
        )
        self._screen.say(f"backup succeeded: {self._parts_made()}")

    async def _end(self) -> list[CountedJob]:
        await self._until(
            lambda _: not self._firsts and self._screen.elapsed > self._seconds - _LAST_ACT,
            "the jobs go on a little longer",
        )
        self._screen.act("Act 6: everybody stops in order")
        jobs = await history.disable_jobs(self._connection)
        retried = {job.name for job in jobs if job.max_attempts > 1}
        now = await self._until(lambda now: _is_winding_down(now, retried), "jobs are disabled; retries end first")
        remaining = [worker for worker in self._stage.workers.values() if worker.name not in self._dead]
        going = _joined(now.running)
        for worker in remaining:
            self._dead.add(worker.name)
            worker.terminate()
        names = " and ".join(worker.name for worker in remaining)
        self._screen.say(f"jobs disabled; SIGTERM to {names}; " + (f"let finish: {going}" if going else "nothing runs"))
        await self._until(
            lambda _: all(worker.exit_code is not None for worker in remaining), "what still runs is let finish"
        )
        codes = ", ".join(str(worker.exit_code) for worker in remaining)
        self._screen.say(f"both have ended, with exit codes {codes}")
        if bad := [worker for worker in remaining if worker.exit_code]:
            raise PgcronError(f"{bad[0].name} did not stop in order. Its log ends:\n{bad[0].last_words()}")
        return jobs

    def _parts_made(self) -> str:
        return f"{len(self._stage.parts())} of {PARTS} parts made"

    # ------------------------------------------------------------------------------------------- waiting

    async def _until(self, condition: Callable[[Snapshot], bool], note: str) -> Snapshot:
        """Look, show and tell what is new until the condition holds; `note` is what the screen says meanwhile."""
        deadline = time.monotonic() + _PATIENCE + self._seconds
        while True:
            now = await history.read_snapshot(self._connection)
            self._stage.watch_commands()
            self._tell_firsts(now)
            self._screen.show(now, note)
            if condition(now):
                return now
            self._see_that_workers_live()
            if time.monotonic() > deadline:
                raise PgcronError(f"The demo waited {_PATIENCE:.0f} s in vain. It was at: {note}.")
            await asyncio.sleep(_LOOK_EVERY)

    def _see_that_workers_live(self) -> None:
        for worker in self._stage.workers.values():
            if worker.name not in self._dead and worker.exit_code is not None:
                raise PgcronError(
                    f"{worker.name} ended by itself (code {worker.exit_code}). Its log ends:\n{worker.last_words()}"
                )

    def _tell_firsts(self, now: Snapshot) -> None:
        """Each kind of event is told once, whenever it happens."""
        for name, first in list(self._firsts.items()):
            if (text := first(now)) is not None:
                del self._firsts[name]
                self._screen.say(text)


def _is_planned(now: Snapshot) -> bool:
    return any(run.started_at for run in now.runs) or any(job.due_in and job.due_in > 0 for job in now.jobs)


def _is_winding_down(now: Snapshot, retried: set[str]) -> bool:
    """Nothing is queued, and nothing runs whose end could queue a retry."""
    return all(
        run.status.is_final or (run.status is Status.RUNNING and run.job_name not in retried) for run in now.runs
    )


def _joined(runs: Iterable[RunRow]) -> str:
    return ", ".join(f"{run.job_name} (run {run.id})" for run in runs)


def _first_report(now: Snapshot) -> str | None:
    for run in now.runs_of("report", Status.SUCCEEDED):
        assert run.started_at is not None
        late = (run.started_at - run.scheduled_for) / timedelta(milliseconds=1)
        return f"report ran on {run.worker}, {late:.0f} ms after its time"
    return None


def _first_skip(now: Snapshot) -> str | None:
    for run in now.runs_of("slow", Status.SKIPPED):
        return f"slow takes 4 s every 2 s: run {run.id} skipped ({run.reason})"
    return None


def _first_retry(now: Snapshot) -> str | None:
    failed = now.runs_of("flaky", Status.FAILED)
    for run in now.runs_of("flaky", Status.SUCCEEDED):
        if failed and run.attempt == 2:
            return f"flaky: run {failed[0].id} failed ({failed[0].error}); attempt 2, run {run.id}, succeeded"
    return None


def _first_backup(now: Snapshot) -> str | None:
    for run in now.runs_of("backup", Status.RUNNING):
        return f"backup began on {run.worker} (run {run.id}): {PARTS} parts, a second each"
    return None


_FIRSTS: dict[str, Callable[[Snapshot], str | None]] = {
    "report": _first_report,
    "skip": _first_skip,
    "retry": _first_retry,
    "backup": _first_backup,
}
