"""When jobs are due, as the rules ask it; answers are kept, since thousands of jobs share a few schedules."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo

from pgcron_runner.check.values import Job
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule
from pgcron_runner.schedule.timeline import EPOCH, Change, changes

_SECOND: Final = timedelta(seconds=1)
_YEAR: Final = timedelta(days=366)
_WEEK: Final = timedelta(days=7)
# A daily job's week, an hourly one's, and the first hours of whatever is due more often.
_MOST: Final = 200
_LOOK_AHEAD: Final = 12
_FIXED: Final = re.compile("@(at|daily|midnight|weekly|monthly|yearly|annually)", re.IGNORECASE)


def schedule_of(job: Job, *, gap: DstGap | None = None, repeat: DstRepeat | None = None) -> Schedule | None:
    """None where it cannot be read, which a rule of its own tells."""
    try:
        return parse_schedule(
            job.schedule,
            job.timezone,
            name=job.name,
            dst_gap=gap or DstGap(job.dst_gap),
            dst_repeat=repeat or DstRepeat(job.dst_repeat),
        )
    except InvalidInput:
        return None


def trouble_of(job: Job) -> str | None:
    """Why a schedule cannot be read."""
    try:
        parse_schedule(job.schedule, job.timezone, name=job.name)
    except InvalidInput as error:
        return str(error)
    return None


def cron_lines(job: Job) -> list[list[str]]:
    """The cron lines as five fields each; macros and intervals are left out."""
    lines = (line.lower().split() for line in job.schedule.splitlines())
    return [fields[-5:] for fields in lines if len(fields) in (5, 6) and not fields[0].startswith("@")]


def interval_of(job: Job, now: datetime) -> timedelta | None:
    """The shortest time between two of the next occurrences; None: there are no two."""
    schedule = schedule_of(job)
    if schedule is None:
        return None
    return schedule.after_finish or _interval(schedule, now)


@lru_cache(maxsize=20_000)
def _interval(schedule: Schedule, now: datetime) -> timedelta | None:
    times = list(islice(schedule.between(now, now + 4 * _YEAR), _LOOK_AHEAD))
    return min((later - earlier for earlier, later in pairwise(times)), default=None)


def in_gap(job: Job, now: datetime) -> datetime | None:
    """The first change of the clock within a year that jumps over a fixed time of the job."""
    for change in _changes_of(job, now):
        if change.after > change.before:
            there, moved = EPOCH + timedelta(seconds=change.at), timedelta(minutes=1)
            made_up, left_out = (_due(job, there - _SECOND, there + moved, gap=gap) for gap in DstGap)
            if made_up != left_out:
                return there
    return None


def in_repeat(job: Job, now: datetime) -> datetime | None:
    """The first change of the clock within a year that shows a fixed time of the job twice."""
    for change in _changes_of(job, now):
        if change.after < change.before:
            there, length = EPOCH + timedelta(seconds=change.at), timedelta(seconds=change.before - change.after)
            start, end = there - length - _SECOND, there + length - _SECOND
            once, both = (_due(job, start, end, repeat=repeat) for repeat in (DstRepeat.FIRST, DstRepeat.BOTH))
            if once != both:
                return there
    return None


def _due(
    job: Job, start: datetime, end: datetime, *, gap: DstGap | None = None, repeat: DstRepeat | None = None
) -> list[datetime]:
    schedule = schedule_of(job, gap=gap, repeat=repeat)
    return list(schedule.between(start, end)) if schedule else []


def _changes_of(job: Job, now: datetime) -> tuple[Change, ...]:
    # What comes every so often, or at every hour, goes on through a change of the clock.
    fixed = any(minute[0] != "*" and hour[0] != "*" for minute, hour, *_ in cron_lines(job))
    if not fixed and not _FIXED.search(job.schedule):
        return ()
    try:
        return _changes(check_timezone(job.timezone), now)
    except InvalidInput:
        return ()


@lru_cache(maxsize=1_000)
def _changes(zone: ZoneInfo, now: datetime) -> tuple[Change, ...]:
    start = (now - EPOCH) // _SECOND
    return tuple(changes(zone, start, start + _YEAR // _SECOND))


@lru_cache(maxsize=20_000)
def starts_by_minute(schedule: Schedule, now: datetime) -> Counter[int]:
    """How many starts of the next week fall on each minute of the hour; of very many only the first are counted."""
    return Counter(start.minute for start in islice(schedule.between(now, now + _WEEK), _MOST))
