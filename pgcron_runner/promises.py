"""Whether a history keeps the promises: pure checks of rows against the schedule and against independent marks.

It knows no database and no process: it is handed what was read, and answers with verdicts in words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pgcron_runner.model import Kind, Status, Trigger
from pgcron_runner.schedule import parse_schedule

_TICK = timedelta(microseconds=1)
# Of a history that is broken all through, the first few faults tell as much as all of them.
_FAULTS_TOLD = 5
# Said again here: a checker that borrowed the rule could never find it wrong.
_TRIED_AGAIN = frozenset({Status.FAILED, Status.TIMED_OUT, Status.LOST, Status.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class CountedJob:
    """A job and the time that counts: its occurrences after `anchored_at` and before `until` have fallen due."""

    name: str
    schedule: str
    timezone: str
    anchored_at: datetime
    until: datetime
    exclusive: bool = True
    max_attempts: int = 1

    def occurrences(self) -> list[datetime]:
        """What fell due, worked out from the schedule alone."""
        schedule = parse_schedule(self.schedule, self.timezone, name=self.name)
        return list(schedule.between(self.anchored_at, self.until - _TICK))


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of `pgcron.runs`. `worker` is the worker's name, None before a claim."""

    id: int
    job_name: str
    kind: Kind
    trigger: Trigger
    scheduled_for: datetime
    attempt: int
    status: Status
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    error: str | None = None
    missed_count: int | None = None
    missed_until: datetime | None = None


class Moment(StrEnum):
    """What a mark tells: the command of a run began, ended by itself, or was seen to be gone after a kill."""

    BEGIN = "begin"
    END = "end"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a command wrote down by itself, or (`gone`) who watched it. Marks come in the order of writing.

    `session` is the session of processes that the command has to itself.
    """

    moment: Moment
    job_name: str
    run_id: int
    session: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise: whether it was kept, the figures it rests on, and the first faults in words."""

    promise: str
    figures: str
    faults: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        return not self.faults


def check_occurrences(jobs: Iterable[CountedJob], runs: Sequence[RunRow]) -> Verdict:
    """Every occurrence that fell due has exactly one trail, and nothing ran that was not due."""
    faults: list[str] = []
    expected = 0
    for job in jobs:
        due = job.occurrences()
        expected += len(due)
        trails = Counter(_trails(job, runs))
        faults += [f"{job.name}: nothing tells of {_clock(when)}" for when in due if not trails[when]]
        faults += [f"{job.name}: {count} trails for {_clock(when)}" for when, count in trails.items() if count > 1]
        faults += [f"{job.name}: {_clock(when)} was not due" for when in sorted(trails.keys() - set(due))]
    planned = [run for run in runs if run.trigger is Trigger.SCHEDULE]
    skipped = sum(run.status is Status.SKIPPED for run in planned)
    missed = sum(run.missed_count or 0 for run in planned)
    begun = sum(run.status not in (Status.SKIPPED, Status.MISSED) for run in planned)
    figures = f"{expected} due: {begun} started, {skipped} skipped, {missed} missed"
    return _verdict("every occurrence accounted for once", figures, faults)


def _trails(job: CountedJob, runs: Iterable[RunRow]) -> list[datetime]:
    """Each occurrence that a scheduled row speaks of, as often as one does; a missed range is taken at its count."""
    found: list[datetime] = []
    for run in runs:
        if run.job_name != job.name or run.trigger is not Trigger.SCHEDULE:
            continue
        if run.missed_until is None:
            found.append(run.scheduled_for)
            continue
        schedule = parse_schedule(job.schedule, job.timezone, name=job.name)
        covered = list(schedule.between(run.scheduled_for - _TICK, run.missed_until))
        found += covered[: run.missed_count]
    return found


def check_attempts(jobs: Iterable[CountedJob], runs: Sequence[RunRow]) -> Verdict:
    """Attempts are numbered without a gap; each that failed has its next while attempts remain, no other has one."""
    allowed = {job.name: job.max_attempts for job in jobs}
    by_occurrence: dict[tuple[str, datetime], list[RunRow]] = defaultdict(list)
    for run in runs:
        by_occurrence[run.job_name, run.scheduled_for].append(run)
    faults: list[str] = []
    for (job, when), attempts in by_occurrence.items():
        attempts.sort(key=lambda run: run.attempt)
        if problem := _wrong_attempts(attempts, allowed.get(job, 1)):
            faults.append(f"{job} at {_clock(when)}: {problem}")
    failed = sum(run.status in _TRIED_AGAIN for run in runs)
    retries = sum(run.trigger is Trigger.RETRY for run in runs)
    figures = f"{failed} failed or lost, {retries} retried"
    return _verdict("failures retried as the job says", figures, faults)


