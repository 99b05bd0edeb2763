"""What a due job turns into: decisions on catch-up, overlap and the next time. Pure: it has no clock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import islice

from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import CatchUp, DstRepeat, DueJob, ExcludedDays, Overlap, Status
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule

# With catch-up `skip`, an occurrence found this late still counts as on time: a restart of all workers takes less.
ON_TIME = timedelta(seconds=60)
_TICK = timedelta(microseconds=1)
_NOBODY_THERE = "no worker was there to start it in time", "no worker was there to start these {count} in time"
_WAS_HELD = "it fell due while the job was paused", "these {count} fell due while the job was paused"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A row to be written: status queued, skipped or missed. A missed one stands for `missed_count` occurrences."""

    job_id: int
    scheduled_for: datetime
    run_at: datetime
    status: Status
    reason: str | None = None
    missed_count: int | None = None
    missed_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What firing one job comes to. `next_run_at` None: never again. `replace` are runs to be stopped first.

    `fired_local` is the local nominal time of the newest occurrence that is now accounted for, None: there was none.
    """

    job_id: int
    runs: tuple[PlannedRun, ...]
    next_run_at: datetime | None
    problem: str | None = None
    replace: tuple[int, ...] = ()
    fired_local: datetime | None = None


def plan_job(job: DueJob, now: datetime) -> Plan:
    """The plan for a due job at `now` (the database's clock). What a user wrote wrongly is a `problem`."""
    try:
        schedule = parse_schedule(
            job.schedule, job.timezone, name=job.name, dst_gap=job.dst_gap, dst_repeat=job.dst_repeat
        )
    except InvalidInput as error:
        return Plan(job.id, (), None, problem=str(error))
    if schedule.after_finish is not None and job.planned:
        return _plan_after_finish(job, schedule.after_finish, now)
    after = _after_what_has_fired(job, schedule, _nothing_at_or_before(job, now))
    until = now if job.ends_at is None else min(now, job.ends_at)
    runs, replace = _due_runs(job, schedule, after, until, now) if after < until else ((), ())
    fired_local = max(run.missed_until or run.scheduled_for for run in runs) if runs else None
    return Plan(
        job.id,
        runs,
        _next_run_at(job, schedule, max(after, now)),
        replace=replace,
        fired_local=None if fired_local is None else _local(job, fired_local),
    )


def make_up(job: DueJob, since: datetime, until: datetime, now: datetime) -> Plan:
    """The plan for what fell due in (since, until], while the job was held, by its own catch-up rule.

    What has fallen due since then is accounted for, and counts as the latest. Only `runs` and `replace` are set.
    Raises InvalidInput where the schedule cannot be read.
    """
    schedule = parse_schedule(job.schedule, job.timezone, name=job.name, dst_gap=job.dst_gap, dst_repeat=job.dst_repeat)
    after = since if job.starts_at is None else max(since, job.starts_at - _TICK)
    until, now_or_end = (at if job.ends_at is None else min(at, job.ends_at) for at in (until, now))
    if after >= until:
        return Plan(job.id, (), None)
    chosen = [at for at in _caught_up(job, schedule, after, now_or_end, now) if at <= until]
    missed = _missed(job, schedule, after, until, chosen, _WAS_HELD)
    runs, replace = _rows(job, chosen)
    return Plan(job.id, (*missed, *runs), None, replace=replace)


def _plan_after_finish(job: DueJob, pause: timedelta, now: datetime) -> Plan:
    """A schedule that counts from the end of the last run: nobody need tell it of that end.

    While a run is live the next one is at least a whole pause away, so it is enough to look again then.
    """
    due = job.next_run_at
    # An end that lies ahead was written while the database's clock was wrong, and tells nothing.
    if job.last_finished_at is not None and job.last_finished_at <= now:
        due = max(due, job.last_finished_at + pause)
    runs: tuple[PlannedRun, ...] = ()
    if job.running_run_ids or job.queued_run_id is not None:
        following = now + pause
    elif due > now:
        following = due
    else:
        following, runs = now + pause, (PlannedRun(job.id, due, due + _delay(job), Status.QUEUED),)
    over = job.ends_at is not None and following > job.ends_at
    return Plan(job.id, runs, None if over else following)


def _goes_on(job: DueJob) -> bool:
    """Whether `next_run_at` is what this schedule and this zone data say: not after an edit, nor with other data."""
    return job.planned and not job.other_zone_data


def _nothing_at_or_before(job: DueJob, now: datetime) -> datetime:
    """The instant after which occurrences count: just before the planned time, else where all is accounted for."""
    # Only a clock that was wrong can have accounted for what lies ahead.
    accounted = job.anchored_at if job.fired_until is None else max(job.anchored_at, min(job.fired_until, now))
    after = job.next_run_at - _TICK if _goes_on(job) else accounted
    # starts_at itself may be an occurrence; a pause until nine lets nine o'clock through.
    bounds = [bound - _TICK for bound in (job.starts_at, job.paused_until) if bound is not None]
    return max([after, *bounds])


def _after_what_has_fired(job: DueJob, schedule: Schedule, after: datetime) -> datetime:
    """Past what has fired already, where other zone data puts the same local times at later instants."""
    if _goes_on(job) or job.fired_local is None:
        return after
    while (following := schedule.next_after(after)) is not None and _has_fired(job, schedule, following):
        after = following
    return after


def _has_fired(job: DueJob, schedule: Schedule, occurrence: datetime) -> bool:
    """By its local time. What comes every so often goes on by real time, and a second pass may be one of its own."""
    assert job.fired_local is not None
    there = occurrence.astimezone(check_timezone(job.timezone))
    if there.fold and job.dst_repeat is DstRepeat.BOTH:
        return False
    return there.replace(tzinfo=None) <= job.fired_local and schedule.is_fixed(occurrence)


def _local(job: DueJob, instant: datetime) -> datetime:
    return instant.astimezone(check_timezone(job.timezone)).replace(tzinfo=None)


def _next_run_at(job: DueJob, schedule: Schedule, after: datetime) -> datetime | None:
    following = schedule.next_after(after)
    return None if following is None or (job.ends_at is not None and following > job.ends_at) else following


def _due_runs(
    job: DueJob, schedule: Schedule, after: datetime, until: datetime, now: datetime
) -> tuple[tuple[PlannedRun, ...], tuple[int, ...]]:
    """Rows for all occurrences in (after, until]: those to run, the excluded, one `missed` row for the rest."""
    chosen = _caught_up(job, schedule, after, until, now)
    missed = _missed(job, schedule, after, until, chosen)
    runs, replace = _rows(job, chosen)
    return (*missed, *runs), replace


def _rows(job: DueJob, chosen: Sequence[datetime]) -> tuple[tuple[PlannedRun, ...], tuple[int, ...]]:
    """A row for each of these occurrences, excluded or not, and the runs to be stopped first."""
    excluded = {occurrence: days for occurrence in chosen if (days := _exclusion(job, occurrence)) is not None}
    runs, replace = _overlapped(job, [occurrence for occurrence in chosen if occurrence not in excluded])
    skipped = [PlannedRun(job.id, at, at, Status.SKIPPED, days.reason) for at, days in excluded.items()]
    return (*skipped, *runs), replace


def _caught_up(job: DueJob, schedule: Schedule, after: datetime, until: datetime, now: datetime) -> list[datetime]:
    """The occurrences that get a row of their own, oldest first: those to run, and excluded ones in their place.

    The newest one is found directly, never by a walk from the last run.
    """
    window = job.catch_up_window or (ON_TIME if job.catch_up is CatchUp.SKIP else None)
    # The window is inclusive: an occurrence exactly as old as it still counts.
    oldest = after if window is None else max(after, now - window - _TICK)
    if job.catch_up is CatchUp.ALL:
        return list(islice(schedule.between(oldest, until), job.catch_up_limit))
    latest = schedule.prev_before(until + _TICK)
    if latest is None or latest <= oldest:
        return []
    days = _exclusion(job, latest)
    earlier = None if days is None else _latest_wanted(job, schedule, latest)
    return [latest] if earlier is None or earlier <= oldest else [earlier, latest]


def _latest_wanted(job: DueJob, schedule: Schedule, before: datetime) -> datetime | None:
    """The last occurrence before an excluded one that is not excluded itself; whole ranges are passed over at once."""
    zone = check_timezone(job.timezone)
    latest: datetime | None = before
    while latest is not None and (days := _exclusion(job, latest)) is not None:
        midnight = datetime.combine(days.first_day, time.min, tzinfo=zone)
        latest = schedule.prev_before(min(midnight.astimezone(UTC), latest))
    return latest


def _exclusion(job: DueJob, occurrence: datetime) -> ExcludedDays | None:
    """The days of a calendar that an occurrence falls on, by its local date."""
    if not job.excluded:
        return None
    day = _local(job, occurrence).date()
    return next((days for days in job.excluded if days.first_day <= day <= days.last_day), None)


def _missed(
    job: DueJob,
    schedule: Schedule,
    after: datetime,
    until: datetime,
    chosen: Sequence[datetime],
    why: tuple[str, str] = _NOBODY_THERE,
) -> list[PlannedRun]:
    """At most one row, for all in (after, until] but the chosen; `why` says it of one, and of several."""
    if _goes_on(job) and len(chosen) == 1 and chosen[0] == job.next_run_at:
        return []  # the everyday case: the planned time itself, and nothing else has come due since
    count = schedule.count_between(after, until) - len(chosen)
    if count <= 0:
        return []
    taken = set(chosen)
    first, last = schedule.next_after(after), schedule.prev_before(until + _TICK)
    while first in taken:
        first = schedule.next_after(first)
    while last in taken:
        last = schedule.prev_before(last)
    assert first is not None
    assert last is not None
    reason = why[0] if count == 1 else why[1].format(count=count)
    return [PlannedRun(job.id, first, first, Status.MISSED, reason, count, last)]


def _overlapped(job: DueJob, wanted: Sequence[datetime]) -> tuple[list[PlannedRun], tuple[int, ...]]:
    """Applies the overlap rule to the occurrences to run, in their order."""
    runs: list[PlannedRun] = []
    running = job.running_run_ids[0] if job.running_run_ids else None
    queued: int | str | None = job.queued_run_id
    places = job.catch_up_limit - job.queued_count
    for occurrence in wanted:
        reason = _in_the_way(job, running, queued, places)
        if reason is None:
            runs.append(PlannedRun(job.id, occurrence, occurrence + _delay(job), Status.QUEUED))
            queued = queued or f"of {occurrence:%Y-%m-%d %H:%M:%SZ}"
            places -= 1
        else:
            runs.append(PlannedRun(job.id, occurrence, occurrence, Status.SKIPPED, reason))
    replaced = job.overlap is Overlap.REPLACE and any(run.status is Status.QUEUED for run in runs)
    return runs, job.running_run_ids if replaced else ()


def _in_the_way(job: DueJob, running: int | None, queued: int | str | None, places: int) -> str | None:
    """Why an occurrence must be skipped; None: it need not."""
    match job.overlap:
        case Overlap.ALLOW:
            return None
        case Overlap.QUEUE_ALL:
            return (
                None if places > 0 else f"overlap: {job.catch_up_limit} runs are queued already, from run {queued} on"
            )
        case Overlap.QUEUE_ONE | Overlap.REPLACE:
            return None if queued is None else f"overlap: run {queued} is still queued"
        case Overlap.SKIP:
            if running is not None:
                return f"overlap: run {running} is still running"
            return None if queued is None else f"overlap: run {queued} is still queued"


def _delay(job: DueJob) -> timedelta:
    """The job's own share of its jitter: always the same for one job, spread evenly over jobs."""
    if job.jitter <= timedelta(0):
        return timedelta(0)
    share = int.from_bytes(hashlib.sha256(job.name.encode()).digest()[:8]) / 2**64
    return timedelta(seconds=round(job.jitter.total_seconds() * share, 3))
