"""The days a cron line names, by day of month, month and weekday. It knows no times of day and no zones.

Days are counted from 1970-01-01; weekdays from Sunday, 0.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_YEAR: Final = 1
_LAST_YEAR: Final = 9999
# Any 28 years without a skipped leap year hold every kind of year: both lengths, all seven first weekdays.
_EVERY_KIND_OF_YEAR: Final = range(2000, 2028)


class Month(NamedTuple):
    """All that day rules need of a month: its length and the weekday of its first day."""

    length: int
    first_weekday: int

    def weekday(self, day: int) -> int:
        return (self.first_weekday + day - 1) % 7


class DayRule(Protocol):
    """A rule that names at most one day of a month."""

    def day_in(self, month: Month) -> int | None: ...


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L`, and `L-n`: so many days before the last day of the month."""

    before: int = 0

    def day_in(self, month: Month) -> int | None:
        return month.length - self.before if self.before < month.length else None


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """`nW`: the Monday to Friday nearest to a day, never in another month; `LW` (no day): to the last day.

    A month without that day has none, as in Quartz (croniter takes the last day instead).
    """

    day: int | None = None

    def day_in(self, month: Month) -> int | None:
        day = month.length if self.day is None else self.day
        if day > month.length:
            return None
        match month.weekday(day):
            case 6:
                return day - 1 if day > 1 else day + 2
            case 0:
                return day + 1 if day < month.length else day - 2
        return day


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`dow#n`: the n-th such weekday of the month; `5L` (no n) is the last."""

    weekday: int
    nth: int | None = None

    def day_in(self, month: Month) -> int | None:
        first = 1 + (self.weekday - month.first_weekday) % 7
        if self.nth is None:
            return first + (month.length - first) // 7 * 7
        day = first + (self.nth - 1) * 7
        return day if day <= month.length else None


@dataclass(frozen=True, slots=True, eq=False)
class Dates:
    """The days on which a cron line has slots. `intersect`: both day fields must match, otherwise either may.

    Identity is equality, so that a look-up in the cache of months costs no comparison of values.
    """

    months: tuple[int, ...]
    days: frozenset[int]
    weekdays: frozenset[int]
    day_rules: tuple[DayRule, ...] = ()
    weekday_rules: tuple[DayRule, ...] = ()
    intersect: bool = True

    @property
    def is_daily(self) -> bool:
        full_days, full_weekdays = len(self.days) == 31, len(self.weekdays) == 7
        full = (full_days and full_weekdays) if self.intersect else (full_days or full_weekdays)
        return full and len(self.months) == 12

    def ever_come(self) -> bool:
        """Whether any year has such a day: 30 February has none."""
        return any(self._days_of(year, month) for year in _EVERY_KIND_OF_YEAR for month in self.months)

    def include(self, day: int) -> bool:
        wanted = date.fromordinal(day + _EPOCH)
        return wanted.day in self._days_of(wanted.year, wanted.month)

    def first_from(self, day: int) -> int | None:
        """The first such day at or after `day`; None when the calendar of Python ends before it."""
        wanted = date.fromordinal(day + _EPOCH)
        days = self._days_of(wanted.year, wanted.month)
        index = bisect_left(days, wanted.day)
        if index < len(days):
            return day + days[index] - wanted.day
        for year, month in self._months_after(wanted):
            if days := self._days_of(year, month):
                return _number(year, month, days[0])
        return None

    def last_until(self, day: int) -> int | None:
        """The last such day at or before `day`; None when the calendar of Python begins after it."""
        wanted = date.fromordinal(day + _EPOCH)
        days = self._days_of(wanted.year, wanted.month)
        index = bisect_left(days, wanted.day + 1)
        if index:
            return day + days[index - 1] - wanted.day
        for year, month in self._months_before(wanted):
            if days := self._days_of(year, month):
                return _number(year, month, days[-1])
        return None

    def count(self, start: int, end: int) -> int:
        """How many such days lie in [start, end)."""
        if start >= end:
            return 0
        if self.is_daily:
            return end - start
        first, last = date.fromordinal(start + _EPOCH), date.fromordinal(end - 1 + _EPOCH)
        total = sum(
            len(self._days_of(year, month))
            for year in range(first.year, last.year + 1)
            for month in self.months
            if (first.year, first.month) <= (year, month) <= (last.year, last.month)
        )
        total -= bisect_left(self._days_of(first.year, first.month), first.day)
        after = self._days_of(last.year, last.month)
        return total - (len(after) - bisect_left(after, last.day + 1))

    def _days_of(self, year: int, month: int) -> tuple[int, ...]:
        if month not in self.months:
            return ()
        first_weekday, length = calendar.monthrange(year, month)
        return _matching_days(self, Month(length, (first_weekday + 1) % 7))

    def _months_after(self, when: date) -> Iterator[tuple[int, int]]:
        yield from ((when.year, month) for month in self.months if month > when.month)
        yield from ((year, month) for year in range(when.year + 1, _LAST_YEAR + 1) for month in self.months)

    def _months_before(self, when: date) -> Iterator[tuple[int, int]]:
        months = self.months[::-1]
        yield from ((when.year, month) for month in months if month < when.month)
        yield from ((year, month) for year in range(when.year - 1, _FIRST_YEAR - 1, -1) for month in months)


@lru_cache(maxsize=100_000)
def _matching_days(dates: Dates, month: Month) -> tuple[int, ...]:
    by_day = {rule.day_in(month) for rule in dates.day_rules} | dates.days
    by_weekday = {rule.day_in(month) for rule in dates.weekday_rules}
    by_weekday |= {day for day in range(1, month.length + 1) if month.weekday(day) in dates.weekdays}
    matching = by_day & by_weekday if dates.intersect else by_day | by_weekday
    return tuple(sorted(day for day in matching if day is not None and day <= month.length))


def _number(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH
