"""Times of day as indexable, sorted sequences of seconds since midnight. It knows no dates."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class DayTimes(Protocol):
    """Sorted seconds of a day: `rank` counts those before a second, `at` is the inverse."""

    def __len__(self) -> int: ...

    def rank(self, second: int) -> int: ...

    def at(self, index: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Times:
    """Every combination of the given hours, minutes and seconds; never written out (there may be 86,400)."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def rank(self, second: int) -> int:
        """How many of these times lie before `second` (0 to 86,400)."""
        hour, rest = divmod(second, 3600)
        minute, rest = divmod(rest, 60)
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        index = bisect_left(hours, hour)
        count = index * len(minutes)
        if index == len(hours) or hours[index] != hour:
            return count * len(seconds)
        index = bisect_left(minutes, minute)
        count = (count + index) * len(seconds)
        if index == len(minutes) or minutes[index] != minute:
            return count
        return count + bisect_left(seconds, rest)

    def at(self, index: int) -> int:
        index, second = divmod(index, len(self.seconds))
        hour, minute = divmod(index, len(self.minutes))
        return self.hours[hour] * 3600 + self.minutes[minute] * 60 + self.seconds[second]


class ListedTimes:
    """The union of several `DayTimes`, written out; four bytes a time."""

    __slots__ = ("_times",)

    def __init__(self, parts: Iterable[DayTimes]) -> None:
        self._times = array("I", sorted({part.at(index) for part in parts for index in range(len(part))}))

    def __len__(self) -> int:
        return len(self._times)

    def rank(self, second: int) -> int:
        return bisect_left(self._times, second)

    def at(self, index: int) -> int:
        return self._times[index]
