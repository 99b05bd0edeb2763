"""What the clock changes of the next year will do to a schedule, as a sentence each. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from pgcron_runner.cli.upcoming import Rule, parse_rule
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import check_timezone

_TICK = timedelta(microseconds=1)
_DAYS = 366


def clock_changes(rule: Rule, after: datetime) -> list[str]:
    """The first skipped and the first repeated time that the schedule meets within a year after an instant.

    Only fixed times meet them: what comes every so often goes on through a change of the clock.
    """
    found: dict[str, str] = {}
    zone = check_timezone(rule.timezone)
    for change, moved in _changes(zone, after):
        if rule.ends_at is not None and change > rule.ends_at:
            break
        kind = "gap" if moved > timedelta(0) else "repeat"
        told = _gap(rule, zone, change) if moved > timedelta(0) else _repeat(rule, zone, change, -moved)
        if told:
            found.setdefault(kind, told)
    return list(found.values())


def _changes(zone: ZoneInfo, after: datetime) -> list[tuple[datetime, timedelta]]:
    """The instants at which the clock jumps, and by how much, in order."""
    changes = []
    for day in range(_DAYS):
        early, late = after + timedelta(days=day), after + timedelta(days=day + 1)
        before, behind = _offset(zone, early), _offset(zone, late)
        if before == behind:
            continue
        while late - early > _TICK:
            middle = early + (late - early) // 2
            early, late = (middle, late) if _offset(zone, middle) == before else (early, middle)
        changes.append((late, behind - before))
    return changes


def _gap(rule: Rule, zone: ZoneInfo, change: datetime) -> str | None:
    """What is moved or left out is what the two ways to treat a gap differ in."""
    start, end = change - _TICK, change + timedelta(minutes=1)
    moved = _instants(replace(rule, dst_gap=DstGap.RUN_AFTER), start, end)
    if moved == _instants(replace(rule, dst_gap=DstGap.SKIP), start, end):
        return None
    there = change.astimezone(zone)
    from_ = (change - _TICK).astimezone(zone) + _TICK
    skipped = f"from {from_:%H:%M} to {there:%H:%M}, over a time of this schedule"
    jump = f"on {from_:%Y-%m-%d} the clock of {zone.key} goes {skipped}"
    if rule.dst_gap is DstGap.SKIP:
        return f"{jump}: it does not run then (dst_gap skip; run_after makes up for it)"
    return f"{jump}: it runs at {there:%H:%M} instead (dst_gap run_after; skip leaves it out)"


def _repeat(rule: Rule, zone: ZoneInfo, change: datetime, length: timedelta) -> str | None:
    """What is shown twice is what differs between both passes and one."""
    start, end = change - length - _TICK, change + length - _TICK
    both = _instants(replace(rule, dst_repeat=DstRepeat.BOTH), start, end)
    once = _instants(replace(rule, dst_repeat=DstRepeat.FIRST), start, end)
    twice = sorted(both - once)
    if not twice:
        return None
    shown = twice[0].astimezone(zone)
    what = {
        DstRepeat.FIRST: "on the first pass only (dst_repeat first; also last, both)",
        DstRepeat.LAST: "on the second pass only (dst_repeat last; also first, both)",
        DstRepeat.BOTH: "on both, twice that day (dst_repeat both; also first, last)",
    }
    return f"on {shown:%Y-%m-%d} the clock of {zone.key} shows {shown:%H:%M} twice: it runs {what[rule.dst_repeat]}"


def _instants(rule: Rule, start: datetime, end: datetime) -> set[datetime]:
    try:
        return set(parse_rule(rule).between(start, end))
    except InvalidInput:
        return set()  # an @at in the gap, which must not be left out


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
