"""2: in which zone a schedule is read, and what changes of the clock do to it."""

from __future__ import annotations

import re
from dataclasses import replace
from zoneinfo import ZoneInfo

from pgcron_runner.check.rules import rule
from pgcron_runner.check.times import cron_lines, in_gap, in_repeat, trouble_of
from pgcron_runner.check.values import Case
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import zone_note

_UTC = ("UTC", "Etc/UTC")
_WORKING_HOURS = range(6, 21)


@rule("PGC201", "zone-missing")
def zone_missing(case: Case) -> str | None:
    """A job does not say its time zone.

    Without one, 9 o'clock is whatever the host or the database takes for it, and moves with the next server.

    Fix: name the zone of the people or systems that the time is meant for, such as timezone = "Europe/Berlin".
    """
    return None if case.job.timezone.strip() else "it does not say its time zone"


@rule("PGC202", "utc-by-habit")
def utc_by_habit(case: Case) -> str | None:
    """A job with a time of people, working hours or days of the week or month, is read in UTC.

    Nobody works in UTC. At 9 UTC it is 10 or 11 in Berlin, by the season, and 1 or 2 at night in Seattle; a day of the
    week or month begins and ends hours off.

    Fix: name the zone of those who wait for it; where machines alone do, say so in check_ignore, with the reason.
    """
    if case.job.timezone not in _UTC:
        return None
    for _, hour, day, _, weekday in cron_lines(case.job):
        hours = re.fullmatch(r"\d+(,\d+)*", hour)
        if hours and (
            any(int(part) in _WORKING_HOURS for part in hour.split(",")) or day not in "*?" or weekday not in "*?"
        ):
            return f"{' '.join(case.job.schedule.split())} looks like a time of people, but is read in UTC"
    return None


@rule("PGC203", "zone-abbreviation")
def zone_abbreviation(case: Case) -> str | None:
    """A time zone is an abbreviation, or a fixed offset in disguise.

    CST is Chicago, Shanghai or Havana; EST never has summer time; Etc/GMT+5 lies five hours behind UTC.

    Fix: name a place, such as America/New_York, which knows its summer time.
    """
    zone = case.job.timezone
    if not zone or zone in _UTC:
        return None
    if note := zone_note(zone):
        return note
    return None if "/" in zone else f"{zone} is an abbreviation"


@rule("PGC204", "not-schedulable")
def not_schedulable(case: Case) -> str | None:
    """A schedule or zone cannot be read, so the job never runs.

    In the database such a job has a `problem`.

    Fix: ask pgcron-runner next 'SCHEDULE' --timezone ZONE until it shows the times that you mean.
    """
    # What is wrong with a zone that is missing or an abbreviation, rules of their own say.
    known = "/" in case.job.timezone
    return trouble_of(case.job if known else replace(case.job, timezone="UTC"))


@rule("PGC211", "clock-gap")
def clock_gap(case: Case) -> str | None:
    """A fixed time is one that the clock jumps over when summer time begins.

    On that day it runs at the first instant after the gap, perhaps at the same time as others.

    Fix: move it out of the hour that is left out; or say dst_gap = "skip"; or leave the rule out in check_ignore.
    """
    if case.job.dst_gap != DstGap.RUN_AFTER or (at := in_gap(case.job, case.now)) is None:
        return None
    there = at.astimezone(ZoneInfo(case.job.timezone))
    return f"on {there:%Y-%m-%d} its time is skipped by the clock; it runs at {there:%H:%M}"


@rule("PGC212", "clock-repeat")
def clock_repeat(case: Case) -> str | None:
    """A fixed time is one that the clock shows twice when summer time ends.

    On that day it runs the first time only: 25 hours after the day before, or an hour earlier than somebody expects.

    Fix: move it out of the hour that is repeated; or say dst_repeat = "last" or "both"; or leave the rule out in
    check_ignore.
    """
    if case.job.dst_repeat != DstRepeat.FIRST or (at := in_repeat(case.job, case.now)) is None:
        return None
    there = at.astimezone(ZoneInfo(case.job.timezone))
    return f"on {there:%Y-%m-%d} the clock shows its time twice; it runs the first time only"
