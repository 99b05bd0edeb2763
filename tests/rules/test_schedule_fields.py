"""What each field of a cron expression accepts, what it means, and what is said otherwise."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgcron_runner.errors import InvalidInput
from pgcron_runner.schedule import parse_expression, parse_schedule
from pgcron_runner.schedule.fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Field,
    FieldError,
    read_field,
    stable_hash,
)

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


def dates(expression: str, count: int, start: datetime = NEW_YEAR) -> list[str]:
    """The days of the next occurrences, as MM-DD."""
    found, at = [], start - timedelta(seconds=1)
    for _ in range(count):
        following = parse_schedule(expression, "Etc/UTC").next_after(at)
        assert following is not None
        at = following
        found.append(f"{at:%m-%d}")
    return found


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        (HOUR, "22-2", [0, 1, 2, 22, 23]),
        (HOUR, "22-2/2", [0, 2, 22]),
        (HOUR, "21-2/2", [1, 21, 23]),
        (MINUTE, "50-10/20", [10, 50]),
        (DAY_OF_MONTH, "25-5/3", [3, 25, 28, 31]),
        (MONTH, "nov-feb", [1, 2, 11, 12]),
        (MONTH, "Oct-APR/3", [1, 4, 10]),
        (DAY_OF_WEEK, "fri-mon", [0, 1, 5, 6]),
        (DAY_OF_WEEK, "fri-sun", [0, 5, 6]),
        (DAY_OF_WEEK, "sat-sun", [0, 6]),
        (DAY_OF_WEEK, "sun-tue", [0, 1, 2]),
        (DAY_OF_WEEK, "7-2", [0, 1, 2]),
        (DAY_OF_WEEK, "7-0", [0]),
        (DAY_OF_WEEK, "0-7", [0, 1, 2, 3, 4, 5, 6]),
        (DAY_OF_WEEK, "0-7/7", [0]),
        (DAY_OF_WEEK, "5-0", [0, 5, 6]),
        (DAY_OF_WEEK, "sun-sat/3", [0, 3, 6]),
        (DAY_OF_WEEK, "1/2", [1, 3, 5]),
        (DAY_OF_WEEK, "7/3", [0, 3, 6]),
        (MINUTE, "*/60", [0]),
        (MINUTE, "59/15", [59]),
        (MINUTE, "*,5", list(range(60))),
        (MINUTE, "5,5,1-3,2", [1, 2, 3, 5]),
        (HOUR, "05,007", [5, 7]),
        (DAY_OF_MONTH, "?", list(range(1, 32))),
    ],
)
def test_values(field: Field, text: str, values: list[int]) -> None:
    assert list(read_field(field, text).values) == values


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L-2 * *", ["01-29", "02-26", "03-29"]),
        ("0 0 L-30 * *", ["01-01", "03-01", "05-01"]),
        ("0 0 1W * *", ["01-01", "02-02", "03-02", "04-01", "05-01", "06-01", "07-01", "08-03"]),
        ("0 0 15W * *", ["01-15", "02-16", "03-16", "04-15", "05-15"]),
        ("0 0 31W * *", ["01-30", "03-31", "05-29"]),
        ("0 0 lw * *", ["01-30", "02-27", "03-31"]),
        ("0 0 1,LW * *", ["01-01", "01-30", "02-01", "02-27"]),
        ("0 0 * * fri#1,mon", ["01-02", "01-05", "01-12"]),
        ("0 0 * * FRIL", ["01-30", "02-27"]),
        ("0 0 * * L5", ["01-30", "02-27"]),
        ("0 0 * * 0L,7#1", ["01-04", "01-25", "02-01", "02-22"]),
        ("0 0 15W * 5#1", ["01-02", "01-15", "02-06", "02-16"]),
        ("0 0 ? * 1", ["01-05", "01-12"]),
        ("0 0 1 * ?", ["01-01", "02-01"]),
        ("0 0 */2 * 1", ["01-05", "01-19", "02-09"]),
        ("0 0 *,1 * 1", ["01-05", "01-12"]),
        ("0 0 29 2 */7", ["02-29"]),
    ],
)
def test_days(expression: str, expected: list[str]) -> None:
    assert dates(expression, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "said", "example"),
    [
        ("*/90 * * * *", "minute field '*/90': the step in '*/90' is larger", "@every 90m"),
        ("* */36 * * *", "hour field", "@every 36h"),
        ("*/0 * * * *", "the step in '*/0' is 0", "* * * * *"),
        ("5/0 * * * *", "is 0", "* * * * *"),
        ("1-5/x * * * *", "the step in '1-5/x' is not a number", "*/2 * * * *"),
        ("60 * * * *", "60 is not from 0 to 59", "59 * * * *"),
        ("0 24 * * *", "hour field '24': 24 is not from 0 to 23", "0 23 * * *"),
        ("0 0 0 * *", "0 is not from 1 to 31", "0 0 1 * *"),
        ("0 0 32 * *", "32 is not from 1 to 31", "0 0 31 * *"),
        ("0 0 * 13 *", "month field", "0 0 * 12 *"),
        ("0 0 * * 8", "8 is not from 0 to 7", "0 0 * * 7"),
        ("0 0 * * mon,Friday", "'Friday' must be written with three letters, 'fri'", "0 0 * * mon,fri"),
        ("0 0 * january *", "'jan'", "0 0 * jan *"),
        ("0 0 * mon *", "'mon' is a name for the day-of-week field", "0 9 * * mon-fri"),
        ("0 0 * * may", "'may' is a name for the month field", "0 9 * * mon-fri"),
        ("mon * * * *", "minute field", "0 9 * * mon-fri"),
        ("? * * * *", "belongs in a day field only", "* * * * *"),
        ("* L * * *", "hour field 'L'", "* * * * *"),
        ("0 0 * * L", "'L' needs its weekday", "0 0 * * 5L"),
        ("0 0 * * 5#6", "must count from 1 to 5", "0 0 * * 5#1"),
        ("0 0 * * 5#0", "must count from 1 to 5", "0 0 * * 5#1"),
        ("0 0 * * 8L", "8 is not from 0 to 7", "0 0 * * 7"),
        ("0 0 L-31 * *", "before the first of every month", "0 0 L-3 * *"),
        ("0 0 32W * *", "32 is not from 1 to 31", "0 0 31 * *"),
        ("R * * * *", "'H' is stable", "H * * * *"),
        ("R(0-5) * * * *", "is no value, range or step", "0 9 * * mon-fri"),
        ("H(5-1) * * * *", "runs backwards", "H(0-59) * * * *"),
        ("H(0-99) * * * *", "99 is not from 0 to 59", "59 * * * *"),
        ("H/0 * * * *", "is 0", "* * * * *"),
        ("H/61 * * * *", "larger than the field", "@every 61m"),
        ("1,,2 * * * *", "it has an empty item", "0 9 * * mon-fri"),
        ("1, * * * *", "it has an empty item", "0 9 * * mon-fri"),
        ("*-5 * * * *", "mixes '*' with a range", "0-59 * * * *"),
        ("1-2-3 * * * *", "is no value, range or step", "0 9 * * mon-fri"),
        ("-1 * * * *", "cut off", "0 9 * * mon-fri"),
        ("1.5 * * * *", "is no value", "0 9 * * mon-fri"),
        ("* * * *", "has 4 fields where 5 or 6 are wanted", "0 9 * * mon-fri"),
        ("0 0 12 ? * MON 2027", "there is no year field", "0 0 12 ? * MON"),
        ("0 12 1 1 * 2027", "2027 is not from 0 to 7, and there is no year field", "0 12 1 1 * 7"),
        ("15 14 1 * mon 30", "of six fields the first is the seconds", "30 15 14 1 * mon"),
        ("30 seconds", "is an interval", "@every 30 seconds"),
        ("every 5 minutes", "is an interval", "@every 5 minutes"),
        ("@daly", "is not one of @yearly", "@daily"),
        ("@minutely", "has no macro", "* * * * *"),
        ("@daily 5", "is not one of", "@daily"),
        ("", "is empty", "0 9 * * mon-fri"),
        ("0 9 * * *\x7f", "U+007F", "0 9 * * *"),
        ("0 9 * * *\u200b", "ZERO WIDTH SPACE) at position 10", "0 9 * * *"),
        ("0 9 * * 1\u20135", "U+2013 (EN DASH)", "0 9 * * 15"),
        ("0 9 * * * # nightly", "holds a comment", "0 9 * * *"),
        ("1," * 501 + "1 * * * *", "is longer than 1000 characters", "0 9 * * mon-fri"),
    ],
)
def test_refusals_name_the_field_the_fault_and_what_is_right(expression: str, said: str, example: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_expression(expression)
    assert refusal.value.field == "schedule"
    assert said in str(refusal.value)
    assert str(refusal.value.example).startswith(example)


def test_a_schedule_that_is_no_text_is_refused_and_not_a_crash() -> None:
    for value in (None, 5, ["0 9 * * *"]):
        with pytest.raises(InvalidInput, match=r"schedule: .*is not text"):
            parse_schedule(value, "UTC")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"timezone: .*is not a time-zone name"):
            parse_schedule("0 9 * * *", value)  # type: ignore[arg-type]


@given(st.text(alphabet="0123456789*/-,?LWHR#() \t@abcdefjmnostuw", max_size=40))
def test_whatever_is_written_is_accepted_or_refused_in_words(text: str) -> None:
    with suppress(InvalidInput):
        assert parse_schedule(text, "Europe/Berlin").next_after(NEW_YEAR) is not None


@given(st.text(max_size=30))
def test_any_text_is_accepted_or_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_expression(f"{text}\0")


def test_h_is_the_same_on_every_host_for_ever() -> None:
    drawn = [read_field(field, "H", "nightly-report").values for field in FIELDS]
    assert drawn == [(28,), (40,), (14,), (23,), (4,), (0,)]
    assert stable_hash(MINUTE, "ärger") % 60 == 1


@given(st.sampled_from(FIELDS), st.text(max_size=20), st.data())
def test_h_stays_inside_its_field_and_range(field: Field, name: str, data: st.DataObject) -> None:
    (value,) = read_field(field, "H", name).values
    assert field.low <= value <= min(field.high, 28 if field is DAY_OF_MONTH else 59)
    low = data.draw(st.integers(field.low, field.high))
    high = data.draw(st.integers(low, field.high))
    (value,) = read_field(field, f"H({low}-{high})", name).values
    assert low <= value <= high
    step = data.draw(st.integers(1, field.size))
    series = read_field(field, f"H({low}-{high})/{step}", name).values
    assert series == tuple(range(series[0], high + 1, step))
    assert low <= series[0] < low + step


def test_h_spreads_jobs_over_the_hour() -> None:
    minutes = [read_field(MINUTE, "H", f"job-{number}").values[0] for number in range(6000)]
    counts = [minutes.count(minute) for minute in range(60)]
    assert min(counts) > 60
    assert max(counts) < 140


def test_h_with_a_step_counts_as_a_wildcard_and_h_alone_as_a_fixed_time() -> None:
    assert parse_expression("H/15 2 * * *", name="a").wildcard
    assert not parse_expression("H 2 * * *", name="a").wildcard
    assert not parse_expression("H H(0-7) * * *", name="a").wildcard


def test_only_h_depends_on_the_name() -> None:
    assert parse_schedule("@hourly", "UTC", name="a") is parse_schedule("@hourly", "UTC", name="b")
    assert parse_schedule("0 0 * mar thu", "UTC", name="a") is parse_schedule("0 0 * mar thu", "UTC", name="b")
    one, other = (parse_schedule("h h * * *", "UTC", name=name).next_after(NEW_YEAR) for name in "ab")
    assert one != other


def test_a_field_that_cannot_be_read_keeps_the_rest_of_its_list_in_the_example() -> None:
    with pytest.raises(FieldError) as refusal:
        read_field(HOUR, "1,25,3")
    assert refusal.value.field_example == "1,23,3"
