"""What a history is made of: jobs with their editions, rows, marks of commands, committed effects, what was left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Edition:
    """A job from one edit of it to the next. Instants of the database's clock.

    Due is what lies after `anchored_at`, not before `not_before`, before `until` and not after `ends_at`. `until` None:
    all of it has been planned. Without a schedule nothing is due.
    """

    schedule: str | None
    timezone: str
    anchored_at: datetime
    until: datetime | None
    ends_at: datetime | None = None
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job with all its editions. `max_running` None: any number. `halts`: when no retry was made, None: for ever.

    `fenced` false: nobody can end its work from outside (a thread of the worker, a request), so only rows are judged.
    """

    name: str
    editions: tuple[Edition, ...]
    max_attempts: int = 1
    max_running: int | None = 1
    halts: tuple[tuple[datetime, datetime | None], ...] = ()
    fenced: bool = True
    prompt: bool = True

    def halted_at(self, moment: datetime) -> bool:
        return any(begin <= moment and (end is None or moment <= end) for begin, end in self.halts)


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
    backfill: bool = False
    exit_code: int | None = None
    error: str | None = None

    def __str__(self) -> str:
        return f"run {self.id} ({self.job}, {self.scheduled_for:%H:%M:%S}, attempt {self.attempt}, {self.status})"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a command wrote down itself: `begin`, `alive` or `end`, at a time of the boot-time clock."""

    job: str
    run_id: int
    word: str
    at: float
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """What a SQL run committed: a row in a table without unique keys, written at `at` by the database's clock.

    `exactly_once` false: it was no part of the transaction that recorded the run.
    """

    run_id: int
    nominal: datetime
    at: datetime
    exactly_once: bool = True


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody outside held a job's lock, by the database's clock; `since` and `until`: by the boot-time clock."""

    job: str
    begin: datetime
    end: datetime
    since: float = math.inf
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class Clock:
    """The database's clock against the boot-time clock: from `at` on it showed `zero` plus the boot time.

    `trusted` false: a step that nobody had reason to believe, since it was taken back before it was steady.
    """

    steps: tuple[tuple[float, datetime, bool], ...]

    @property
    def never_stepped(self) -> bool:
        return len(self.steps) == 1

    def reading(self, boottime: float, *, within: float = 0.0) -> datetime:
        """The latest that it has shown at that moment, or up to `within` seconds before."""
        readings = [zero + timedelta(seconds=boottime) for _, zero in self._between(boottime - within, boottime)]
        return max(readings)

    def latest_trusted(self, boottime: float) -> datetime:
        """The latest that it has shown up to that moment, steps that were taken back left out."""
        return max(
            zero + timedelta(seconds=min(end, boottime))
            for (at, zero, trusted), end in zip(self.steps, self._ends(), strict=True)
            if trusted and at <= boottime
        )

    def near_a_step(self, moment: datetime, *, seconds: float = 3.0) -> bool:
        """Whether that reading may have been taken just before or after a step, or within one that was taken back."""
        reach = timedelta(seconds=seconds)
        for (at, zero, trusted), end, before in zip(self.steps, self._ends(), [None, *self.steps], strict=False):
            shown = zero + timedelta(seconds=at)
            if before is not None:
                shown_before = before[1] + timedelta(seconds=at)
                if min(shown, shown_before) - reach <= moment <= max(shown, shown_before) + reach:
                    return True
            if not trusted and shown - reach <= moment <= zero + timedelta(seconds=end) + reach:
                return True
        return False

    def _ends(self) -> list[float]:
        return [*(at for at, _, _ in self.steps[1:]), float(10**9)]

    def _between(self, begin: float, end: float) -> Iterator[tuple[float, datetime]]:
        for (at, zero, _), until in zip(self.steps, self._ends(), strict=True):
            if at <= end and until >= begin:
                yield at, zero


@dataclass(frozen=True, slots=True)
class SplitBrain:
    """An asynchronous failover: from `begin` (what the new primary had not heard of) to `end` (the old one was ended)
    two servers gave out work, and the new one has forgotten what the old one did. On the boot-time clock.

    `forgotten`: runs that only the old primary knew of, by (id, nominal time).
    """

    begin: float
    end: float
    forgotten: frozenset[tuple[int, datetime]] = frozenset()

    def touches(self, begin: float, end: float) -> bool:
        """Whether something that lasted so long was under way meanwhile."""
        return self.begin <= end and begin <= self.end


@dataclass(frozen=True, slots=True)
class History:
    """Everything that was read. `calm_from`: from here on (database's clock) no fault was in the way any more.

    `unrecorded`: faults kept workers from recording ends, so a command may have come to its end and not have succeeded.
    `lease`: of all workers, in seconds.
    """

    jobs: Sequence[Job]
    runs: Sequence[Run]
    now: datetime
    clock: Clock
    marks: Sequence[Mark] = ()
    effects: Sequence[Effect] = ()
    locks: Sequence[str] = ()
    processes: Sequence[str] = ()
    holds: Sequence[Hold] = ()
    splits: Sequence[SplitBrain] = ()
    changes: Sequence[str] = ()
    complaints: Sequence[str] = ()
    calm_from: datetime | None = None
    late_after: timedelta = timedelta(seconds=5)
    unrecorded: bool = False
    lease: float = math.inf


@dataclass(frozen=True, slots=True)
class Breach:
    """One broken promise: which, in one sentence, and the runs that it is about."""

    rule: str
    text: str
    run_ids: tuple[int, ...] = ()
    job: str | None = None

    def __str__(self) -> str:
        return self.text
