"""Schedules over all zones against a second reading of the rules: a replay of the Vixie daemon, minute by minute."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule

# A long run: PGCRON_PROPERTY_SCALE=40 tries 40 times as many.
_SCALE = int(os.environ.get("PGCRON_PROPERTY_SCALE", "1"))

MINUTE = timedelta(minutes=1)
NEVER = datetime.min  # noqa: DTZ901  a wall time has no zone
SECOND = timedelta(seconds=1)
LARGEST_CHANGE = timedelta(hours=3)

ZONES = sorted(
    name for name in resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split() if "/" in name
)
# Changes that have broken schedulers before: half hours, two hours, midnight, over midnight, three hours, a lost day,
# seven hours back, New Year.
ODD_CHANGES = [
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2025, 3, 30, 1, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2025, 10, 26, 1, tzinfo=UTC)),
    ("America/Santiago", datetime(2025, 9, 7, 4, tzinfo=UTC)),
    ("America/Asuncion", datetime(2024, 3, 24, 3, tzinfo=UTC)),
    ("America/St_Johns", datetime(2007, 11, 4, 2, 31, tzinfo=UTC)),
    ("Antarctica/Casey", datetime(2016, 10, 21, 16, tzinfo=UTC)),
    ("Antarctica/Casey", datetime(2018, 3, 10, 17, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, 12, tzinfo=UTC)),
    ("Antarctica/Vostok", datetime(1994, 2, 1, 0, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2015, 8, 14, 15, tzinfo=UTC)),
    ("Asia/Dhaka", datetime(2009, 12, 31, 18, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 3, 22, 2, tzinfo=UTC)),
    ("Pacific/Kiritimati", datetime(1994, 12, 31, 10, tzinfo=UTC)),
]


@dataclass(frozen=True)
class Text:
    """A field as text, with the values the test itself gives it."""

    text: str
    values: frozenset[int]

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True)
class Line:
    """An expression whose meaning the test knows without parsing."""

    second: Text
    minute: Text
    hour: Text
    day: Text
    month: Text
    weekday: Text

    @property
    def text(self) -> str:
        fields = [self.minute, self.hour, self.day, self.month, self.weekday]
        if self.second.text != "":
            fields.insert(0, self.second)
        return " ".join(field.text for field in fields)

    @property
    def wildcard(self) -> bool:
        return self.minute.starred or self.hour.starred

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minute.values or wall.hour not in self.hour.values:
            return False
        if wall.second not in self.second.values or wall.month not in self.month.values:
            return False
        day, weekday = wall.day in self.day.values, wall.isoweekday() % 7 in self.weekday.values
        return day and weekday if self.day.starred or self.weekday.starred else day or weekday


NO_SECONDS = Text("", frozenset({0}))


def _series(low: int, high: int, first: int, last: int, step: int) -> frozenset[int]:
    """first, first + step … up to last, on a ring from low to high."""
    found, value, gone, reach = set(), first, 0, (last - first) % (high - low + 1)
    while gone <= reach:
        found.add(value)
        for _ in range(step):
            value = low if value == high else value + 1
        gone += step
    return frozenset(found)


@st.composite
def parts(draw: st.DrawFn, low: int, high: int, near: tuple[int, ...]) -> Text:
    prefers_near = draw(st.booleans()) and bool(near)
    values = st.sampled_from(near) if prefers_near else st.integers(low, high)
    size = high - low + 1
    match draw(st.sampled_from(["star", "steps", "one", "one", "range", "range steps", "start steps"])):
        case "star":
            return Text("*", frozenset(range(low, high + 1)))
        case "steps":
            step = draw(st.integers(1, size))
            return Text(f"*/{step}", frozenset(range(low, high + 1, step)))
        case "one":
            value = draw(values)
            return Text(str(value), frozenset({value}))
        case "range":
            first, last = draw(values), draw(values)
            return Text(f"{first}-{last}", _series(low, high, first, last, 1))
        case "range steps":
            first, last, step = draw(values), draw(values), draw(st.integers(1, size))
            return Text(f"{first}-{last}/{step}", _series(low, high, first, last, step))
        case _:
            first, step = draw(values), draw(st.integers(1, size))
            return Text(f"{first}/{step}", frozenset(range(first, high + 1, step)))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, near: tuple[int, ...] = ()) -> Text:
    found = draw(st.lists(parts(low, high, near), min_size=1, max_size=3))
    return Text(",".join(p.text for p in found), frozenset().union(*(p.values for p in found)))


def every(low: int, high: int) -> st.SearchStrategy[Text]:
    return st.just(Text("*", frozenset(range(low, high + 1))))


def days(low: int, high: int, near: tuple[int, ...] = ()) -> st.SearchStrategy[Text]:
    """Mostly every day, or a window of three days would seldom hold an occurrence."""
    return st.one_of(every(low, high), every(low, high), fields(low, high, near))


@st.composite
def lines(draw: st.DrawFn, around: datetime, *, seconds: bool = False) -> Line:
    """Lines whose hours and dates like to be near a moment of the wall."""
    near = [around + timedelta(hours=hours) for hours in (-3, -2, -1, 0, 1, 2, 3)]
    return Line(
        draw(fields(0, 59)) if seconds else NO_SECONDS,
        draw(fields(0, 59, (0, 1, 15, 30, 45, 59))),
        draw(fields(0, 23, tuple(wall.hour for wall in near))),
        draw(days(1, 31, (around.day,))),
        draw(days(1, 12, (around.month,))),
        draw(days(0, 6, (around.isoweekday() % 7,))),
    )


@cache
def _changes(name: str) -> list[datetime]:
    """The days from 1990 to 2040 within which a zone's offset changes."""
    zone = check_timezone(name)
    noon = datetime(1990, 1, 1, tzinfo=UTC)
    dates = [noon + timedelta(days=2 * day) for day in range(366 * 25)]
    offsets = [date.astimezone(zone).utcoffset() for date in dates]
    return [dates[i] + timedelta(days=1) for i, (before, after) in enumerate(pairwise(offsets)) if before != after]


