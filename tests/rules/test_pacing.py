"""When a message may go, and how much goes into it."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pgcron_runner.pacing import Waiting, alerts_in_message, message_in
from pgcron_runner.retry import alert_retry_in

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def waiting(**changes: Any) -> Waiting:
    values: dict[str, Any] = {"count": 1, "due_in": 0.0, "sent_in_last_minute": 0, "now": NOON}
    return Waiting(**(values | changes))


def test_what_is_due_goes_at_once_and_what_is_not_yet_later() -> None:
    assert message_in(waiting()) == 0
    assert message_in(waiting(count=0, due_in=7.5)) == 7.5
    assert message_in(waiting(count=0, due_in=-1.0)) == 0


@pytest.mark.parametrize(
    ("begin", "end", "now", "hours"),
    [
        ("22:00", "07:00", "2026-03-01T21:59", 0),
        ("22:00", "07:00", "2026-03-01T22:00", 9),
        ("22:00", "07:00", "2026-03-02T06:00", 1),
        ("22:00", "07:00", "2026-03-02T07:00", 0),
        ("01:00", "05:00", "2026-03-02T00:59", 0),
        ("01:00", "05:00", "2026-03-02T01:00", 4),
        ("01:00", "05:00", "2026-03-02T05:00", 0),
        ("05:00", "05:00", "2026-03-02T05:00", 0),
        # The night in which an hour is missing, and the one in which an hour comes twice.
        ("22:00", "07:00", "2026-03-28T23:00", 7),
        ("22:00", "07:00", "2026-10-24T23:00", 9),
    ],
)
def test_quiet_hours_are_those_of_the_channels_zone(begin: str, end: str, now: str, hours: float) -> None:
    zone = "Europe/Berlin"
    at = datetime.fromisoformat(now).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    quiet = waiting(now=at, timezone=zone, quiet_from=time.fromisoformat(begin), quiet_until=time.fromisoformat(end))
    assert message_in(quiet) == hours * 3600


def test_a_digest_goes_once_in_its_time_and_the_first_at_once() -> None:
    assert message_in(waiting(digest_every=timedelta(hours=1))) == 0
    told = waiting(digest_every=timedelta(hours=1), told_at=NOON - timedelta(minutes=20))
    assert message_in(told) == 40 * 60
    assert message_in(waiting(digest_every=timedelta(hours=1), told_at=NOON - timedelta(hours=2))) == 0
    assert alerts_in_message(told) > 100


def test_few_alerts_are_messages_of_their_own_and_many_are_one() -> None:
    assert [alerts_in_message(waiting(count=count)) for count in (1, 3)] == [1, 1]
    assert alerts_in_message(waiting(count=4)) > 100


def test_a_storm_is_slowed_down() -> None:
    assert message_in(waiting(sent_in_last_minute=4)) == 0
    assert message_in(waiting(sent_in_last_minute=5)) == 15


def test_what_was_not_taken_is_tried_later_each_time_and_never_beyond_a_bound() -> None:
    pauses = [alert_retry_in(tries) for tries in range(1, 12)]
    assert pauses[:4] == [5, 10, 20, 40]
    assert pauses == sorted(pauses)
    assert pauses[-1] == alert_retry_in(100_000) == 900
    assert alert_retry_in(1, 60.0) == 60
    assert alert_retry_in(1, 1.0) == 5
    assert alert_retry_in(1, 1e9) == 24 * 3600
