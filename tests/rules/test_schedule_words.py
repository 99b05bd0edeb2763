"""Words for a schedule: some as they are, and all that are made read back and tried on every day of a year."""

from __future__ import annotations

import calendar
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest

from pgcron_runner.schedule import Schedule, parse_schedule

DAY, TICK = timedelta(days=1), timedelta(microseconds=1)
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
MONTHS = list(calendar.month_name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 3 * * *", "At 03:00"),
        ("30 0 3 * * 1", "At 03:00:30, on Monday"),
        ("0 9 * * mon-fri", "At 09:00, Monday to Friday"),
        ("30 */6 * * *", "At 00:30, 06:30, 12:30 and 18:30"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("@hourly", "Every hour"),
        ("5/15 * * * *", "At minute 5, 20, 35 and 50 of every hour"),
        ("*/5 9-17 * * 1-5", "Every 5 minutes from 09:00 to 17:55, Monday to Friday"),
        ("0 */2 * * *", "Every 2 hours from 00:00 on"),
        ("0 0 1,15 * *", "At 00:00, on day 1 and 15 of the month"),
        ("0 12 L 1,7 *", "At 12:00, on the last day of the month in January and July"),
        ("0 12 * * fri#2", "At 12:00, on the second Friday of the month"),
        ("0 12 * * 5L", "At 12:00, on the last Friday of the month"),
        ("0 3 ? * ?", "At 03:00"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert parse_schedule(text, "Europe/Berlin").in_words() == words


@pytest.mark.parametrize(
    "text",
    [
        "*/7 * * * *",  # not every seven minutes at the hour's end
        "0 3 */2 * *",  # nor every other day at the month's
        "0 3 1 * 1",  # either day
        "0 3 15W * *",
        "0 3 LW * *",
        "0 3 1,L * *",
        "*/2 1 3 * * *",
        "* 1-59/2 * * * *",
        "0 3 * * *\n0 4 * * *",
        "@every 5m",
        "@at 2027-01-01T00:00",
        "@manual",
        "@every 5m after finish",
    ],
)
def test_what_takes_many_words_has_none(text: str) -> None:
    assert parse_schedule(text, "Europe/Berlin").in_words() is None


# ----------------------------------------------------------------------------------------------- read back


def test_all_words_mean_what_the_schedule_does() -> None:
    chance, told = random.Random("words"), 0
    for _ in range(1500):
        schedule = parse_schedule(plain_line(chance), "UTC")
        if words := schedule.in_words():
            told += 1
            assert_means(schedule, words)
    assert told > 300


def plain_line(chance: random.Random) -> str:
    """Lines as people write them, and some that are not so plain."""
    minute = chance.choice(["0", "30", "*", "*/5", "*/15", "*/7", "5,35", "10/20", "3-50/9", str(chance.randrange(60))])
    hour = chance.choice(["*", "*", "9", "8-18", "*/6", "*/4", "*/5", "1/8", "22-3", "0,12", str(chance.randrange(24))])
    day = chance.choice(["*", "*", "*", "1", "1,15", "L", "L-2", "10-20", "31", "28-31"])
    month = chance.choice(["*", "*", "*", "1", "mar-may", "1,7", "2"])
    weekday = chance.choice(["*", "*", "mon-fri", "0", "7", "1,3,5", "fri-mon", "fri#2", "5L", "sat,sun", "tue#5"])
    if day != "*" and weekday != "*":
        weekday = "*" if chance.random() < 0.7 else weekday
    second = chance.choice(["", "", "0 ", "30 ", "*/20 ", "* "])
    line = f"{second}{minute} {hour} {day} {month} {weekday}"
    return line if line.count("31 2") == 0 else f"{second}{minute} {hour} 28 2 *"


def assert_means(schedule: Schedule, words: str) -> None:
    times, is_on = read(words)
    for number in range(366):
        midnight = datetime(2028, 1, 1, tzinfo=UTC) + DAY * number
        count = schedule.count_between(midnight - TICK, midnight + DAY - TICK)
        assert count == (len(times) if is_on(midnight.date()) else 0), (schedule.text, words, midnight)
    first = schedule.next_after(datetime(2028, 1, 1, tzinfo=UTC) - TICK)
    assert first is not None
    midnight = first.replace(hour=0, minute=0, second=0)
    found = {(at - midnight) // timedelta(seconds=1) for at in schedule.between(midnight - TICK, midnight + DAY - TICK)}
    assert found == times, (schedule.text, words)


def read(words: str) -> tuple[set[int], Callable[[date], bool]]:
    """The seconds of the day, and the days, that words name. Fails on what it does not understand."""
    found = re.fullmatch(
        r"(?P<times>At minute .+? of every hour|At [\d:, and]+?|Every .+?)"
        r"(?:, (?P<days>(?:on|in|[A-Z]\w+day to) .+))?",
        words,
    )
    assert found, words
    return read_times(found["times"]), lambda day: read_days(found["days"] or "", day)


def read_times(words: str) -> set[int]:
    if found := re.fullmatch(r"At minute (.+) of every hour", words):
        return {hour * 3600 + int(minute) * 60 for hour in range(24) for minute in listed(found[1])}
    if found := re.fullmatch(r"At (.+)", words):
        return {seconds_of(clock) for clock in listed(found[1])}
    found = re.fullmatch(r"Every (?:(\d+) )?(second|minute|hour)s?(?: from (\S+) (?:to (\S+)|on))?", words)
    assert found, words
    step = int(found[1] or 1) * {"second": 1, "minute": 60, "hour": 3600}[found[2]]
    first = seconds_of(found[3]) if found[3] else 0
    return set(range(first, (seconds_of(found[4]) if found[4] else 86_399) + 1, step))


def read_days(words: str, day: date) -> bool:
    rest, _, months = (words if not words.startswith("in ") else f" {words}").partition(" in ")
    if months and MONTHS[day.month] not in listed(months):
        return False
    weekday = WEEKDAYS[day.isoweekday() % 7]
    length = calendar.monthrange(day.year, day.month)[1]
    if not rest:
        return True
    if rest == "on the last day of the month":
        return day.day == length
    if found := re.fullmatch(r"on day (.+) of the month", rest):
        return str(day.day) in listed(found[1])
    if found := re.fullmatch(r"on the (\w+) (\w+) of the month", rest):
        nth = "last" if day.day + 7 > length and found[1] == "last" else NTH[(day.day - 1) // 7]
        return (found[1], found[2]) == (nth, weekday)
    if found := re.fullmatch(r"(\w+) to (\w+)", rest):
        return weekday in WEEKDAYS[WEEKDAYS.index(found[1]) : WEEKDAYS.index(found[2]) + 1]
    found = re.fullmatch(r"on (.+)", rest)
    assert found, words
    return weekday in listed(found[1])


NTH = ["first", "second", "third", "fourth", "fifth"]


def listed(words: str) -> list[str]:
    return re.split(r", | and ", words)


def seconds_of(clock: str) -> int:
    hour, minute, *second = map(int, clock.split(":"))
    return hour * 3600 + minute * 60 + (second[0] if second else 0)
