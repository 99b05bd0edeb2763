"""Which instants a local time is: none, one or two of them. It knows no job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pgcron_runner.explain.values import Moment

_TICK = timedelta(microseconds=1)


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
