"""Schedules of several lines, and the lines that are no cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import Schedule, parse_schedule
from pgcron_runner.schedule.instants import CronInstants
from pgcron_runner.schedule.intervals import Every, Once

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)

FIRST, LAST = datetime(1990, 1, 1), datetime(2040, 1, 1)  # noqa: DTZ001  hypothesis wants its bounds naive
instants = st.datetimes(FIRST, LAST, timezones=st.just(UTC))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(schedule: Schedule, start: str, count: int) -> list[str]:
    at, found = utc(start), []
    for _ in range(count):
        following = schedule.next_after(at)
        assert following is not None
        at = following
        found.append(at.strftime("%Y-%m-%d %H:%M"))
    return found


# -- one line ----------------------------------------------------------------------------------------------------


def test_occurrences_are_whole_seconds_in_utc() -> None:
    schedule = parse_schedule("* * * * *", "Asia/Kolkata")
    at = schedule.next_after(datetime(2026, 5, 1, 10, 0, 0, 1, tzinfo=timezone(timedelta(hours=9))))
    assert at == utc("2026-05-01T01:01:00")
    assert at.tzinfo is UTC


def test_a_naive_instant_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError):
        parse_schedule("* * * * *", "UTC").next_after(datetime(2026, 5, 1))  # noqa: DTZ001  the point of the test


def test_prev_is_strictly_before_and_next_strictly_after_between_seconds_too() -> None:
    schedule = parse_schedule("0 0 9 * * *", "UTC")
    nine = utc("2026-05-01T09:00:00")
    tick = timedelta(microseconds=1)
    assert schedule.next_after(nine - tick) == nine
    assert schedule.next_after(nine) == nine + timedelta(days=1)
    assert schedule.prev_before(nine + tick) == nine
    assert schedule.prev_before(nine) == nine - timedelta(days=1)


def test_ranges_are_open_at_the_start_and_closed_at_the_end() -> None:
    schedule = parse_schedule("*/10 * * * *", "UTC")
    start, end = utc("2026-05-01T09:00:00"), utc("2026-05-01T09:30:00")
    assert [at.minute for at in schedule.between(start, end)] == [10, 20, 30]
    assert schedule.count_between(start, end) == 3
    assert schedule.count_between(end, start) == 0
    assert list(schedule.between(end, start)) == []


def test_a_year_of_seconds_is_counted_without_walking() -> None:
    schedule = parse_schedule("* * * * * *", "Europe/Berlin")
    start = utc("2026-01-01T00:00:00")
    assert schedule.count_between(start, start + timedelta(days=365)) == 365 * 86_400
    start, end = utc("1600-01-01T00:00:00"), utc("2600-01-01T00:00:00")
    assert schedule.count_between(start, end) == (end - start) // SECOND


def test_the_ends_of_the_calendar_are_no_crash() -> None:
    schedule = parse_schedule("0 0 29 2 *", "Pacific/Auckland")
    assert schedule.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert schedule.next_after(utc("9996-03-01T00:00:00")) is None
    assert schedule.prev_before(datetime.min.replace(tzinfo=UTC)) is None
    assert schedule.prev_before(utc("0003-03-01T00:00:00")) is None


# -- the choices of a job ----------------------------------------------------------------------------------------


def test_a_skipped_slot_may_be_dropped() -> None:
    start = "2026-03-28T12:00"
    made_up = parse_schedule("30 1 * * *", "Europe/London")
    dropped = parse_schedule("30 1 * * *", "Europe/London", dst_gap=DstGap.SKIP)
    assert first(made_up, start, 2) == ["2026-03-29 01:00", "2026-03-30 00:30"]
    assert first(dropped, start, 2) == ["2026-03-30 00:30", "2026-03-31 00:30"]
    day = utc("2026-03-29T00:00:00"), utc("2026-03-30T00:00:00")
    assert (made_up.count_between(*day), dropped.count_between(*day)) == (1, 0)


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        (DstRepeat.FIRST, ["2026-11-01 05:30", "2026-11-02 06:30"]),
        (DstRepeat.LAST, ["2026-11-01 06:30", "2026-11-02 06:30"]),
        (DstRepeat.BOTH, ["2026-11-01 05:30", "2026-11-01 06:30"]),
    ],
)
def test_a_repeated_slot_runs_on_the_pass_the_job_wants(repeat: DstRepeat, expected: list[str]) -> None:
    schedule = parse_schedule("30 1 * * *", "America/New_York", dst_repeat=repeat)
    assert first(schedule, "2026-10-31T12:00", 2) == expected


@pytest.mark.parametrize("repeat", DstRepeat)
def test_the_last_pass_begins_where_the_clock_is_set_back(repeat: DstRepeat) -> None:
    schedule = parse_schedule("0,59 0,1,2 * * *", "America/New_York", dst_repeat=repeat)
    day = list(schedule.between(utc("2026-11-01T03:59:59"), utc("2026-11-01T08:00:00")))
    once = {DstRepeat.FIRST: ["05:00", "05:59"], DstRepeat.LAST: ["06:00", "06:59"]}
    twice = ["05:00", "05:59", "06:00", "06:59"]
    assert [f"{at:%H:%M}" for at in day] == [
        "04:00",
        "04:59",
        *once.get(repeat, twice),
        "07:00",
        "07:59",
    ]


@pytest.mark.parametrize("repeat", DstRepeat)
@pytest.mark.parametrize("gap", DstGap)
def test_wildcard_jobs_have_no_choice(repeat: DstRepeat, gap: DstGap) -> None:
    schedule = parse_schedule("*/30 * * * *", "America/New_York", dst_gap=gap, dst_repeat=repeat)
    for day in ("2026-03-08", "2026-11-01"):
        start = utc(f"{day}T00:00:00")
        assert schedule.count_between(start, start + timedelta(days=1)) == 48


# -- several lines -----------------------------------------------------------------------------------------------


def test_several_lines_are_a_union_without_doubles() -> None:
    schedule = parse_schedule("0 9 * * *\r\n\n  30 9 * * *\n*/30 9 * * 1\n", "UTC")
    assert first(schedule, "2026-05-01T00:00", 4) == [
        "2026-05-01 09:00",
        "2026-05-01 09:30",
        "2026-05-02 09:00",
        "2026-05-02 09:30",
    ]
    start = utc("2026-05-01T00:00:00")
    assert schedule.count_between(start, start + timedelta(days=7)) == 14


def test_a_made_up_slot_of_one_line_and_a_real_one_of_another_are_one_instant() -> None:
    schedule = parse_schedule("30 1 * * *\n0 2 * * *\n0 * * * *", "Europe/London")
    start = utc("2026-03-29T00:30:00")
    assert first(schedule, "2026-03-29T00:30", 2) == ["2026-03-29 01:00", "2026-03-29 02:00"]
    assert schedule.count_between(start, start + timedelta(minutes=30)) == 1


def test_counting_a_union_walks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(*_: object) -> NoReturn:
        raise AssertionError("it was walked")

    for source in (Every, Once, CronInstants):
        monkeypatch.setattr(source, "walk", walk)
    start, year = utc("2027-01-01T00:00"), 365 * 86_400
    for text, count in (
        ("@every 1s\n0 3 * * *", year),
        ("@every 2s\n1/2 * * * * *", year),
        ("@every 60s\n*/5 * * * *\n@at 2027-05-05T05:05:05Z", year // 60 + 1),
        # One in two, one in three, less those that are both.
        ("@every 2s\n@every 3s", year // 2 + year // 3 - year // 6),
    ):
        assert parse_schedule(text, "Europe/Berlin").count_between(start, start + timedelta(days=365)) == count


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["*/7 * * * *", "0 9 * * 1", "@every 17m", "@every 1h", "0 0 L * *", "@at 2026-03-29T02:30", "@daily"]
        ),
        min_size=1,
        max_size=4,
    ),
    st.datetimes(datetime(2026, 3, 26), datetime(2026, 4, 2), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_a_union_is_the_sorted_set_of_its_lines(texts: list[str], start: datetime) -> None:
    end = start + timedelta(days=3)
    union = parse_schedule("\n".join(texts), "Europe/Berlin")
    parts = [set(parse_schedule(text, "Europe/Berlin").between(start, end)) for text in texts]
    expected = sorted(set().union(*parts))
    assert list(union.between(start, end)) == expected
    assert union.count_between(start, end) == len(expected)
    assert (
        union.next_after(start)
        == min(at for text in texts if (at := parse_schedule(text, "Europe/Berlin").next_after(start)))
        if expected
        else True
    )
    if expected:
        assert union.prev_before(end + timedelta(microseconds=1)) == expected[-1]


def test_one_wrong_line_refuses_the_whole_and_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"schedule: '61 \* \* \* \*' .*minute field"):
        parse_schedule("0 9 * * *\n61 * * * *", "UTC")


# -- @every ------------------------------------------------------------------------------------------------------


@given(instants, st.integers(1, 10**7))
def test_intervals_are_anchored_to_the_epoch(instant: datetime, seconds: int) -> None:
    schedule = parse_schedule(f"@every {seconds}s", "Pacific/Apia")
    later, earlier = schedule.next_after(instant), schedule.prev_before(instant)
    assert later is not None
    assert earlier is not None
    assert earlier < instant < later
    assert later - earlier in (seconds * SECOND, 2 * seconds * SECOND)
    assert (later - EPOCH) % (seconds * SECOND) == timedelta(0)
    assert schedule.count_between(earlier, later) == (later - earlier) // (seconds * SECOND)


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("@every 90s", timedelta(seconds=90)),
        ("@every 1h30m", timedelta(minutes=90)),
        ("@EVERY  7 days", timedelta(days=7)),
        ("  @every 1.5h ", timedelta(minutes=90)),
    ],
)
def test_interval_forms(text: str, period: timedelta) -> None:
    schedule = parse_schedule(text, "UTC")
    assert schedule.next_after(EPOCH) == EPOCH + period
    assert schedule.prev_before(EPOCH) == EPOCH - period


def test_an_interval_ignores_clock_changes_but_its_zone_must_be_right() -> None:
    schedule = parse_schedule("@every 1h", "Europe/Berlin")
    assert first(schedule, "2026-10-25T00:00", 2) == ["2026-10-25 01:00", "2026-10-25 02:00"]
    with pytest.raises(InvalidInput, match="timezone"):
        parse_schedule("@every 1h", "Europe/Berln")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@every", "has no duration"),
        ("@every 5", "has no unit"),
        ("@every 0s", "is shorter than 1s"),
        ("@every 500ms", "is shorter than 1s"),
        ("@every 1500ms", "is not in whole seconds"),
        ("@every -5m", "is not a duration"),
        ("@every fortnight", "is not a duration"),
        ("@every 10m after lunch", "is not a duration"),
        ("@every 0s after finish", "is shorter than 1s"),
        ("@every 200000 weeks", "longer than a hundred years"),
    ],
)
def test_wrong_intervals(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refusal:
        parse_schedule(text, "UTC")
    assert refusal.value.field == "schedule"
    assert "@every 90s" in str(refusal.value)


@given(instants)
def test_after_finish_counts_from_the_instant_it_is_given(instant: datetime) -> None:
    schedule = parse_schedule("@every 10m after finish", "Europe/Berlin")
    assert schedule.after_finish == timedelta(minutes=10)
    assert schedule.next_after(instant) == instant + timedelta(minutes=10)
    assert schedule.prev_before(instant) is None
    assert list(schedule.between(EPOCH, instant)) == []
    assert schedule.count_between(EPOCH, instant) == 0


# -- @at and @manual ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("@at 2027-01-31T09:00", "Europe/Berlin", "2027-01-31 08:00"),
        ("@at 2027-01-31 09:00:00", "Europe/Berlin", "2027-01-31 08:00"),
        ("@AT 2027-01-31t09:00z", "Europe/Berlin", "2027-01-31 09:00"),
        ("@at 2027-01-31T09:00-05:00", "Europe/Berlin", "2027-01-31 14:00"),
        ("@at 2027-01-31 09:00 +0530", "Europe/Berlin", "2027-01-31 03:30"),
        ("@at 2026-03-29T02:30", "Europe/Berlin", "2026-03-29 01:00"),
        ("@at 2026-10-25T02:30", "Europe/Berlin", "2026-10-25 00:30"),
        ("@at 2011-12-30T09:00", "Pacific/Apia", "2011-12-30 10:00"),
    ],
)
def test_once(text: str, zone: str, expected: str) -> None:
    schedule = parse_schedule(text, zone)
    at = schedule.next_after(EPOCH)
    assert at == utc(expected)
    assert schedule.next_after(at) is None
    assert schedule.prev_before(at) is None
    assert schedule.prev_before(at + SECOND) == at
    assert list(schedule.between(at - SECOND, at)) == [at]
    assert schedule.count_between(at, at + SECOND) == 0


def test_once_follows_the_choices_of_the_job() -> None:
    last = parse_schedule("@at 2026-10-25T02:30", "Europe/Berlin", dst_repeat=DstRepeat.LAST)
    both = parse_schedule("@at 2026-10-25T02:30", "Europe/Berlin", dst_repeat=DstRepeat.BOTH)
    assert last.next_after(EPOCH) == utc("2026-10-25T01:30")
    assert both.count_between(EPOCH, utc("2027-01-01T00:00")) == 1
    with pytest.raises(InvalidInput, match="clocks of Europe/Berlin skip"):
        parse_schedule("@at 2026-03-29T02:30", "Europe/Berlin", dst_gap=DstGap.SKIP)


@pytest.mark.parametrize(
    "text",
    [
        "@at",
        "@at noon",
        "@at 2027-01-31",
        "@at 2027-1-31T9:00",
        "@at 2027-02-30T09:00",
        "@at 2027-01-31T24:00",
        "@at 2027-01-31T09:00:00.5",
        "@at 0001-01-01T00:00",
        "@at 9999-12-31T23:00-05:00",
        "@at 2027-W05-7T09:00",
    ],
)
def test_wrong_moments(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_schedule(text, "UTC")
    assert refusal.value.field == "schedule"
    assert refusal.value.example == "@at 2027-01-31T09:00"


def test_a_manual_job_is_never_due() -> None:
    schedule = parse_schedule(" @Manual ", "Europe/Berlin")
    assert schedule.is_manual
    assert schedule.next_after(EPOCH) is None
    assert schedule.prev_before(EPOCH) is None
    assert list(schedule.between(EPOCH, utc("2030-01-01"))) == []
    assert schedule.count_between(EPOCH, utc("2030-01-01")) == 0
    assert not parse_schedule("@daily", "UTC").is_manual


@pytest.mark.parametrize("alone", ["@manual", "@every 10m after finish"])
def test_some_lines_must_stand_alone(alone: str) -> None:
    with pytest.raises(InvalidInput, match="must stand alone"):
        parse_schedule(f"0 9 * * *\n{alone}", "UTC")


def test_equal_questions_share_one_schedule() -> None:
    assert parse_schedule("0 9 * * *", "UTC") is parse_schedule("0 9 * * *", "UTC")
    assert parse_schedule("0 9 * * *", "UTC") is not parse_schedule("0 9 * * *", "Europe/London")
