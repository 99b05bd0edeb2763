"""What a cron line says, in words, where few words say all of it. It reads values, never the text: there is one parser.

None is a good answer: words that are nearly right are worse than the expression itself.
"""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Final

from pgcron_runner.schedule.dates import Dates, DayRule, LastDay, NthWeekday
from pgcron_runner.schedule.slots import CronLine
from pgcron_runner.schedule.times import Times

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH: Final = ("first", "second", "third", "fourth", "fifth")
# More than so many are no help.
_LISTED: Final = 6


def line_in_words(line: CronLine) -> str | None:
    """`At 09:00, Monday to Friday`; None where it cannot be said shortly and exactly."""
    times, dates = _times(line.times), _dates(line.dates)
    if times is None or dates is None:
        return None
    return f"{times}, {dates}" if dates else times


def _times(times: Times) -> str | None:
    if len(times) <= _LISTED:
        return "At " + _listed([_clock(times.at(index), seconds=times.seconds != (0,)) for index in range(len(times))])
    every_minute, every_hour = len(times.minutes) == 60, len(times.hours) == 24
    if times.seconds != (0,):
        return _every(times.seconds, 60, "second") if every_minute and every_hour else None
    if every_hour:
        if times.minutes == (0,):
            return "Every hour"
        return _every(times.minutes, 60, "minute") or _at_minutes(times.minutes)
    return _within_hours(times)


def _clock(second: int, *, seconds: bool) -> str:
    shown = str(timedelta(seconds=second)).rjust(8, "0")
    return shown if seconds else shown[:5]


def _within_hours(times: Times) -> str | None:
    """A stretch of hours, or every so many of them."""
    first, last = times.hours[0], times.hours[-1]
    if last - first + 1 == len(times.hours):
        step = "Every hour" if len(times.minutes) == 1 else _every(times.minutes, 60, "minute")
        start, end = f"{first:02}:{times.minutes[0]:02}", f"{last:02}:{times.minutes[-1]:02}"
        return step and f"{step} from {start} to {end}"
    if len(times.minutes) == 1 and (step := _every(times.hours, 24, "hour")):
        return f"{step} from 00:{times.minutes[0]:02} on"
    return None


def _every(values: Sequence[int], size: int, unit: str) -> str | None:
    """Values that go on evenly over the end of their field."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    if values[0] or len(steps) != 1:
        return None
    [step] = steps
    if step * len(values) != size:
        return None
    return f"Every {unit}" if step == 1 else f"Every {step} {unit}s"


def _at_minutes(minutes: Sequence[int]) -> str | None:
    return f"At minute {_listed(list(map(str, minutes)))} of every hour" if len(minutes) <= _LISTED else None


def _dates(dates: Dates) -> str | None:
    """Empty for every day."""
    any_day = len(dates.days) == 31
    any_weekday = len(dates.weekdays) == 7
    if not any_day and not any_weekday:
        return None
    days = "" if any_day else _days(sorted(dates.days), dates.day_rules)
    weekdays = "" if any_weekday else _weekdays(sorted(dates.weekdays), dates.weekday_rules)
    if days is None or weekdays is None:
        return None
    months = "" if len(dates.months) == 12 else "in " + _listed([calendar.month_name[n] for n in dates.months])
    return " ".join(part for part in (days, weekdays, months) if part)


def _days(days: Sequence[int], rules: Sequence[DayRule]) -> str | None:
    match rules:
        case ():
            return f"on day {_listed(list(map(str, days)))} of the month" if len(days) <= _LISTED else None
        case (LastDay(0),) if not days:
            return "on the last day of the month"
    return None


def _weekdays(weekdays: Sequence[int], rules: Sequence[DayRule]) -> str | None:
    match rules:
        case ():
            if len(weekdays) > 2 and weekdays[-1] - weekdays[0] + 1 == len(weekdays):
                return f"{_WEEKDAYS[weekdays[0]]} to {_WEEKDAYS[weekdays[-1]]}"
            return "on " + _listed([_WEEKDAYS[n] for n in weekdays])
        case (NthWeekday(weekday, nth),) if not weekdays:
            return f"on the {_NTH[nth - 1] if nth else 'last'} {_WEEKDAYS[weekday]} of the month"
    return None


def _listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
