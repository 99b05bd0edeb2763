"""Who may be believed alive: every rule on the observer's own clock, set by the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from pgcron_runner.leases import Beat, ClockWatch, Watch, beat_interval, own_deadline

A, B = uuid4(), uuid4()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def look(watch: Watch, *beats: Beat, since: float, until: float) -> tuple[Watch, list[Beat]]:
    """Looks every few seconds, as a worker does; returns what the last look found."""
    silent: list[Beat] = []
    now = since
    while now < until:
        watch, silent = watch.observe(beats, now)
        assert silent == [], f"judged at {now}, before {until}"
        now += 4.9
    return watch.observe(beats, until)


def test_a_worker_whose_beat_moves_is_alive_whatever_the_wall_clocks_say() -> None:
    watch = Watch(own_lease=30)
    for beat in range(200):
        watch, silent = watch.observe([Beat(A, beat // 5, 30.0)], now=100.0 + beat * 5)
        assert silent == []


def test_a_beat_that_stands_still_for_a_whole_lease_is_a_dead_worker() -> None:
    one, other = Beat(A, 5, 30.0), Beat(B, 9, 60.0)
    watch, silent = look(Watch(own_lease=30), one, other, since=0, until=29.9)
    assert silent == []
    watch, silent = watch.observe([one, other], now=30)
    assert silent == [one]
    watch, silent = watch.observe([other], now=44)
    assert silent == []
    _, silent = look(watch, other, since=50, until=60)
    assert silent == [other]


def test_an_observer_that_has_just_begun_waits_a_whole_lease_before_it_judges() -> None:
    _, silent = Watch(own_lease=5).observe([Beat(A, 5, 30.0)], now=1e9)
    assert silent == []


def test_one_beat_after_silence_starts_the_count_anew() -> None:
    watch, _ = look(Watch(own_lease=30), Beat(A, 5, 30.0), since=0, until=29)
    watch, _ = watch.observe([Beat(A, 6, 30.0)], now=29.5)
    _, silent = look(watch, Beat(A, 6, 30.0), since=34, until=59)
    assert silent == []


def test_after_an_outage_nobodys_silence_counts_that_the_observer_could_not_have_seen_broken() -> None:
    watch, _ = look(Watch(own_lease=30), Beat(A, 5, 30.0), since=0, until=10)
    watch, silent = watch.observe([Beat(A, 5, 30.0)], now=100)
    assert silent == []
    _, silent = look(watch, Beat(A, 5, 30.0), since=104, until=130)
    assert silent == [Beat(A, 5, 30.0)]


def test_a_deleted_row_is_waited_for_as_long_as_its_last_known_lease() -> None:
    watch, _ = Watch(own_lease=10).observe([Beat(A, 5, 60.0)], now=0)
    watch, silent = look(watch, Beat(A, None, None), since=1, until=60.9)
    assert silent == []
    _, silent = watch.observe([Beat(A, None, None)], now=61)
    assert silent == [Beat(A, None, None)]


def test_a_worker_that_is_no_longer_listed_is_forgotten() -> None:
    watch, _ = Watch(own_lease=10).observe([Beat(A, 5, 10.0)], now=0)
    watch, _ = watch.observe([], now=5)
    assert watch.sightings == {}


def test_the_next_look_is_no_later_than_the_end_of_the_first_lease() -> None:
    beats = (Beat(A, 5, 30.0), Beat(B, 9, 60.0))
    watch, silent = look(Watch(own_lease=30), *beats, since=100, until=129)
    assert (silent, watch.look_in(129)) == ([], 1)
    watch, silent = watch.observe(beats, now=130)
    # What could not be reaped then is looked at as often as everything else.
    assert (silent, watch.look_in(130)) == ([Beat(A, 5, 30.0)], 30)
    assert Watch(own_lease=30).look_in(100) is None


def test_the_owner_stops_well_before_any_observer_may_act() -> None:
    lease, sent = 30.0, 100.0
    # The earliest observer saw the beat at the moment it was sent, on a clock that runs 5 % fast.
    earliest_action = sent + lease * 0.95
    # The owner's clock runs 5 % slow.
    latest_stop = sent + (own_deadline(sent, lease) - sent) * 1.05
    assert latest_stop < earliest_action
    assert beat_interval(lease) * 3 < own_deadline(sent, lease) - sent


def reading(clock: ClockWatch, seconds: float, boottime: float, *, took: float = 0.0) -> ClockWatch:
    """The database's clock shows so many seconds after noon; the answer took so long."""
    return clock.observe(NOON + timedelta(seconds=seconds), boottime - took, boottime)


def test_a_step_of_the_database_clock_is_noticed_and_accepted_after_ten_steady_seconds() -> None:
    clock = reading(ClockWatch(), 0, 1000.0)
    clock = reading(clock, 5.3, 1005.0)
    assert clock.steady
    clock = reading(clock, 70, 1010.0)
    assert not clock.steady
    clock = reading(clock, 79, 1019.0)
    assert not clock.steady
    assert reading(clock, 80, 1020.0).steady


def test_a_second_step_while_waiting_starts_the_count_anew() -> None:
    clock = reading(reading(ClockWatch(), 0, 0.0), 60, 1.0)
    clock = reading(clock, -60, 9.0)
    assert not reading(clock, -57, 12.0).steady
    assert reading(clock, -50, 19.0).steady


def test_slow_drift_is_no_step() -> None:
    clock = ClockWatch()
    for second in range(0, 3600, 5):
        clock = reading(clock, second * 1.001, float(second))
        assert clock.steady


def test_an_answer_that_was_read_late_is_no_step() -> None:
    # The worker was stopped between the answer's coming and its reading.
    clock = reading(ClockWatch(), 0, 1000.0)
    clock = reading(clock, 5, 1020.0, took=15.5)
    assert clock.steady
    assert reading(clock, 25, 1025.0).steady
