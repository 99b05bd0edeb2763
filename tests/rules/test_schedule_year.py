"""Whole years beside a walk over each second or minute of them: numpy reads the wall, the test knows the rules.

The walk knows a line's values without parsing its text, and uses nothing of the project's own calculation.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import groupby, pairwise
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from pgcron_runner.errors import InvalidInput
from pgcron_runner.schedule import Schedule, parse_schedule

# A long run: PGCRON_PROPERTY_SCALE=40 tries 40 times as many.
_SCALE = int(os.environ.get("PGCRON_PROPERTY_SCALE", "1"))
# Each zone with the year whose changes are its oddest.
YEARS = [
    ("Europe/Berlin", 2027),
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2027),  # half an hour
    ("Africa/Cairo", 2024),  # the day without a midnight
    ("America/Havana", 2026),  # at midnight
    ("Africa/Casablanca", 2026),  # twice, about Ramadan
    ("America/Santiago", 2025),
    ("Antarctica/Troll", 2025),  # two hours
    ("Asia/Gaza", 2026),
    ("Europe/Lisbon", 1992),  # the zone itself changed as well
]
LINES = 2  # of each sort and zone

MINUTES = 366 * 24 * 60
# What is listed one by one; of a denser line the days around the changes, and some others.
LISTED = 200_000
LARGEST_CHANGE = 180  # minutes

Minutes: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Text:
    """A field as text, with the values that the test itself gives it."""

    text: str
    values: frozenset[int]

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True)
class Line:
    """An expression whose meaning is known without reading it; five fields where `second` is None."""

    second: Text | None
    minute: Text
    hour: Text
    day: Text
    month: Text
    weekday: Text

    @property
    def text(self) -> str:
        fields = (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in fields if field is not None)

    @property
    def wildcard(self) -> bool:
        return self.minute.starred or self.hour.starred

    @property
    def seconds(self) -> list[int]:
        return sorted(self.second.values) if self.second else [0]


# ------------------------------------------------------------------------------------------------ lines by chance


def draw_line(chance: random.Random, near: list[int], *, seconds: bool) -> Line:
    """Half of the lines like the hours at which the clock changes, and every day."""
    every_day = chance.random() < 0.5
    hour = chance.choice(near) if every_day and chance.random() < 0.7 else None
    return Line(
        draw_field(chance, 0, 59) if seconds else None,
        draw_field(chance, 0, 59),
        draw_field(chance, 0, 23) if hour is None else Text(str(hour), frozenset({hour})),
        star(1, 31) if every_day else draw_field(chance, 1, 31),
        star(1, 12) if every_day else draw_field(chance, 1, 12),
        star(0, 6) if every_day else draw_field(chance, 0, 6),
    )


def draw_field(chance: random.Random, low: int, high: int) -> Text:
    parts = [draw_part(chance, low, high) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    return Text(",".join(part.text for part in parts), frozenset().union(*(part.values for part in parts)))


def star(low: int, high: int) -> Text:
    return Text("*", frozenset(range(low, high + 1)))


def draw_part(chance: random.Random, low: int, high: int) -> Text:
    """One item of a list; ranges wrap over the end of the field."""
    size = high - low + 1
    first, last, step = chance.randint(low, high), chance.randint(low, high), chance.randint(1, size)
    around = [low + (first - low + gone) % size for gone in range((last - first) % size + 1)]
    match chance.choice(("*", "*/", "one", "one", "-", "-/", "/")):
        case "*":
            return star(low, high)
        case "*/":
            return Text(f"*/{step}", frozenset(range(low, high + 1, step)))
        case "one":
            return Text(str(first), frozenset({first}))
        case "-":
            return Text(f"{first}-{last}", frozenset(around))
        case "-/":
            return Text(f"{first}-{last}/{step}", frozenset(around[::step]))
        case _:
            return Text(f"{first}/{step}", frozenset(range(first, high + 1, step)))


# -------------------------------------------------------------------------------------------------------- the walk


@dataclass(frozen=True)
class Year:
    """Every minute of a year from its start in UTC, and what the wall shows in it. Offsets are in whole minutes."""

    start: datetime
    wall: Minutes
    rests: Mask
    gaps: tuple[tuple[int, Minutes], ...]

    @property
    def hours_of_changes(self) -> list[int]:
        """Those that the clock skips or shows twice."""
        skipped = [int(minute) for _, minutes in self.gaps for minute in minutes]
        return sorted({minute // 60 % 24 for minute in (*skipped, *self.wall[self.rests].tolist())})

    def matches(self, line: Line, wall: Minutes) -> Mask:
        """Which minutes of the wall a line names."""
        day = wall // 1440
        dates = day.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        day_of_month = (dates - months.astype("datetime64[D]")).astype(int) + 1
        by_day = among(line.day, day_of_month)
        by_weekday = among(line.weekday, (day + 4) % 7)
        on_day = by_day & by_weekday if line.day.starred or line.weekday.starred else by_day | by_weekday
        at_time = among(line.minute, wall % 60) & among(line.hour, wall // 60 % 24)
        return on_day & at_time & among(line.month, months.astype(int) % 12 + 1)

    def walk(self, line: Line) -> Minutes:
        """The instants of a line, in seconds from the start."""
        due = self.matches(line, self.wall)
        if not line.wildcard:
            due &= ~self.rests
        # Every second of the year, true or false.
        seconds = np.zeros(60, bool)
        seconds[line.seconds] = True
        every = (due[:, None] & seconds[None, :]).ravel()
        if not line.wildcard:
            for minute, skipped in self.gaps:
                every[minute * 60] |= self.matches(line, skipped).any()
        return np.flatnonzero(every)


def among(field: Text, numbers: Minutes) -> Mask:
    table = np.zeros(60, bool)
    table[list(field.values)] = True
    return table[numbers]


@lru_cache(maxsize=1)
def year_of(zone: str, number: int) -> Year:
    start = datetime(number, 1, 1, tzinfo=UTC)
    offsets = offsets_of(zone, start)
    epoch = int(start.timestamp()) // 60
    wall = epoch + np.arange(MINUTES) + offsets
    rests, gaps = np.zeros(MINUTES, bool), []
    for at in np.flatnonzero(np.diff(offsets)) + 1:
        jump = int(offsets[at] - offsets[at - 1])
        if 0 < jump <= LARGEST_CHANGE:
            gaps.append((int(at), np.arange(wall[at] - jump, wall[at])))
        elif -LARGEST_CHANGE <= jump < 0:
            rests[at : at - jump] = True
    return Year(start, wall, rests, tuple(gaps))


def offsets_of(name: str, start: datetime) -> Minutes:
    """The offset in each minute, asked of Python's own zoneinfo, with the rules of the tzdata package."""
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as rules:
        zone = ZoneInfo.from_file(rules, key=name)

    def offset(minute: int) -> int:
        found = (start + timedelta(minutes=minute)).astimezone(zone).utcoffset()
        assert found is not None
        minutes, rest = divmod(found, timedelta(minutes=1))
        assert not rest
        return minutes

    found = np.empty(MINUTES, np.int64)
    for first, last in pairwise(range(0, MINUTES + 1, 60)):
        before, after = offset(first), offset(last)
        found[first:last] = before if before == after else [offset(minute) for minute in range(first, last)]
    return found


