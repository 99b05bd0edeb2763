"""Who may be believed alive: every rule on the observer's own clock, set by the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from pgcron_runner.leases import Beat, ClockWatch, Watch, beat_interval, own_deadline

A, B = uuid4(), uuid4()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_worker_whose_beat_moves_is_alive_whatever_the_wall_clocks_say() -> None:
    watch = Watch(own_lease=30)
    for beat in range(20):
        watch, silent = watch.observe([Beat(A, beat, 30.0)], now=100.0 + beat * 29)
        assert silent == []


def test_a_beat_that_stands_still_for_a_whole_lease_is_a_dead_worker() -> None:
    watch, silent = Watch(own_lease=30).observe([Beat(A, 5, 30.0), Beat(B, 9, 60.0)], now=0)
    watch, silent = watch.observe([Beat(A, 5, 30.0), Beat(B, 9, 60.0)], now=29.9)
    assert silent == []
    watch, silent = watch.observe([Beat(A, 5, 30.0), Beat(B, 9, 60.0)], now=30)
    assert silent == [Beat(A, 5, 30.0)]
    _, silent = watch.observe([Beat(A, 5, 30.0), Beat(B, 9, 60.0)], now=60)
    assert [beat.worker_id for beat in silent] == [A, B]


def test_an_observer_that_has_just_begun_waits_a_whole_lease_before_it_judges() -> None:
    _, silent = Watch(own_lease=5).observe([Beat(A, 5, 30.0)], now=1e9)
    assert silent == []


def test_one_beat_after_silence_starts_the_count_anew() -> None:
    watch, _ = Watch(own_lease=30).observe([Beat(A, 5, 30.0)], now=0)
    watch, _ = watch.observe([Beat(A, 6, 30.0)], now=29)
    _, silent = watch.observe([Beat(A, 6, 30.0)], now=58)
    assert silent == []


def test_a_deleted_row_is_waited_for_as_long_as_its_last_known_lease() -> None:
    watch, _ = Watch(own_lease=10).observe([Beat(A, 5, 60.0)], now=0)
    watch, _ = watch.observe([Beat(A, None, None)], now=1)
    watch, silent = watch.observe([Beat(A, None, None)], now=60)
    assert silent == []
    _, silent = watch.observe([Beat(A, None, None)], now=61)
    assert silent == [Beat(A, None, None)]


def test_a_worker_that_is_no_longer_listed_is_forgotten() -> None:
    watch, _ = Watch(own_lease=10).observe([Beat(A, 5, 10.0)], now=0)
    watch, _ = watch.observe([], now=5)
    assert watch.sightings == {}


def test_the_owner_stops_well_before_any_observer_may_act() -> None:
    lease, sent = 30.0, 100.0
    # The earliest observer saw the beat at the moment it was sent, on a clock that runs 5 % fast.
    earliest_action = sent + lease * 0.95
    # The owner's clock runs 5 % slow.
    latest_stop = sent + (own_deadline(sent, lease) - sent) * 1.05
    assert latest_stop < earliest_action
    assert beat_interval(lease) * 3 < own_deadline(sent, lease) - sent


def test_a_step_of_the_database_clock_is_noticed_and_accepted_after_ten_steady_seconds() -> None:
    clock = ClockWatch().observe(NOON, 1000.0)
    clock = clock.observe(NOON + timedelta(seconds=5, milliseconds=300), 1005.0)
    assert clock.steady
    clock = clock.observe(NOON + timedelta(seconds=70), 1010.0)
    assert not clock.steady
    clock = clock.observe(NOON + timedelta(seconds=79), 1019.0)
    assert not clock.steady
    clock = clock.observe(NOON + timedelta(seconds=80), 1020.0)
    assert clock.steady


def test_a_second_step_while_waiting_starts_the_count_anew() -> None:
    clock = ClockWatch().observe(NOON, 0.0).observe(NOON + timedelta(seconds=60), 1.0)
    clock = clock.observe(NOON - timedelta(seconds=60), 9.0)
    assert not clock.observe(NOON - timedelta(seconds=57), 12.0).steady
    assert clock.observe(NOON - timedelta(seconds=50), 19.0).steady


def test_slow_drift_is_no_step() -> None:
    clock = ClockWatch()
    for second in range(0, 3600, 5):
        clock = clock.observe(NOON + timedelta(seconds=second * 1.001), float(second))
        assert clock.steady