def _wrong_attempts(attempts: Sequence[RunRow], allowed: int) -> str | None:
    numbers = [run.attempt for run in attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        return f"attempts {', '.join(map(str, numbers))}"
    if len(numbers) > allowed:
        return f"{len(numbers)} attempts of {allowed}"
    for run in attempts[:-1]:
        if run.status not in _TRIED_AGAIN:
            return f"tried again after attempt {run.attempt} had {run.status}"
    last = attempts[-1]
    return f"not tried again after attempt {last.attempt} had {last.status}" if _owed(last, allowed) else None


def _owed(run: RunRow, allowed: int) -> bool:
    return run.status in _TRIED_AGAIN and run.attempt < allowed


def check_commands(runs: Iterable[RunRow], marks: Sequence[Mark]) -> Verdict:
    """What the commands wrote down agrees with the rows: what succeeded began and ended, what was skipped never."""
    shell = {run.id: run for run in runs if run.kind is Kind.SHELL}
    begun, ended = _count(marks, Moment.BEGIN), _count(marks, Moment.END)
    faults = [f"run {run_id} began {count} times" for run_id, count in begun.items() if count > 1]
    faults += [f"run {run_id} ended {count} times" for run_id, count in ended.items() if count > begun[run_id]]
    faults += [f"run {run_id} began, but no row tells of it" for run_id in begun if run_id not in shell]
    gone = _count(marks, Moment.GONE).keys() - ended.keys()
    faults += [
        f"run {run_id} began, and nothing tells of its end" for run_id in begun if run_id not in ended.keys() | gone
    ]
    for run in shell.values():
        if run.status is Status.SUCCEEDED and not (begun[run.id] and ended[run.id]):
            faults.append(f"run {run.id} of {run.job_name} succeeded, but did not begin and end")
        if run.started_at is None and begun[run.id]:
            faults.append(f"run {run.id} of {run.job_name} began, but is {run.status}")
    figures = f"{begun.total()} began, {ended.total()} ended, {len(gone)} killed"
    return _verdict("each command ran as history says", figures, faults)


def _count(marks: Iterable[Mark], moment: Moment) -> Counter[int]:
    return Counter(mark.run_id for mark in marks if mark.moment is moment)


def check_overlaps(jobs: Iterable[CountedJob], marks: Iterable[Mark]) -> Verdict:
    """By the marks alone: no run of an exclusive job began before the one before it had ended or was gone."""
    exclusive = {job.name for job in jobs if job.exclusive}
    going: dict[str, int] = {}
    faults: list[str] = []
    intervals = 0
    for mark in marks:
        if mark.job_name not in exclusive:
            continue
        if mark.moment is not Moment.BEGIN:
            if going.get(mark.job_name) == mark.run_id:
                del going[mark.job_name]
            continue
        intervals += 1
        if mark.job_name in going:
            faults.append(f"{mark.job_name}: run {mark.run_id} began while run {going[mark.job_name]} was going")
        going[mark.job_name] = mark.run_id
    figures = f"{intervals} stretches of work by their marks"
    return _verdict("never two runs of one job at once", figures, faults)


def check_sql_work(runs: Iterable[RunRow], work: Iterable[int]) -> Verdict:
    """`work` is the run id in each row that SQL runs have committed: one for each that succeeded, none for others."""
    done = Counter(work)
    sql = {run.id: run for run in runs if run.kind is Kind.SQL}
    succeeded = {run_id for run_id, run in sql.items() if run.status is Status.SUCCEEDED}
    faults = [f"run {run_id} succeeded without its work" for run_id in sorted(succeeded - done.keys())]
    faults += [f"run {run_id} did its work {count} times" for run_id, count in done.items() if count > 1]
    for run_id in sorted(done.keys() - succeeded):
        status = sql[run_id].status if run_id in sql else "not in the history"
        faults.append(f"run {run_id} is {status}, but its work is there")
    figures = f"{len(succeeded)} succeeded, {done.total()} rows of work"
    return _verdict("SQL work once per succeeded run", figures, faults)


def check_nothing_open(runs: Sequence[RunRow], workers: Iterable[tuple[str, str | None]]) -> Verdict:
    """At the end no run is queued or running, and each worker's row says why it ended (name, reason)."""
    open_runs = [run for run in runs if not run.status.is_final]
    faults = [f"run {run.id} of {run.job_name} is still {run.status}" for run in open_runs]
    ended = list(workers)
    faults += [f"{name} has not ended" for name, reason in ended if reason is None]
    reasons = Counter(reason for _, reason in ended if reason)
    ends = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    figures = f"{len(open_runs)} of {len(runs)} open; workers: {ends or 'none'}"
    return _verdict("no run left queued or running", figures, faults)


def check_machine(processes: Collection[str], folders: Collection[str]) -> Verdict:
    """Nothing is left on this machine: descriptions of processes that still live, folders that still exist."""
    faults = [f"still alive: {process}" for process in processes] + [f"still there: {path}" for path in folders]
    return _verdict("nothing left on this machine", f"{len(processes)} processes, {len(folders)} folders", faults)


def _verdict(promise: str, figures: str, faults: Sequence[str]) -> Verdict:
    told = faults[:_FAULTS_TOLD]
    more = [f"and {len(faults) - len(told)} more"] if len(faults) > len(told) else []
    return Verdict(promise, figures, (*told, *more))


_clock: Callable[[datetime], str] = "{:%H:%M:%S} UTC".format