@st.composite
def moments(draw: st.DrawFn, *, odd: bool = False) -> tuple[str, datetime]:
    """A zone and an instant: an odd change, or within a day of any change, or anywhere."""
    if odd or draw(st.booleans()):
        return draw(st.sampled_from(ODD_CHANGES))
    name = draw(st.sampled_from(ZONES))
    near_a_change = draw(st.booleans())
    if near_a_change and (changes := _changes(name)):
        return name, draw(st.sampled_from(changes))
    minutes = draw(st.integers(0, 50 * 365 * 24 * 60))
    return name, datetime(1990, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)


def replay(
    text_lines: list[Line],
    zone: ZoneInfo,
    start: datetime,
    end: datetime,
    *,
    tick: timedelta = MINUTE,
    dst_gap: DstGap = DstGap.RUN_AFTER,
    dst_repeat: DstRepeat = DstRepeat.FIRST,
) -> list[datetime]:
    """The occurrences in (start, end]: what a daemon does that wakes at every tick and reads the wall."""
    found = []
    wall = shown = (start.astimezone(zone)).replace(tzinfo=None)
    # Wall times up to here have been seen already; set when the wall goes back.
    seen_until = _seen_before(zone, start, tick)
    now = start
    while now < end:
        now += tick
        wall, shown = now.astimezone(zone).replace(tzinfo=None), wall
        jump = wall - shown - tick
        if timedelta(0) < jump <= LARGEST_CHANGE:
            due = _due_after_gap(text_lines, shown, wall, tick, dst_gap)
        else:
            if -LARGEST_CHANGE <= jump < timedelta(0):
                seen_until = shown
            elif jump:
                seen_until = NEVER
            rests = _rests(zone, now, wall, seen_until, tick, dst_repeat)
            due = any(line.matches(wall) and (line.wildcard or not rests) for line in text_lines)
        if due:
            found.append(now)
    return found


