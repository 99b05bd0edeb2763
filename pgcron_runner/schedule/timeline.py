"""What a zone's clock shows: stretches of constant offset, cut where it jumps or repeats. No schedules here.

Python hides the transitions of its zones, so they are found by looking at the offset every few days.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from pgcron_runner.model import DstGap, DstRepeat

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR: Final = 2
LAST_YEAR: Final = 9998

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = 86_400
# A larger jump is a correction of the calendar (Samoa lost a day in 2011): nothing is made up, nothing rests.
_LARGEST_CHANGE: Final = 3 * 3600
# The two nearest changes of any zone are almost seven days apart (Brazil 2000); a test reads the zone files.
_PROBE: Final = 5 * _DAY


class Stretch(NamedTuple):
    """A time [start, end) in seconds since the epoch in which the wall shows that second plus `offset`.

    `fixed_rest`: the wall shows this stretch twice, and on this pass fixed-time slots do not run.
    `made_up`: wall seconds [from, to) that were skipped at `start`, whose fixed-time slots run at `start`.
    """

    start: int
    end: int
    offset: int
    fixed_rest: bool
    made_up: tuple[int, int] | None


class Change(NamedTuple):
    """At `at` the offset becomes `after`."""

    at: int
    before: int
    after: int


class Timeline(NamedTuple):
    """A zone's clock under a job's two daylight-saving rules; covers the years 2 to 9998."""

    zone: ZoneInfo
    dst_gap: DstGap
    dst_repeat: DstRepeat

    def stretch_at(self, second: int) -> Stretch | None:
        """The stretch that holds a second since the epoch; None outside the years covered."""
        if not _BEGIN <= second < _END:
            return None
        for stretch in _year(self, (EPOCH + timedelta(seconds=second)).year):
            if second < stretch.end:
                return stretch
        raise AssertionError("the stretches of a year cover it")


def offset_at(zone: ZoneInfo, second: int) -> int:
    """Seconds east of Greenwich at a second since the epoch."""
    offset = (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // _SECOND


def changes(zone: ZoneInfo, start: int, end: int) -> Iterator[Change]:
    """The changes of a zone's offset in (start, end], in order."""
    before = offset_at(zone, start)
    while start < end:
        probe = min(start + _PROBE, end)
        after = offset_at(zone, probe)
        if after != before:
            yield Change(_bisect(zone, start, probe, before), before, after)
        start, before = probe, after


def _bisect(zone: ZoneInfo, low: int, high: int, before: int) -> int:
    """The first second in (low, high] whose offset is no longer `before`."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=20_000)
def _year(timeline: Timeline, year: int) -> tuple[Stretch, ...]:
    """The stretches of one UTC year; a day is added because an hour may repeat over New Year."""
    start, end = _year_start(year), _year_start(year + 1)
    seen = tuple(changes(timeline.zone, start - _DAY, end + _DAY))
    offset = seen[0].before if seen else offset_at(timeline.zone, start)
    rests = [rest for change in seen if (rest := _rest(change, timeline.dst_repeat))]
    changed = {change.at: change for change in seen}
    stretches = []
    cuts = sorted({start - _DAY, end, *changed, *(edge for rest in rests for edge in rest)} | {start})
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        change = changed.get(cut)
        offset = change.after if change else offset
        if following is not None and start <= cut < end:
            fixed_rest = any(low <= cut < high for low, high in rests)
            made_up = _made_up(change, timeline.dst_gap) if change else None
            stretches.append(Stretch(cut, min(following, end), offset, fixed_rest, made_up))
    return tuple(stretches)


def _rest(change: Change, dst_repeat: DstRepeat) -> tuple[int, int] | None:
    """The pass of a repeated stretch on which fixed-time slots rest."""
    back = change.before - change.after
    if not 0 < back <= _LARGEST_CHANGE or dst_repeat == DstRepeat.BOTH:
        return None
    if dst_repeat == DstRepeat.FIRST:
        return change.at, change.at + back
    return change.at - back, change.at


def _made_up(change: Change, dst_gap: DstGap) -> tuple[int, int] | None:
    if dst_gap == DstGap.SKIP or not 0 < change.after - change.before <= _LARGEST_CHANGE:
        return None
    return change.at + change.before, change.at + change.after


def _year_start(year: int) -> int:
    return (date(year, 1, 1).toordinal() - EPOCH.toordinal()) * _DAY


_BEGIN: Final = _year_start(FIRST_YEAR)
_END: Final = _year_start(LAST_YEAR + 1)