# --------------------------------------------------------------------------------------------------- side by side


@pytest.mark.parametrize("seconds", [False, True], ids=["five fields", "six fields"])
@pytest.mark.parametrize(("zone", "number"), YEARS)
def test_a_year_agrees_with_a_walk_over_all_of_it(zone: str, number: int, seconds: bool) -> None:
    chance = random.Random(f"{zone} {number} {seconds}")
    year, tried = year_of(zone, number), 0
    while tried < LINES * _SCALE:
        line = draw_line(chance, year.hours_of_changes, seconds=seconds)
        schedule = parsed(line, zone)
        if schedule is not None:
            tried += 1
            agree(line, schedule, year, chance)


@pytest.mark.parametrize(("zone", "number"), YEARS[:4])
def test_a_years_union_with_intervals_is_counted_as_walked(zone: str, number: int) -> None:
    year, chance = year_of(zone, number), random.Random(zone)
    for _ in range(_SCALE):
        lines = [draw_line(chance, year.hours_of_changes, seconds=seconds) for seconds in (False, True)]
        if any(parsed(line, zone) is None for line in lines):
            continue
        period = chance.choice((1, 7, 60, 3600, chance.randint(1, 100_000)))
        text = "\n".join((*(line.text for line in lines), f"@every {period}s"))
        every = np.zeros(MINUTES * 60, bool)
        every[-int(year.start.timestamp()) % period :: period] = True
        for line in lines:
            every[year.walk(line)] = True
        counted = parse_schedule(text, zone).count_between(at(year, -1), at(year, MINUTES * 60 - 1))
        assert counted == np.count_nonzero(every), text


def parsed(line: Line, zone: str) -> Schedule | None:
    try:
        return parse_schedule(line.text, zone)
    except InvalidInput as refusal:
        if "never comes" in refusal.problem:
            return None
        raise


def agree(line: Line, schedule: Schedule, year: Year, chance: random.Random) -> None:
    """All instants of the year where there are not too many, and all counts, day by day."""
    expected = year.walk(line)
    length = MINUTES * 60
    assert schedule.count_between(at(year, -1), at(year, length - 1)) == len(expected), line.text
    days = np.arange(0, length + 1, 86_400)
    counted = [schedule.count_between(at(year, low - 1), at(year, high - 1)) for low, high in pairwise(days.tolist())]
    assert counted == np.diff(np.searchsorted(expected, days)).tolist(), line.text
    for low, high in windows(year, len(expected), chance):
        listed = [seconds_from(year, found) for found in schedule.between(at(year, low - 1), at(year, high - 1))]
        assert listed == expected[(expected >= low) & (expected < high)].tolist(), line.text
    for second in (chance.randrange(length) for _ in range(20)):
        assert_neighbours(schedule, year, second, expected, line)


def assert_neighbours(schedule: Schedule, year: Year, second: int, expected: Minutes, line: Line) -> None:
    place = int(np.searchsorted(expected, second, side="right"))
    if place < len(expected):
        assert schedule.next_after(at(year, second)) == at(year, int(expected[place])), line.text
    before = int(np.searchsorted(expected, second, side="left"))
    if before:
        assert schedule.prev_before(at(year, second)) == at(year, int(expected[before - 1])), line.text


def windows(year: Year, count: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    """What is listed: the whole year, or of a dense line the days around the changes and some by chance."""
    length = MINUTES * 60
    if count <= LISTED:
        yield 0, length
        return
    changes = [minute * 60 for minute, _ in year.gaps]
    changes += [next(minutes) * 60 for rests, minutes in stretches(year.rests) if rests]
    for middle in (*changes, *(chance.randrange(length) for _ in range(3))):
        half = min(86_400, LISTED * length // count // 16)
        yield max(middle - half, 0), min(middle + half, length)


def stretches(mask: Mask) -> Iterator[tuple[bool, Iterator[int]]]:
    return ((bool(value), iter(group)) for value, group in groupby(range(len(mask)), key=lambda minute: mask[minute]))


def at(year: Year, second: int) -> datetime:
    return year.start + timedelta(seconds=second)


def seconds_from(year: Year, instant: datetime) -> int:
    return (instant - year.start) // timedelta(seconds=1)
