"""When an attempt is tried again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pgcron_runner.model import RetryPolicy, Status
from pgcron_runner.retry import retry_in

POLICY = RetryPolicy(max_attempts=5, delay=timedelta(seconds=10), backoff=3.0, max_delay=timedelta(seconds=200))


def none() -> float:
    return 0.0


def all_of_it() -> float:
    return 1.0


def test_the_pause_grows_by_the_back_off_up_to_the_cap() -> None:
    pauses = [retry_in(POLICY, Status.FAILED, attempt, spread=none) for attempt in (1, 2, 3, 4)]
    assert pauses == [10, 30, 90, 200]


def test_the_last_attempt_has_no_successor() -> None:
    assert retry_in(POLICY, Status.FAILED, 5) is None
    assert retry_in(RetryPolicy(max_attempts=1), Status.FAILED, 1) is None
    assert retry_in(RetryPolicy(max_attempts=2), Status.FAILED, 1) is not None


@pytest.mark.parametrize("status", list(Status))
def test_only_what_failed_without_being_asked_to_is_tried_again(status: Status) -> None:
    retried = {Status.FAILED, Status.TIMED_OUT, Status.LOST, Status.INTERRUPTED}
    assert (retry_in(POLICY, status, 1) is not None) == (status in retried)


def test_a_huge_number_of_attempts_waits_as_long_as_the_cap() -> None:
    patient = RetryPolicy(max_attempts=100_000, delay=timedelta(seconds=1), backoff=2.0, max_delay=timedelta(hours=1))
    assert retry_in(patient, Status.FAILED, 5_000, spread=none) == 3600
    assert retry_in(patient, Status.FAILED, 99_999, spread=none) == 3600


def test_the_spread_adds_at_most_a_tenth() -> None:
    assert retry_in(POLICY, Status.FAILED, 1, spread=all_of_it) == pytest.approx(11)


def test_no_delay_is_no_delay() -> None:
    at_once = RetryPolicy(max_attempts=3, delay=timedelta(0))
    assert retry_in(at_once, Status.LOST, 2, spread=none) == 0
