"""Schedules beside two other calculators, where those are right.

croniter's naive slots are right for plain fields when Debian's rule for days is switched on, no range is equal or
wraps with a step, and no step of a star stands in a list (it may then take the field for a star, although the text
does not begin with one). cronsim is right in zones whose clock changes by whole hours; left out are
- half-hour changes (Lord Howe): it loses the first half hour of a wildcard hour;
- days without a midnight (Santiago, Asuncion) and lost days (Samoa): it loses a day or inserts a run;
- starts within a repeated hour: for a fixed-time slot it then answers with the pass before the start.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pgcron_runner.errors import InvalidInput
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule

COUNT = 15
WHOLE_HOUR_ZONES = ["Etc/UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kolkata"]


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """What all three read alike: stars, their steps, and lists of values and of rising ranges."""
    values, steps = st.integers(low, high), st.integers(2, (high - low + 1) // 2)
    ranges = st.tuples(values, values).filter(lambda ends: ends[0] < ends[1])
    parts = st.one_of(
        values.map(str),
        ranges.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(ranges, steps).map(lambda both: f"{both[0][0]}-{both[0][1]}/{both[1]}"),
    )
    lists = st.lists(parts, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), steps.map(lambda step: f"*/{step}"), lists)


expressions = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)).map(" ".join)
starts = st.datetimes(datetime(2000, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def parse(expression: str, zone: str) -> Schedule:
    try:
        return parse_schedule(expression, zone)
    except InvalidInput as refusal:
        assume("never comes" not in refusal.problem)
        raise


def following(schedule: Schedule, start: datetime, count: int) -> list[datetime]:
    found = [start]
    for _ in range(count):
        at = schedule.next_after(found[-1])
        assert at is not None
        found.append(at)
    return found[1:]


@settings(deadline=None, max_examples=200)
@given(expressions, starts)
def test_naive_slots_agree_with_croniter_forwards_and_back(expression: str, start: datetime) -> None:
    schedule = parse(expression, "Etc/UTC")
    other = croniter(expression, start, ret_type=datetime, implement_cron_bug=True)
    found = following(schedule, start, COUNT)
    assert found == [other.get_next() for _ in found]
    backwards = croniter(expression, found[-1], ret_type=datetime, implement_cron_bug=True)
    for earlier in reversed(found[:-1]):
        assert schedule.prev_before(earlier + timedelta(seconds=1)) == earlier == backwards.get_prev()


@settings(deadline=None, max_examples=300)
@given(expressions, st.sampled_from(WHOLE_HOUR_ZONES), starts)
def test_zones_agree_with_cronsim(expression: str, zone: str, start: datetime) -> None:
    schedule = parse(expression, zone)
    local = start.astimezone(check_timezone(zone))
    other = CronSim(expression, local)
    expected = [at.astimezone(UTC) for at in islice(other, COUNT)]
    assert following(schedule, start, COUNT) == expected


@pytest.mark.parametrize("change", [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)])
@settings(deadline=None, max_examples=100)
@given(minute=field(0, 59), hour=field(0, 5), before=st.integers(61, 300))
def test_clock_changes_agree_with_cronsim(change: datetime, minute: str, hour: str, before: int) -> None:
    zone = check_timezone("Europe/Berlin")
    start = change - timedelta(minutes=before)
    expression = f"{minute} {hour} * * *"
    other = CronSim(expression, start.astimezone(zone))
    expected = [at.astimezone(UTC) for at in islice(other, COUNT)]
    assert following(parse(expression, "Europe/Berlin"), start, COUNT) == expected


def test_croniter_reads_six_fields_seconds_first_only_when_told() -> None:
    schedule = parse_schedule("*/20 30 2 * * *", "UTC")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    other = croniter("*/20 30 2 * * *", start, ret_type=datetime, second_at_beginning=True)
    assert following(schedule, start, COUNT) == [other.get_next() for _ in range(COUNT)]