def _due_after_gap(text_lines: list[Line], shown: datetime, wall: datetime, tick: timedelta, gap: DstGap) -> bool:
    if any(line.matches(wall) for line in text_lines):
        return True
    skipped = [shown + tick * count for count in range(1, (wall - shown) // tick)]
    fixed = [line for line in text_lines if not line.wildcard]
    return gap is DstGap.RUN_AFTER and any(line.matches(slot) for line in fixed for slot in skipped)


def _seen_before(zone: ZoneInfo, start: datetime, tick: timedelta) -> datetime:
    """How far the wall had come before the replay began, if it went back in the hours before."""
    instants = [start - MINUTE * count for count in range(200, -1, -1)]
    walls = [instant.astimezone(zone).replace(tzinfo=None) for instant in instants]
    for before, after in pairwise(walls):
        if -LARGEST_CHANGE <= after - before - MINUTE < timedelta(0):
            return before + MINUTE - tick
    return NEVER


def _rests(
    zone: ZoneInfo, now: datetime, wall: datetime, seen_until: datetime, tick: timedelta, repeat: DstRepeat
) -> bool:
    match repeat:
        case DstRepeat.BOTH:
            return False
        case DstRepeat.FIRST:
            return wall <= seen_until
        case DstRepeat.LAST:
            return any((now + MINUTE * later).astimezone(zone).replace(tzinfo=None) == wall for later in LATER_PASSES)


# A wall time comes back after as many minutes as the clock was set back.
LATER_PASSES = (20, 30, 60, 120, 180)


@st.composite
def questions(draw: st.DrawFn, *, odd: bool = False) -> tuple[list[Line], str, datetime]:
    name, moment = draw(moments(odd=odd))
    around = moment.astimezone(check_timezone(name)).replace(tzinfo=None)
    return draw(st.lists(lines(around), min_size=1, max_size=2)), name, moment


def _parse_or_skip(text_lines: list[Line], zone: str, gap: DstGap, repeat: DstRepeat) -> Schedule:
    try:
        return parse_schedule("\n".join(line.text for line in text_lines), zone, dst_gap=gap, dst_repeat=repeat)
    except InvalidInput as refusal:
        assume("never comes" not in refusal.problem)
        raise


def _agree(schedule: Schedule, start: datetime, end: datetime, expected: list[datetime]) -> None:
    """All four questions give the same instants."""
    assert list(schedule.between(start, end)) == expected
    assert schedule.count_between(start, end) == len(expected)
    assert list(_chain(schedule.next_after, start, lambda at: at <= end)) == expected
    assert list(_chain(schedule.prev_before, end + SECOND, lambda at: at > start)) == expected[::-1]


def _chain(
    step: Callable[[datetime], datetime | None], start: datetime, goes_on: Callable[[datetime], bool]
) -> Iterator[datetime]:
    at = step(start)
    while at is not None and goes_on(at):
        yield at
        at = step(at)


_DST_ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
_PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@settings(_PROPERTY, max_examples=250 * _SCALE)
@given(questions(), st.integers(600, 2400), st.integers(600, 2400))
def test_schedules_agree_with_a_replay_of_the_daemon(
    question: tuple[list[Line], str, datetime], before: int, after: int
) -> None:
    text_lines, name, moment = question
    schedule = _parse_or_skip(text_lines, name, DstGap.RUN_AFTER, DstRepeat.FIRST)
    start, end = moment - MINUTE * before, moment + MINUTE * after
    _agree(schedule, start, end, replay(text_lines, check_timezone(name), start, end))


@settings(_PROPERTY, max_examples=120 * _SCALE)
@given(questions(odd=True), st.integers(0, 300), st.sampled_from(DstGap), st.sampled_from(DstRepeat))
def test_the_two_choices_of_a_job_agree_with_the_replay(
    question: tuple[list[Line], str, datetime], before: int, gap: DstGap, repeat: DstRepeat
) -> None:
    text_lines, name, moment = question
    schedule = _parse_or_skip(text_lines, name, gap, repeat)
    start, end = moment - MINUTE * before, moment + timedelta(hours=7)
    zone = check_timezone(name)
    expected = replay(text_lines, zone, start, end, dst_gap=gap, dst_repeat=repeat)
    _agree(schedule, start, end, expected)


@settings(_PROPERTY, max_examples=40 * _SCALE)
@given(st.data(), st.sampled_from(ODD_CHANGES))
def test_seconds_agree_with_a_replay_of_every_second(data: st.DataObject, moment: tuple[str, datetime]) -> None:
    name, at = moment
    zone = check_timezone(name)
    line = data.draw(lines(at.astimezone(zone).replace(tzinfo=None), seconds=True))
    schedule = _parse_or_skip([line], name, DstGap.RUN_AFTER, DstRepeat.FIRST)
    start, end = at - timedelta(minutes=50), at + timedelta(minutes=70)
    expected = replay([line], zone, start, end, tick=SECOND)
    assert list(schedule.between(start, end)) == expected
    assert schedule.count_between(start, end) == len(expected)


@settings(_PROPERTY, max_examples=2 * _SCALE)
@given(
    st.data(), st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]), st.integers(1990, 2039)
)
def test_a_whole_year_agrees_with_a_walk_over_all_its_minutes(data: st.DataObject, name: str, year: int) -> None:
    start = datetime(year, 1, 1, tzinfo=UTC)
    line = data.draw(lines(start.replace(tzinfo=None)))
    schedule = _parse_or_skip([line], name, DstGap.RUN_AFTER, DstRepeat.FIRST)
    end = start + timedelta(days=366)
    expected = replay([line], check_timezone(name), start, end)
    assert list(schedule.between(start, end)) == expected
    assert schedule.count_between(start, end) == len(expected)


