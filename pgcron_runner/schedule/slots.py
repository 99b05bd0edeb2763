"""Wall-clock slots of cron lines. It knows no zones: a wall second is counted as if the clock showed UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pgcron_runner.schedule import bits
from pgcron_runner.schedule.dates import Dates
from pgcron_runner.schedule.times import DayTimes, ListedTimes, Times

DAY: Final = bits.DAY


@dataclass(frozen=True, slots=True, eq=False)
class CronLine:
    """One cron expression. `wildcard` is cron's word for jobs whose minute or hour field begins with `*`.

    Wildcard jobs keep real elapsed time when a clock changes, fixed-time jobs keep their number of runs.
    """

    text: str
    times: Times
    dates: Dates
    wildcard: bool

    def first_from(self, wall: int) -> int | None:
        """The first slot at or after a wall second."""
        day, second = divmod(wall, DAY)
        if self.dates.include(day):
            index = self.times.rank(second)
            if index < len(self.times):
                return day * DAY + self.times.at(index)
        found = self.dates.first_from(day + 1)
        return None if found is None else found * DAY + self.times.at(0)

    def last_until(self, wall: int) -> int | None:
        """The last slot at or before a wall second."""
        day, second = divmod(wall, DAY)
        if self.dates.include(day):
            index = self.times.rank(second + 1)
            if index:
                return day * DAY + self.times.at(index - 1)
        found = self.dates.last_until(day - 1)
        return None if found is None else found * DAY + self.times.at(len(self.times) - 1)

    def count(self, start: int, end: int) -> int:
        """How many slots lie in [start, end): whole days by arithmetic, the rest of a day by rank."""
        if start >= end:
            return 0
        return self._count_before(end, start // DAY) - self._count_before(start, start // DAY)

    def _count_before(self, wall: int, since_day: int) -> int:
        day, second = divmod(wall, DAY)
        today = self.times.rank(second) if self.dates.include(day) else 0
        return self.dates.count(since_day, day) * len(self.times) + today


def first_slot(lines: tuple[CronLine, ...], wall: int) -> int | None:
    """The first slot of any of the lines at or after a wall second."""
    return min((slot for line in lines if (slot := line.first_from(wall)) is not None), default=None)


def last_slot(lines: tuple[CronLine, ...], wall: int) -> int | None:
    """The last slot of any of the lines at or before a wall second."""
    return max((slot for line in lines if (slot := line.last_until(wall)) is not None), default=None)


def count_slots(lines: tuple[CronLine, ...], start: int, end: int) -> int:
    """How many wall seconds in [start, end) are a slot of at least one line."""
    if len(lines) == 1:
        return lines[0].count(start, end)
    return sum(stop - index for _, _, index, stop in _days(lines, start, end))


def walk_slots(lines: tuple[CronLine, ...], start: int, end: int) -> Iterator[int]:
    """The slots in [start, end), each once, in order."""
    for midnight, times, index, stop in _days(lines, start, end):
        yield from (midnight + times.at(i) for i in range(index, stop))


def slot_bits(lines: tuple[CronLine, ...], start: int, end: int) -> int:
    """The slots in [start, end), bit n for the wall second start + n."""
    found = 0
    for number in range(start // DAY, -(-end // DAY)):
        midnight = number * DAY
        low, high = max(start, midnight), min(end, midnight + DAY)
        for line in lines:
            if line.dates.include(number):
                found |= bits.cut(bits.day(line.times), low - midnight, high - midnight) << low - start
    return found


def _days(lines: tuple[CronLine, ...], start: int, end: int) -> Iterator[tuple[int, DayTimes, int, int]]:
    """For each day with slots in [start, end): its midnight, its times, which of them are in it."""
    day = start // DAY
    while (found := _first_day(lines, day)) is not None and found * DAY < end:
        midnight = found * DAY
        times = _times_of(tuple(line for line in lines if line.dates.include(found)))
        index = times.rank(max(start - midnight, 0))
        yield midnight, times, index, times.rank(min(end - midnight, DAY))
        day = found + 1


def _first_day(lines: tuple[CronLine, ...], day: int) -> int | None:
    return min((d for line in lines if (d := line.dates.first_from(day)) is not None), default=None)


# A day of every second takes 350 kB here.
@lru_cache(maxsize=64)
def _union(lines: tuple[CronLine, ...]) -> DayTimes:
    return ListedTimes(line.times for line in lines)


def _times_of(lines: tuple[CronLine, ...]) -> DayTimes:
    return lines[0].times if len(lines) == 1 else _union(lines)
