"""Whether a history keeps the promises: pure rules over rows, marks of commands, and what was left behind.

It knows no database, no process and no clock. It is handed what was read, and names each breach in words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from pgcron_runner.schedule import Schedule, parse_schedule

_TICK = timedelta(microseconds=1)
# Said again here: a checker that borrowed these from the code could never find them wrong.
_TRIED_AGAIN = frozenset({"failed", "timed_out", "lost", "interrupted"})
_NEVER_STARTED = frozenset({"queued", "skipped", "missed"})
# Marks are read from /proc/uptime, which is cut off to hundredths, and carried over to the database's clock.
_MARK_PRECISION = timedelta(seconds=0.05)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was at the end. `next_run_at` None: it has none any more, and `ends_at` bounds what was due."""

    name: str
    schedule: str
    timezone: str
    anchored_at: datetime
    next_run_at: datetime | None
    ends_at: datetime | None = None
    max_attempts: int = 1
    exclusive: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `pgcron.runs`."""

    id: int
    job: str
    kind: str
    trigger: str
    scheduled_for: datetime
    run_at: datetime
    attempt: int
    status: str
    worker_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    missed_count: int | None = None
    missed_until: datetime | None = None

    def __str__(self) -> str:
        return f"run {self.id} ({self.job}, {self.scheduled_for:%H:%M:%S}, attempt {self.attempt}, {self.status})"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a command wrote down itself: `begin`, `alive` or `end`, at a time of the boot-time clock."""

    job: str
    run_id: int
    word: str
    at: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What a SQL run committed: a row in a table without unique keys, written at `at` by the database's clock."""

    run_id: int
    nominal: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class History:
    """Everything that was read. `booted_at` is the database's time at zero of the boot-time clock."""

    jobs: Sequence[Job]
    runs: Sequence[Run]
    now: datetime
    booted_at: datetime
    marks: Sequence[Mark] = ()
    effects: Sequence[Effect] = ()
    locks: Sequence[str] = ()
    processes: Sequence[str] = ()


def breaches(history: History, *, unrecorded: bool = False) -> list[str]:
    """All broken promises, one sentence each; empty: none.

    `unrecorded`: the faults kept workers from recording ends, so a command may have come to its end and be `lost`.
    """
    return [
        *_unaccounted(history),
        *_overlapping_marks(history),
        *_overlapping_rows(history),
        *_false_marks(history, unrecorded=unrecorded),
        *_false_effects(history),
        *_wrong_attempts(history),
        *_early(history),
        *_unfinished(history),
        *(f"a lock is left: {lock}" for lock in history.locks),
        *(f"a process is left: {process}" for process in history.processes),
    ]


def changed(before: Iterable[Run], after: Iterable[Run]) -> list[str]:
    """Final rows of `before` that are not the same in `after`: final states never change."""
    later = {run.id: run for run in after}
    final = [run for run in before if run.status not in ("queued", "running")]
    return [f"{run} has become {later.get(run.id, 'nothing')}" for run in final if later.get(run.id) != run]


# Every occurrence has exactly one trail.


def _unaccounted(history: History) -> Iterator[str]:
    trails: dict[str, Counter[datetime]] = defaultdict(Counter)
    schedules = {job.name: parse_schedule(job.schedule, job.timezone, name=job.name) for job in history.jobs}
    for run in history.runs:
        if run.trigger == "schedule" and run.attempt == 1 and run.job in schedules:
            covered = list(_covered(run, schedules[run.job]))
            if run.missed_count is not None and run.missed_count != len(covered):
                yield f"{run} counts {run.missed_count} missed occurrences, but its range has {len(covered)}"
            trails[run.job].update(covered)
    for job in history.jobs:
        if (until := _until(job)) is None:
            continue
        due = set(schedules[job.name].between(job.anchored_at, until))
        found = trails[job.name]
        yield from (f"{job.name}: nothing tells of {when}" for when in sorted(due - found.keys()))
        yield from (f"{job.name}: {when} was not due" for when in sorted(found.keys() - due))
        yield from (f"{job.name}: {count} trails for {when}" for when, count in found.items() if count > 1)


def _until(job: Job) -> datetime | None:
    return job.ends_at if job.next_run_at is None else job.next_run_at - _TICK


def _covered(run: Run, schedule: Schedule) -> Iterable[datetime]:
    """The occurrences that a row speaks of: its own, or those of its range."""
    if run.missed_until is None:
        return [run.scheduled_for]
    return schedule.between(run.scheduled_for - _TICK, run.missed_until)


# Never two at once.


