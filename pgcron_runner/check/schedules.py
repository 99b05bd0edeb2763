"""2: schedules that mean something else than they seem to, and many jobs at one minute."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from pgcron_runner.check import times
from pgcron_runner.check.rules import rule, rule_of_all
from pgcron_runner.check.times import cron_lines, schedule_of
from pgcron_runner.check.values import Case

_ANY: Final = ("*", "?")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MANY: Final = 10
_TIMES_THE_MEAN: Final = 4


@rule("PGC221", "day-and-weekday")
def day_and_weekday(case: Case) -> str | None:
    """A schedule names days of the month and days of the week.

    Cron runs it on either, not on those that are both: 0 9 13 * fri is every 13th and every Friday.

    Fix: name one of them; for the second Tuesday write tue#2, for the last Friday friL, for the nearest workday 15W.
    """
    for _, _, day, _, weekday in cron_lines(case.job):
        if day not in _ANY and weekday not in _ANY and not day.startswith("*") and not weekday.startswith("*"):
            return f"day {day} and weekday {weekday}: it runs on either"
    return None


@rule("PGC222", "short-months")
def short_months(case: Case) -> str | None:
    """A schedule names a day that some of its months do not have.

    0 3 31 * * runs seven times a year, on the 29th it leaves out most Februaries.

    Fix: write L for the last day of the month, or a day up to 28.
    """
    for _, _, day, month, _ in cron_lines(case.job):
        named = [int(part) for part in re.split("[,-]", day) if part.isdigit()]
        if re.fullmatch(r"(29|30|31)([,-](29|30|31))*", day) and max(named) > _shortest(month):
            return f"day {day} is not in every month that it names"
    return None


def _shortest(month: str) -> int:
    """The least length of the months that a field names, 28 for February; of all where it is not a plain list."""
    if month in _ANY:
        return 28
    parts = [_MONTHS.index(part) + 1 if part in _MONTHS else part for part in month.split(",")]
    numbers = [int(part) for part in parts if str(part).isdigit() and 1 <= int(part) <= 12]
    if len(numbers) < len(parts):
        return 28
    return min(28 if number == 2 else _LENGTHS[number - 1] for number in numbers)


@rule_of_all("PGC231", "pile-up")
def pile_up(cases: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """Many jobs start at the same minute of the hour, and few at the others.

    People write 0 for the minute. Then all of them wait for slots, for the database and for each other, and the minutes
    between are idle.

    Fix: write H for the minute (H 3 * * *: some minute, always the same for this job), or give jobs a jitter.
    """
    counts = starts_by_minute(cases)
    minute, most = max(counts.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
    jobs = {case.job.name for case in cases if minute in _minutes(case)}
    if len(jobs) >= _MANY and most >= _TIMES_THE_MEAN * sum(counts.values()) / 60:
        share = most / sum(counts.values())
        yield "", f"{len(jobs)} jobs start at minute {minute} of the hour: {share:.0%} of all starts in a week"


def starts_by_minute(cases: Sequence[Case]) -> Counter[int]:
    """How many starts of the next week fall on each minute of the hour."""
    counts: Counter[int] = Counter()
    for case in cases:
        counts.update(_minutes(case))
    return counts


def _minutes(case: Case) -> Counter[int]:
    job = case.job
    schedule = schedule_of(job)
    if schedule is None or not job.enabled or job.jitter > timedelta(0):
        return Counter()
    return times.starts_by_minute(schedule, case.now)
