"""The verdict on a time: what ran, or the reason why nothing did. The surest reason is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice

from pgcron_runner.durations import format_duration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.explain.attempts import attempts_told, in_zone, missed_told, span
from pgcron_runner.explain.values import Circumstances, ExplainedJob, Explanation, Moment, OccurrenceRun
from pgcron_runner.model import DstGap, DstRepeat, ExcludedDays, Status, Trigger
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule

_TICK = timedelta(microseconds=1)
# A second of every minute is sixty occurrences; nobody reads them all.
MOST = 10


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
        return [Explanation(moment.start, "problem", (*told, *attempts_told(job, runs, now, around)))]
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
            told = (*self._no_longer_due(at, own), *attempts_told(self.job, own, self.now, self.around))
            return Explanation(at, own[-1].status, (*told, *self._before_the_backfill(at, own, runs)))
        if covering := _covering(at, runs):
            return Explanation(at, Status.MISSED, (missed_told(self.job, covering),))
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
            sentences.append(f"It lies among missed times, though: {missed_told(self.job, covering)}")
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
        why = (missed_told(self.job, covering),) if covering else self._why_there_is_no_run(at)[1]
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
            told = f"The job is disabled, since {since}. To go on: pgcron-runner job resume."
            return "disabled", (told, *self._can_be_made_up(at))
        if job.paused_until is not None and at < job.paused_until:
            is_or_was = "is" if job.paused_until > self.now else "was"
            told = f"The job {is_or_was} paused, from {since} until {self._at(job.paused_until)}."
            return "paused", (told, *self._can_be_made_up(at))
        days = excluded_on(self.around.excluded, at.astimezone(check_timezone(job.timezone)).date())
        if days is not None:
            return "excluded", (f"It falls on an excluded day: {days.reason}.",)
        return None

    def _can_be_made_up(self, at: datetime) -> tuple[str, ...]:
        return ("job resume --catch-up makes up for it.",) if at <= self.now else ()

    def _pruned(self, at: datetime) -> tuple[str, ...]:
        if at >= self.now - self.around.keep_for:
            return ()
        return (f"Runs are kept for {format_duration(self.around.keep_for)}: one of that time would be gone by now.",)

    def _not_fired(self, at: datetime) -> tuple[str, ...]:
        sentence = f"It was due {span(self.now - at)} ago, and no worker has turned it into a run yet."
        if self.around.paused:
            return (sentence, "Everything is paused (pgcron.settings).")
        if not self.around.workers:
            return (sentence, "No worker is alive that would take it. See: pgcron-runner workers")
        return (sentence, "Workers are alive: it should be there within seconds.")

    def _at(self, instant: datetime) -> str:
        return in_zone(instant, self.job)

    def _in(self, at: datetime) -> str:
        return f"in {span(at - self.now)}"


def _covering(at: datetime, runs: Sequence[OccurrenceRun]) -> OccurrenceRun | None:
    return next(
        (run for run in runs if run.missed_until is not None and run.scheduled_for <= at <= run.missed_until), None
    )