def _overlapping_marks(history: History) -> Iterator[str]:
    exclusive = {job.name for job in history.jobs if job.exclusive}
    spans: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mark in history.marks:
        if mark.job in exclusive:
            spans[mark.job][mark.run_id].append(mark.at)
    for job, times in spans.items():
        ordered = sorted((min(at), max(at), run_id) for run_id, at in times.items())
        for (_, end, first), (begin, _, second) in pairwise(ordered):
            if begin < end:
                yield f"{job}: runs {first} and {second} overlapped for {end - begin:.2f} s by their own marks"


def _overlapping_rows(history: History) -> Iterator[str]:
    exclusive = {job.name for job in history.jobs if job.exclusive}
    spans: dict[str, list[tuple[datetime, datetime, Run]]] = defaultdict(list)
    for run in history.runs:
        if run.job in exclusive and run.started_at is not None:
            spans[run.job].append((run.started_at, run.finished_at or history.now, run))
    for ordered in spans.values():
        ordered.sort(key=lambda span: span[0])
        for (_, end, first), (begin, _, second) in pairwise(ordered):
            if begin < end:
                yield f"{first} and {second} overlapped by their rows"


# The rows tell what happened.


def _false_marks(history: History, *, unrecorded: bool) -> Iterator[str]:
    runs = {run.id: run for run in history.runs}
    words: dict[int, Counter[str]] = defaultdict(Counter)
    for mark in history.marks:
        words[mark.run_id][mark.word] += 1
    for run_id, seen in words.items():
        if (run := runs.get(run_id)) is None:
            yield f"run {run_id} was carried out, but no row tells of it"
            continue
        if seen["begin"] != 1 or seen["end"] > 1:
            yield f"{run} began {seen['begin']} times and ended {seen['end']} times"
        if run.status in _NEVER_STARTED:
            yield f"{run} was carried out all the same"
        elif seen["end"] and run.status not in ("succeeded", "running", *(("lost",) if unrecorded else ())):
            yield f"{run} came to its end, but did not succeed"
    for run in history.runs:
        if run.kind == "shell" and run.status == "succeeded" and not words[run.id]["end"]:
            yield f"{run} did not come to its end"


def _false_effects(history: History) -> Iterator[str]:
    runs = {run.id: run for run in history.runs}
    effects: dict[int, list[Effect]] = defaultdict(list)
    for effect in history.effects:
        effects[effect.run_id].append(effect)
    for run_id, done in effects.items():
        run = runs.get(run_id)
        if run is None or run.status != "succeeded":
            yield f"{run or f'run {run_id}, which has no row,'} left its work behind"
        elif len(done) > 1:
            yield f"{run} did its work {len(done)} times"
        elif done[0].nominal != run.scheduled_for:
            yield f"{run} did its work for {done[0].nominal}"
        elif run.started_at is None or run.finished_at is None or not run.started_at <= done[0].at <= run.finished_at:
            yield f"{run} did its work at {done[0].at}, outside of {run.started_at} to {run.finished_at}"
    for run in history.runs:
        if run.kind == "sql" and run.status == "succeeded" and run.id not in effects:
            yield f"{run} has not left its work"


def _wrong_attempts(history: History) -> Iterator[str]:
    allowed = {job.name: job.max_attempts for job in history.jobs}
    occurrences: dict[tuple[str, datetime], list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.job in allowed:
            occurrences[run.job, run.scheduled_for].append(run)
    for (job, when), attempts in occurrences.items():
        attempts.sort(key=lambda run: run.attempt)
        numbers = [run.attempt for run in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{job} at {when} has the attempts {numbers}"
        if len(numbers) > allowed[job]:
            yield f"{job} at {when} had {len(numbers)} attempts of {allowed[job]}"
        yield from (f"{run} was tried again" for run in attempts[:-1] if run.status not in _TRIED_AGAIN)
        if attempts[-1].status in _TRIED_AGAIN and len(numbers) < allowed[job]:
            yield f"{attempts[-1]} was not tried again"


def _early(history: History) -> Iterator[str]:
    runs = {run.id: run for run in history.runs}
    for run in history.runs:
        if run.started_at is not None and run.started_at < run.run_at:
            yield f"{run} started {run.run_at - run.started_at} before it might"
    for mark in history.marks:
        begun_at = history.booted_at + timedelta(seconds=mark.at)
        if (known := runs.get(mark.run_id)) is not None and begun_at < known.scheduled_for - _MARK_PRECISION:
            yield f"{known} was carried out {known.scheduled_for - begun_at} before its time"


def _unfinished(history: History) -> Iterator[str]:
    for run in history.runs:
        if run.status == "running" or (run.status == "queued" and run.run_at < history.now):
            yield f"{run} is left at {history.now:%H:%M:%S}"