@settings(_PROPERTY, max_examples=60 * _SCALE)
@given(questions(), st.integers(1, 400), st.integers(0, 999_999))
def test_long_counts_equal_the_walk_and_split_anywhere(
    question: tuple[list[Line], str, datetime], length: int, microsecond: int
) -> None:
    text_lines, name, moment = question
    schedule = _parse_or_skip(text_lines, name, DstGap.RUN_AFTER, DstRepeat.FIRST)
    start = moment - timedelta(days=length / 2, microseconds=microsecond)
    end = start + timedelta(days=length)
    found = list(schedule.between(start, end))
    assert all(earlier < later for earlier, later in pairwise(found))
    assert schedule.count_between(start, end) == len(found)
    middle = start + (end - start) * (microsecond / 1_000_000)
    halves = schedule.count_between(start, middle) + schedule.count_between(middle, end)
    assert halves == len(found)


@settings(_PROPERTY, max_examples=150 * _SCALE)
@given(
    st.booleans().flatmap(lambda odd: questions(odd=odd)),
    st.lists(st.one_of(st.integers(1, 100), st.integers(101, 200_000)), max_size=4),
    st.lists(st.integers(-200_000, 200_000), max_size=2),
    st.integers(1, 250_000),
    st.integers(0, 999_999),
    st.sampled_from(DstGap),
    st.sampled_from(DstRepeat),
)
def test_a_union_of_anything_is_counted_as_it_is_walked(
    question: tuple[list[Line], str, datetime],
    periods: list[int],
    instants: list[int],
    length: int,
    microsecond: int,
    dst_gap: DstGap,
    dst_repeat: DstRepeat,
) -> None:
    text_lines, name, moment = question
    texts = [line.text for line in text_lines]
    texts += [f"@every {period}s" for period in periods]
    texts += [f"@at {(moment + SECOND * away):%Y-%m-%dT%H:%M:%SZ}" for away in instants]
    start = moment - timedelta(seconds=length / 2, microseconds=microsecond)
    end = start + timedelta(seconds=length)
    _parse_or_skip(text_lines, name, dst_gap, dst_repeat)
    alone = [parse_schedule(text, name, dst_gap=dst_gap, dst_repeat=dst_repeat) for text in texts]
    expected = sorted(set().union(*(schedule.between(start, end) for schedule in alone)))
    union = parse_schedule("\n".join(texts), name, dst_gap=dst_gap, dst_repeat=dst_repeat)
    assert union.count_between(start, end) == len(expected)
    assert list(union.between(start, end)) == expected


@settings(_PROPERTY, max_examples=100 * _SCALE)
@given(questions())
def test_next_and_prev_are_inverse_however_far_apart(question: tuple[list[Line], str, datetime]) -> None:
    text_lines, name, moment = question
    schedule = _parse_or_skip(text_lines, name, DstGap.RUN_AFTER, DstRepeat.FIRST)
    later = schedule.next_after(moment)
    assert later is not None
    earlier = schedule.prev_before(later)
    assert earlier is not None
    assert earlier <= moment < later
    assert schedule.next_after(earlier) == later
    assert schedule.count_between(earlier, later) == 1
