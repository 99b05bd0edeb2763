"""Why a job ran, ran late or did not run at a time, in plain words. Pure: it has no clock and asks no database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from pgcron_runner.durations import format_duration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat, ExcludedDays, Status, Trigger
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule

_TICK = timedelta(microseconds=1)
# A start within this time of the nominal one is worth no word.
_ON_TIME = timedelta(seconds=1)
# A second of every minute is sixty occurrences; nobody reads them all.
MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What bears on a job beside its own row. `workers`: how many are alive that would take it."""

    paused: bool = False
    queue_paused: bool = False
    keep_for: timedelta = timedelta(days=30)
    workers: int = 1
    excluded: tuple[ExcludedDays, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedJob:
    """All of a job that decides when it runs."""

    name: str
    schedule: str
    timezone: str
    enabled: bool
    planned: bool
    anchored_at: datetime
    created_at: datetime
    next_run_at: datetime | None = None
    paused_until: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    problem: str | None = None
    history: str = "all"
    dst_gap: DstGap = DstGap.RUN_AFTER
    dst_repeat: DstRepeat = DstRepeat.FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRun:
    """One attempt at an occurrence, or the row that stands for missed ones."""

    id: int
    status: str
    trigger: str
    scheduled_for: datetime
    run_at: datetime
    attempt: int
    backfill: bool
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    worker: str | None
    missed_count: int | None
    missed_until: datetime | None
    cancel_requested_at: datetime | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The story of one moment. `verdict` is one word for programs: a run's status, or why there is no run.

    Those are: future, not_fired, before_made, before_edited, before_starts_at, after_ends_at, paused, disabled,
    excluded, problem, pruned, unknown, not_due, manual, after_finish.
    """

    at: datetime
    verdict: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """What was asked for: instants in [start, end), and a remark where the clock did something then."""

    start: datetime
    end: datetime
    remark: str = ""


def moments_shown(shown: datetime, length: timedelta, zone: ZoneInfo) -> list[Moment]:
    """The instants at which a clock shows a local time: one stretch, two where it is shown twice.

    For a time that the clock skips it is the second at which it goes on.
    """
    first, last = (shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == last:
        return [Moment(first, first + length)]
    if first < last:
        again = f"The clock of {zone.key} shows {_clock(shown)} twice on {shown:%Y-%m-%d}"
        passes = ((first, "first"), (last, "second"))
        return [Moment(at, at + length, f"{again}; this is the {name} pass.") for at, name in passes]
    change = _change_between(last, first, zone)
    before, after = (change - _TICK).astimezone(zone) + _TICK, change.astimezone(zone)
    remark = (
        f"The clock of {zone.key} skips {_clock(shown)} on {shown:%Y-%m-%d}: it goes from "
        f"{_clock(before.replace(tzinfo=None))} to {_clock(after.replace(tzinfo=None))}."
    )
    return [Moment(change, change + length, remark)]


def explain(
    job: ExplainedJob, moment: Moment, runs: Sequence[OccurrenceRun], now: datetime, around: Circumstances
) -> list[Explanation]:
    """The story of each occurrence in a moment, oldest first, at most `MOST`; of the moment itself where there is none.

    `runs` are the rows of the moment's occurrences and the missed rows that reach into it.
    """
    try:
        schedule = parse_schedule(
            job.schedule, job.timezone, name=job.name, dst_gap=job.dst_gap, dst_repeat=job.dst_repeat
        )
    except InvalidInput as error:
        told = (f"The job has a problem, so nothing is scheduled until it is edited: {job.problem or error}",)
        return [Explanation(moment.start, "problem", (*told, *_attempts(job, runs, now, around)))]
    story = _Story(job, schedule, now, around)
    occurrences = _occurrences(schedule, moment, runs)
    remark = (moment.remark,) if moment.remark else ()
    told_all = [story.of_occurrence(at, runs) for at in occurrences] or [story.of_no_occurrence(moment, runs)]
    return [Explanation(told.at, told.verdict, (*remark, *told.sentences)) for told in told_all]


def _occurrences(schedule: Schedule, moment: Moment, runs: Sequence[OccurrenceRun]) -> list[datetime]:
    due = islice(schedule.between(moment.start - _TICK, moment.end - _TICK), MOST)
    ran = {run.scheduled_for for run in runs if moment.start <= run.scheduled_for < moment.end}
    return sorted(ran | set(due))[:MOST]


def excluded_on(excluded: Sequence[ExcludedDays], day: date) -> ExcludedDays | None:
    """The days of a calendar that a local date falls on."""
    return next((days for days in excluded if days.first_day <= day <= days.last_day), None)


@dataclass(frozen=True, slots=True)
class _Story:
    job: ExplainedJob
    schedule: Schedule
    now: datetime
    around: Circumstances

    def of_occurrence(self, at: datetime, runs: Sequence[OccurrenceRun]) -> Explanation:
        own = [run for run in runs if run.scheduled_for == at]
        if own:
            told = (*self._no_longer_due(at, own), *_attempts(self.job, own, self.now, self.around))
            return Explanation(at, own[-1].status, (*told, *self._before_the_backfill(at, own, runs)))
        if covering := _covering(at, runs):
            return Explanation(at, Status.MISSED, (_missed(self.job, covering),))
        verdict, sentences = self._why_there_is_no_run(at)
        return Explanation(at, verdict, (f"It is due at {self._at(at)}.", *sentences) if at > self.now else sentences)

    def of_no_occurrence(self, moment: Moment, runs: Sequence[OccurrenceRun]) -> Explanation:
        sentences = [f"It was not due at {self._at(moment.start)}: its schedule {self.job.schedule.strip()!r} says no."]
        if moment.start > self.now:
            sentences = [f"It is not due at {self._at(moment.start)} by its schedule {self.job.schedule.strip()!r}."]
        if self.schedule.is_manual:
            return Explanation(moment.start, "manual", ("It is a manual job: it runs when somebody says so.",))
        if self.schedule.after_finish is not None:
            pause = format_duration(self.schedule.after_finish)
            told = f"It has no fixed times: it is due {pause} after the end of each run, and no run was due then."
            return Explanation(moment.start, "after_finish", (told, *self._next_planned()))
        sentences += self._clock_change(moment)
        before = self.schedule.prev_before(moment.start)
        after = self.schedule.next_after(moment.end - _TICK)
        sentences.append(f"The nearest time before is {self._at(before)}." if before else "There is no time before it.")
        sentences.append(f"The nearest time after is {self._at(after)}." if after else "There is no time after it.")
        if covering := _covering(moment.start, runs):
            sentences.append(f"It lies among missed times, though: {_missed(self.job, covering)}")
        elif self.job.created_at < moment.start <= self.job.anchored_at:
            sentences.append(
                f"The job was edited, enabled, paused or resumed at {self._at(self.job.anchored_at)}; "
                "if its schedule was another one before, that is not kept."
            )
        return Explanation(moment.start, "not_due", tuple(sentences))

    def _before_the_backfill(
        self, at: datetime, own: Sequence[OccurrenceRun], runs: Sequence[OccurrenceRun]
    ) -> tuple[str, ...]:
        """Why there was something to fill in, where nothing happened at the time itself."""
        if not all(run.backfill for run in own):
            return ()
        covering = _covering(at, runs)
        why = (_missed(self.job, covering),) if covering else self._why_there_is_no_run(at)[1]
        return (f"At the time itself it did not run. {why[0]}", *why[1:])

    def _clock_change(self, moment: Moment) -> tuple[str, ...]:
        """The job's own rule for skipped and repeated times, where another one would have made it due."""
        job = self.job
        for dst_gap, dst_repeat, sentence in (
            (DstGap.RUN_AFTER, job.dst_repeat, "Its dst_gap is skip: a time that the clock skips is left out."),
            (job.dst_gap, DstRepeat.BOTH, f"Its dst_repeat is {job.dst_repeat.value}: it runs on that pass only."),
        ):
            other = parse_schedule(job.schedule, job.timezone, name=job.name, dst_gap=dst_gap, dst_repeat=dst_repeat)
            if any(True for _ in other.between(moment.start - _TICK, moment.end - _TICK)):
                return (sentence,)
        return ()

    def _next_planned(self) -> tuple[str, ...]:
        following = self.job.next_run_at
        return (f"It is due next at {self._at(following)}.",) if following and self.job.planned else ()

    def _no_longer_due(self, at: datetime, own: Sequence[OccurrenceRun]) -> tuple[str, ...]:
        scheduled = any(run.trigger in (Trigger.SCHEDULE, Trigger.BACKFILL) for run in own)
        if not scheduled or self.schedule.after_finish is not None or self.schedule.next_after(at - _TICK) == at:
            return ()
        return (
            f"By its schedule of now, {self.job.schedule.strip()!r}, it would not be due then: it was edited since.",
        )

    def _why_there_is_no_run(self, at: datetime) -> tuple[str, tuple[str, ...]]:
        """A verdict and its sentences; the reason that is surest comes first."""
        job, now = self.job, self.now
        if at <= job.created_at:
            return "before_made", (f"The job was made later, at {self._at(job.created_at)}.",)
        if held := self._held(at):
            return held
        if at > now:
            return "future", (f"That is {self._in(at)}.",)
        if at <= job.anchored_at:
            sentence = (
                f"The job was edited, enabled, paused or resumed at {self._at(job.anchored_at)}. Its schedule counts "
                "from then: nothing at or before it fires any more, and what held before is not kept."
            )
            return "before_edited", (sentence, *self._pruned(at))
        if pruned := self._pruned(at):
            return "pruned", pruned
        if not job.planned or (job.next_run_at is not None and job.next_run_at <= at):
            return "not_fired", self._not_fired(at)
        if job.history == "failures":
            told = "History is kept of failures only: a run that succeeded or was skipped is removed after an hour."
            return "pruned", (told,)
        return "unknown", ("There is no row for it, and no rule that explains it: somebody may have removed the row.",)

    def _held(self, at: datetime) -> tuple[str, tuple[str, ...]] | None:
        """What the job's row says against an occurrence. All but the bounds hold from the anchor on."""
        job = self.job
        if job.starts_at is not None and at < job.starts_at:
            return "before_starts_at", (f"Its starts_at is later: {self._at(job.starts_at)}.",)
        if job.ends_at is not None and at > job.ends_at:
            return "after_ends_at", (f"Its ends_at is earlier: {self._at(job.ends_at)}.",)
        if at <= job.anchored_at:
            return None
        if job.problem is not None:
            told = f"The job has a problem, so nothing is scheduled until it is edited: {job.problem}"
            return "problem", (told,)
        since = self._at(job.anchored_at)
        if not job.enabled:
            return "disabled", (f"The job is disabled, since {since}. To go on: pgcron-runner job resume.",)
        if job.paused_until is not None and at < job.paused_until:
            return "paused", (f"The job is paused, from {since} until {self._at(job.paused_until)}.",)
        days = excluded_on(self.around.excluded, at.astimezone(check_timezone(job.timezone)).date())
        if days is not None:
            return "excluded", (f"It falls on an excluded day: {days.reason}.",)
        return None

    def _pruned(self, at: datetime) -> tuple[str, ...]:
        if at >= self.now - self.around.keep_for:
            return ()
        return (f"Runs are kept for {format_duration(self.around.keep_for)}: one of that time would be gone by now.",)

    def _not_fired(self, at: datetime) -> tuple[str, ...]:
        sentence = f"It was due {_span(self.now - at)} ago, and no worker has turned it into a run yet."
        if self.around.paused:
            return (sentence, "Everything is paused (pgcron.settings).")
        if not self.around.workers:
            return (sentence, "No worker is alive that would take it. See: pgcron-runner workers")
        return (sentence, "Workers are alive: it should be there within seconds.")

    def _at(self, instant: datetime) -> str:
        return _in_zone(instant, self.job)

    def _in(self, at: datetime) -> str:
        return f"in {_span(at - self.now)}"


def _covering(at: datetime, runs: Sequence[OccurrenceRun]) -> OccurrenceRun | None:
    return next(
        (run for run in runs if run.missed_until is not None and run.scheduled_for <= at <= run.missed_until), None
    )


def _attempts(job: ExplainedJob, runs: Sequence[OccurrenceRun], now: datetime, around: Circumstances) -> Iterator[str]:
    for run in runs:
        yield from _attempt(job, run, now, around)


def _attempt(job: ExplainedJob, run: OccurrenceRun, now: datetime, around: Circumstances) -> Iterator[str]:
    who = _who(run)
    match run.status:
        case Status.MISSED:
            yield _missed(job, run)
        case Status.SKIPPED:
            yield f"{who} was skipped: {run.reason or 'no reason is recorded'}."
        case Status.QUEUED:
            yield from _queued(job, run, now, around)
        case Status.RUNNING:
            assert run.started_at is not None
            yield f"{who} has been running for {_span(now - run.started_at)}{_on(run)}."
            yield from _lateness(job, run)
            if run.cancel_requested_at is not None:
                yield "Somebody has asked to stop it."
        case _ if run.started_at is None:
            yield f"{who} was {run.status} before it started{_because(run)}."
        case _:
            assert run.finished_at is not None
            took = _span(run.finished_at - run.started_at)
            started = f"{who} started at {_in_zone(run.started_at, job)}{_on(run)}"
            yield f"{started}: {_ended(run)} after {took}{_because(run)}."
            yield from _lateness(job, run)


def _who(run: OccurrenceRun) -> str:
    attempt = f", attempt {run.attempt}," if run.attempt > 1 else ""
    match run.trigger:
        case Trigger.MANUAL:
            return f"Run {run.id}, which somebody started by hand,"
        case Trigger.CHAIN:
            return f"Run {run.id}, which follows another job,"
        case _:
            return f"Run {run.id}{' of a backfill' if run.backfill else ''}{attempt}"


def _ended(run: OccurrenceRun) -> str:
    words = {Status.TIMED_OUT: "it timed out", Status.LOST: "it was lost", Status.SUCCEEDED: "it succeeded"}
    known = words.get(Status(run.status))
    return known or (f"it {run.status}" if run.status == Status.FAILED else f"it was {run.status}")


def _because(run: OccurrenceRun) -> str:
    error = run.error.strip().splitlines()[0].rstrip(".") if run.error and run.error.strip() else None
    parts = [run.reason, error, f"exit code {run.exit_code}" if run.exit_code else None]
    text = "; ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def _on(run: OccurrenceRun) -> str:
    return f" on worker {run.worker}" if run.worker else ""


def _missed(job: ExplainedJob, run: OccurrenceRun) -> str:
    reason = f": {run.reason}" if run.reason else ""
    if run.missed_count == 1 or run.missed_until is None:
        return f"Run {run.id} records it as missed{reason}."
    first, last = _in_zone(run.scheduled_for, job), _in_zone(run.missed_until, job)
    return f"Run {run.id} records it as missed, one of {run.missed_count} times from {first} to {last}{reason}."


def _queued(job: ExplainedJob, run: OccurrenceRun, now: datetime, around: Circumstances) -> Iterator[str]:
    if run.run_at > now:
        why = "after the pause before another attempt" if run.attempt > 1 else "after its jitter"
        at = _in_zone(run.run_at, job)
        yield f"{_who(run)} is queued and may start at {at}, in {_span(run.run_at - now)}, {why}."
        return
    yield f"{_who(run)} is queued and has waited for {_span(now - max(run.run_at, run.created_at))}."
    if around.paused:
        yield "Everything is paused (pgcron.settings)."
    elif around.queue_paused:
        yield "Its queue is paused."
    elif not around.workers:
        yield "No worker is alive that would take it. See: pgcron-runner workers"
    else:
        yield "It waits for a free slot of a worker, or for another run of the job to end."


def _lateness(job: ExplainedJob, run: OccurrenceRun) -> Iterator[str]:
    """How late it started and what that was made of; nothing where it was on time, or by hand."""
    assert run.started_at is not None
    late = run.started_at - run.scheduled_for
    if late <= _ON_TIME or run.trigger not in (Trigger.SCHEDULE, Trigger.RETRY) or run.backfill:
        return
    planned = max(run.run_at - run.scheduled_for, timedelta(0))
    absent = max(run.created_at - run.run_at, timedelta(0))
    waited = run.started_at - max(run.run_at, run.created_at)
    parts = []
    if planned > timedelta(0):
        parts.append(f"{_span(planned)} {'for the attempts before it' if run.attempt > 1 else 'of jitter'}")
    if absent > _ON_TIME:
        parts.append(f"{_span(absent)} until a worker was there to fire it (caught up)")
    if waited > _ON_TIME:
        parts.append(f"{_span(waited)} waiting for a free slot or an earlier run")
    yield f"That is {_span(late)} after its time{': ' + ', '.join(parts) if parts else ''}."


def _in_zone(instant: datetime, job: ExplainedJob) -> str:
    try:
        zone = check_timezone(job.timezone)
    except InvalidInput:
        zone = check_timezone("UTC")
    there = instant.astimezone(zone).replace(microsecond=0)
    return there.isoformat(sep=" ").replace("+00:00", "Z") if zone.key == "UTC" else there.isoformat(sep=" ")


def _span(length: timedelta) -> str:
    if length < timedelta(seconds=1):
        return f"{max(length, timedelta(0)) // timedelta(milliseconds=1)}ms"
    # Who is told of days does not ask for seconds.
    unit = 3600 if length >= timedelta(days=1) else 60 if length >= timedelta(hours=1) else 1
    return format_duration(timedelta(seconds=round(length.total_seconds() / unit) * unit))


def _clock(shown: datetime) -> str:
    return f"{shown:%H:%M:%S}" if shown.second else f"{shown:%H:%M}"


def _change_between(early: datetime, late: datetime, zone: ZoneInfo) -> datetime:
    """The instant, to the second, at which the offset changes."""
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        middle = middle if middle > early else early + timedelta(seconds=1)
        early, late = (middle, late) if middle.astimezone(zone).utcoffset() == before else (early, middle)
    return late
