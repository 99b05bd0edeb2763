"""One seed, one story: jobs, workers, faults, then a calm in which everything must come to its end, and the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pgcron_runner.model import Kind
from pgcron_runner.settings import WorkerSettings
from tests.faults.checker import Breach, Clock, Edition, Effect, History, Job, Run, SplitBrain, breaches
from tests.faults.checker.overlap import overlapping_marks
from tests.model.faults import Faults
from tests.model.machine import Machine
from tests.model.seams import simulated
from tests.model.server import T0, Server
from tests.model.tables import Row
from tests.model.truth import FASTEST, Truth
from tests.model.world import World

_CALM = 13.0
_LAST_KILL = _CALM + 4.5
_JOBS_END = _LAST_KILL + 1.5
# Whoever has not come to an end so long after the last occurrence never will.
_PATIENCE = 60.0
_SLACK = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one seed came to."""

    seed: int
    breaches: tuple[str, ...]
    occurrences: int
    faults: Counter[str]
    story: tuple[tuple[float, str], ...]


class Scenario:
    """The story of one seed, told by `run`. `only`: these kinds of faults alone."""

    def __init__(self, seed: int, only: Collection[str] = ()) -> None:
        self.seed = seed
        self.world = World(seed)
        rng = self.world.rng
        self.lease = rng.choice([2.0, 3.0, 4.0])
        self.truth = Truth(lambda: self.world.now, self.lease)
        self.server = Server(self.world, self.truth)
        self.splits: list[SplitBrain] = []
        self.steps: list[tuple[float, float, bool]] = [(0.0, 0.0, True)]
        settings = WorkerSettings(
            name="model",
            slots=rng.choice([1, 2, 5]),
            lease=timedelta(seconds=self.lease),
            poll=timedelta(seconds=rng.choice([1.0, 5.0])),
            drain_timeout=timedelta(seconds=rng.choice([0.5, 3.0, 30.0])),
            kinds=(Kind.SHELL, Kind.SQL),
        )
        machines = [f"w{number}" for number in range(1, rng.choice([2, 2, 3]) + 1)]
        self.machines = [Machine(self.world, self.server, self.truth, name, settings) for name in machines]
        for number in range(rng.randint(2, 4)):
            self._add_job(number + 1)
        self.faults = Faults(self, _CALM, only)
        self._orphans: list[int] = []

    def _add_job(self, job_id: int) -> None:
        rng = self.world.rng
        kind = rng.choice(["shell", "shell", "sql"])
        overlap = rng.choice(["skip", "skip", "skip", "queue_one", "queue_all", "allow", "replace"])
        is_piling_up = overlap in ("queue_all", "allow")
        args = {
            # A backlog of long runs would never come to its end.
            "seconds": rng.choice([0.3, 1.0] if is_piling_up else [0.3, 2.0, 2 * self.lease, 4 * self.lease]),
            "fails": rng.choice([0.0, 0.3]),
            "stubborn": rng.choice([0.0, 0.5]),
        }
        self.server.tables.store(
            "jobs",
            job_id,
            {"id": job_id, "name": f"{kind}-{job_id}", "kind": kind, "command": "model", "args": args}
            | {"schedule": f"@every {rng.choice([2, 3, 5, 7])}s", "timezone": "UTC", "queue": "default"}
            | {"priority": rng.choice([0, 0, 1]), "overlap": overlap, "planned": False, "anchored_at": T0}
            | {"max_running": rng.choice([2, None]) if overlap == "allow" else None}
            | {"catch_up": rng.choice(["latest", "all"]), "catch_up_window": None, "catch_up_limit": 5}
            | {"next_run_at": T0, "ends_at": T0 + timedelta(seconds=_JOBS_END), "fired_until": None}
            | {"fired_local": None, "max_attempts": rng.choice([1, 2, 3]), "retry_backoff": 2.0}
            | {"retry_delay": timedelta(seconds=rng.choice([0, 1])), "retry_max_delay": timedelta(seconds=2)}
            | {"timeout": timedelta(seconds=rng.choice([1, 30])), "kill_grace": timedelta(seconds=1)},
        )

    def run(self) -> Verdict:
        with simulated(self.world, self.truth.complaints, seed=self.seed):
            for machine in self.machines:
                self.world.after(self.world.rng.random(), machine.start)
            self.world.run(_CALM)
            self._calm_down()
            self.world.run(_LAST_KILL)
            self._kill_one()
            # What was put off by a clock that was ahead has to wait until it is there again.
            ahead = max(offset for _, offset, _ in self.steps) - self.server.offset
            while not self._is_over() and self.world.now < _JOBS_END + _PATIENCE + ahead:
                self.world.run(self.world.now + 1.0)
            # A lock is given back a moment after the row is final.
            self.world.run(self.world.now + 1.0)
            found = self._judge()
            for machine in self.machines:
                machine.kill()
        rows = self.server.tables.rows["runs"].values()
        return Verdict(self.seed, tuple(found), len(rows), self.faults.count, self._told())

    def _told(self) -> tuple[tuple[float, str], ...]:
        """All that happened, with what the commands have really done."""
        marks = ((mark.at, f"run {mark.run_id} ({mark.job}): {mark.word}") for mark in self.truth.marks)
        return tuple(sorted([*self.world.story, *marks], key=lambda line: line[0]))

    def _calm_down(self) -> None:
        """Everything is whole again."""
        self.world.say("calm")
        for machine in self.machines:
            machine.start()

    def _kill_one(self) -> None:
        """A worker that dies while all others are well: its runs must be closed in time."""
        victim = self.world.rng.choice(self.machines)
        if victim.worker_id is None or not all(machine.holds_its_lease for machine in self.machines):
            return
        if any(began > self.world.now - self.lease for began in self.truth.began):
            # Who has only just begun has not looked at the others yet.
            return
        self._orphans = [run["id"] for run in self._running() if run["worker_id"] == victim.worker_id]
        self.world.say(f"{victim.host.name} is killed, with runs {self._orphans}")
        victim.kill()
        self.world.after(2 * self.lease, victim.start)

    # What people and fate do.

    def promote(self, lag: int) -> None:
        log = self.server.tables.log
        unheard = log[max(len(log) - lag, 0) :]
        begin = unheard[0][0] if unheard else self.world.now
        self.server.promote_standby(lag)
        # Claimed before it was begun, and perhaps begun a little later.
        self.splits.append(SplitBrain(begin, self.world.now + 1.0))

    @property
    def shows_a_trusted_time(self) -> bool:
        """The server's clock."""
        return self.steps[-1][2]

    def step_clock(self, seconds: float, *, lasting: float | None = None) -> None:
        """Of the server. One that does not last must be believed by nobody."""
        if lasting is not None:
            self.world.after(lasting, lambda: self.step_clock(-seconds))
        self.server.offset += seconds
        self.steps.append((self.world.now, self.server.offset, lasting is None))

    # What it came to.

    def _running(self) -> list[Row]:
        runs = self.server.tables.rows["runs"]
        return [runs[run_id] for run_id in sorted(self.server.tables.live) if runs[run_id]["status"] == "running"]

    def _is_over(self) -> bool:
        jobs = self.server.tables.rows["jobs"].values()
        return not self.server.tables.live and all(job["next_run_at"] is None for job in jobs)

    def _judge(self) -> list[str]:
        history = self._history()
        # A failover may have a run begun twice. No reason for two commands at once.
        commands = zip(history.marks, self.truth.numbers, strict=True)
        each = [replace(mark, run_id=command) for mark, command in commands]
        found: list[Breach] = [
            *self.truth.breaches,
            *breaches(history),
            *overlapping_marks(replace(history, marks=each, splits=())),
        ]
        runs = {run.id: run for run in history.runs}
        told = [str(breach) for breach in found if not _is_a_retry_after_a_step(breach, runs)]
        return list(dict.fromkeys([*told, *self._recovered_late()]))

    def _recovered_late(self) -> Iterator[str]:
        """One lease and one heartbeat after a dead worker's last sign of life its runs are closed."""
        for run_id in self._orphans:
            run = self.server.tables.rows["runs"][run_id]
            # By a clock that may run slow.
            most = self.truth.beats[run["worker_id"]] + self.lease * 7 / 6 * FASTEST + _SLACK
            closed_at = ((run["finished_at"] or self.server.clock()) - T0) / timedelta(seconds=1) - self.server.offset
            if closed_at > most:
                yield f"run {run_id} was closed {closed_at - most:.2f} s too late after its worker's death"

    def _history(self) -> History:
        tables, now = self.server.tables, self.server.clock()
        effects = [Effect(row["run_id"], row["nominal"], row["at"]) for row in tables.rows["effects"].values()]
        return History(
            jobs=[_job(row, now) for row in tables.rows["jobs"].values()],
            runs=[_run(row) for row in tables.rows["runs"].values()],
            now=now,
            clock=self._clock(),
            marks=self.truth.marks,
            effects=effects,
            locks=[f"{lock} of {one.name}" for one in self.server.sessions.values() for lock in one.locks],
            processes=[
                str(command.task.run_id) for one in self.machines if one.guard for command in one.guard.commands
            ],
            holds=self.faults.holds,
            splits=self.splits,
            complaints=self.truth.complaints,
            changes=self.truth.changes,
            unrecorded=True,
            lease=self.lease,
        )

    def _clock(self) -> Clock:
        """Who begins while it is wrong has no other to compare it with."""
        ends = [*(at for at, _, _ in self.steps[1:]), math.inf]
        return Clock(
            tuple(
                (at, T0 + timedelta(seconds=offset), trusted or any(at <= began <= end for began in self.truth.began))
                for (at, offset, trusted), end in zip(self.steps, ends, strict=True)
            )
        )


def _is_a_retry_after_a_step(breach: Breach, runs: dict[int, Run]) -> bool:
    """The database's clock was set back since the first attempt: its nominal time lies ahead again."""
    return "before its time" in breach.rule and all(runs[run_id].attempt > 1 for run_id in breach.run_ids)


def _job(row: Row, now: datetime) -> Job:
    edition = Edition(row["schedule"], "UTC", row["anchored_at"], row["next_run_at"], row["ends_at"])
    most = row["max_running"] if row["overlap"] == "allow" else 1
    return Job(row["name"], (edition,), max_attempts=row["max_attempts"], max_running=most)


def _run(row: Row) -> Run:
    names = ("id", "kind", "trigger", "scheduled_for", "run_at", "attempt", "status", "started_at", "finished_at")
    more = ("reason", "missed_count", "missed_until")
    worker = None if row["worker_id"] is None else str(row["worker_id"])
    return Run(job=row["job_name"], worker_id=worker, **{name: row[name] for name in names + more})
