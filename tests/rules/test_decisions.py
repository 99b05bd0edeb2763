"""What a worker decides, rule by rule, on a clock that the test sets."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pgcron_runner.decisions import (
    Action,
    Adopted,
    Agenda,
    Beat,
    Beaten,
    End,
    Feed,
    InHand,
    Lane,
    LaneDue,
    Look,
    NextDue,
    Phase,
    Say,
    Standing,
    StopRuns,
)
from pgcron_runner.model import StopReason

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = 30.0
IDLE, BUSY = InHand(), InHand(running=2)
# Registered at 100: it may act until 124.
FRESH, _ = Standing("w", LEASE).renewed(100.0, 100.1)


def beaten(sent_at: float, *, clock_ahead: float = 0.0, **facts: frozenset[int]) -> Beaten:
    now = NOON + timedelta(seconds=sent_at + clock_ahead)
    return Beaten(sent_at, alive=True, database_now=now, answered_at=sent_at + 0.1, **facts)


def said(actions: tuple[Action, ...]) -> list[str]:
    return [action.event for action in actions if isinstance(action, Say)]


def stops(actions: tuple[Action, ...]) -> list[StopRuns]:
    return [action for action in actions if isinstance(action, StopRuns)]


# Until when it may act


def test_a_worker_that_has_not_registered_may_do_nothing() -> None:
    assert not Standing("w", LEASE).may_begin(IDLE, 0.0)


def test_the_deadline_counts_from_before_the_send_however_late_the_answer_comes() -> None:
    standing, actions = FRESH.beaten(beaten(105.0), [], 123.0)
    assert standing.deadline == 129.0
    assert actions == (Feed(129.0),)
    assert standing.may_begin(IDLE, 128.9)
    assert not standing.may_begin(IDLE, 129.0)


def test_who_renews_after_its_deadline_looks_at_once_for_what_it_has_let_lie() -> None:
    _, actions = FRESH.beaten(beaten(124.0), [], 124.5)
    assert actions == (Feed(148.0), Look())


def test_nothing_is_begun_while_too_many_ends_wait_to_be_written() -> None:
    assert FRESH.may_begin(InHand(unrecorded=1999), 101.0)
    assert not FRESH.may_begin(InHand(unrecorded=2000), 101.0)


def test_the_lapse_stops_what_runs_before_others_may_take_it_and_is_told_once() -> None:
    assert FRESH.elapsed(BUSY, 123.9) == (FRESH, ())
    standing, actions = FRESH.elapsed(BUSY, 124.0)
    assert stops(actions) == [StopRuns(StopReason.LEASE, now=True)]
    assert said(actions) == ["lease_not_renewed"]
    _, actions = standing.elapsed(BUSY, 124.3)
    assert stops(actions) == [StopRuns(StopReason.LEASE, now=True)]
    assert said(actions) == []


@pytest.mark.parametrize(
    ("in_hand", "now", "seconds"),
    [
        pytest.param(IDLE, 104.0, 20.0, id="idle: until the deadline, since a run may begin meanwhile"),
        pytest.param(BUSY, 104.0, 0.25, id="busy: timers do not count a suspension"),
        pytest.param(BUSY, 123.9, 0.1, id="busy: the deadline is near"),
        pytest.param(BUSY, 124.5, 0.25, id="lapsed"),
        pytest.param(IDLE, 124.5, math.inf, id="lapsed and idle: nothing is left to be done"),
    ],
)
def test_it_looks_at_its_clock_as_often_as_it_must(in_hand: InHand, now: float, seconds: float) -> None:
    assert FRESH.elapses_in(in_hand, now) == pytest.approx(seconds)


# What a heartbeat's answer means


def test_a_worker_that_was_reaped_stops_all_and_ends_this_tenure() -> None:
    standing, actions = FRESH.beaten(Beaten(105.0, alive=False), [1, 2], 105.1)
    assert standing.phase is Phase.REAPED
    assert stops(actions) == [StopRuns(StopReason.LEASE, now=True)]
    assert actions[-1] == End()
    assert not standing.may_begin(IDLE, 105.2)


def test_runs_that_were_taken_are_stopped_at_once_and_cancelled_ones_with_their_grace() -> None:
    _, actions = FRESH.beaten(beaten(105.0, taken=frozenset({1, 7}), cancelled=frozenset({2})), [1, 2], 105.1)
    assert stops(actions) == [
        # Run 7 has ended meanwhile.
        StopRuns(StopReason.LEASE, frozenset({1}), now=True),
        StopRuns(StopReason.CANCEL, frozenset({2})),
    ]


def test_what_was_claimed_unheard_and_given_back_is_looked_for_again() -> None:
    _, actions = FRESH.beaten(beaten(105.0, given_back=frozenset({3})), [], 105.1)
    assert said(actions) == ["claims_given_back"]
    assert actions[-1] == Look()


def test_a_step_of_the_databases_clock_is_told_and_so_is_its_end() -> None:
    standing, _ = FRESH.beaten(beaten(105.0), [], 105.1)
    standing, actions = standing.beaten(beaten(110.0, clock_ahead=60), [], 110.1)
    assert said(actions) == ["database_clock_stepped"]
    standing, actions = standing.beaten(beaten(115.0, clock_ahead=60), [], 115.1)
    assert said(actions) == []
    standing, actions = standing.beaten(beaten(121.0, clock_ahead=60), [], 121.1)
    assert said(actions) == ["database_clock_steady"]
    assert actions[-1] == Look()


# What a new session means


def test_a_new_session_makes_it_search_for_what_it_does_not_know_of() -> None:
    standing, actions = FRESH.adopted(Adopted("1/1"), {1}, 110.0)
    assert actions == (Beat(),)
    assert standing.searches(169.9)
    assert not standing.searches(170.0)
    assert not standing.doubts(110.0)
    assert standing.may_begin(BUSY, 110.0)


def test_runs_and_locks_that_others_have_are_stopped() -> None:
    adopted = Adopted("1/1", taken=frozenset({1, 9}), refused=frozenset({2}), refused_jobs=frozenset({20}))
    _, actions = FRESH.adopted(adopted, {1, 2, 3}, 110.0)
    assert said(actions) == ["runs_taken_over", "locks_taken_over"]
    assert stops(actions) == [StopRuns(StopReason.LEASE, frozenset({1, 2}), now=True)]


def test_an_end_that_is_written_and_still_locked_is_no_run_that_was_taken() -> None:
    _, actions = FRESH.adopted(Adopted("1/1", taken=frozenset({9})), {1}, 110.0)
    assert actions == (Beat(),)


def test_after_a_failover_nothing_is_begun_for_a_while_and_nothing_unknown_is_begun_again() -> None:
    before, _ = FRESH.adopted(Adopted("1/1"), set(), 101.0)
    standing, actions = before.adopted(Adopted("1/2", held_for=12.0), set(), 105.0)
    assert said(actions) == ["database_failed_over"]
    assert not standing.may_begin(IDLE, 116.9)
    assert standing.held_for(116.9) == pytest.approx(0.1)
    assert standing.may_begin(IDLE, 117.0)
    assert standing.held_for(117.0) is None
    assert standing.doubts(164.9)
    # Another session in between makes it no shorter.
    again, _ = standing.adopted(Adopted("1/2", held_for=3.0), set(), 106.0)
    assert again.held_until == 117.0


def test_a_worker_that_comes_right_after_a_failover_waits_too_but_doubts_nothing_of_its_own() -> None:
    standing, actions = FRESH.adopted(Adopted("1/2", held_for=12.0), set(), 105.0)
    assert said(actions) == ["database_has_taken_over"]
    assert not standing.may_begin(IDLE, 116.9)
    assert not standing.doubts(105.0)


# How it stops


def test_a_drain_begins_nothing_and_ends_when_all_is_written() -> None:
    standing, actions = FRESH.told_to_stop(None, BUSY, 110.0)
    assert said(actions) == ["worker_draining"]
    assert actions[-1] == Beat()
    assert not standing.may_begin(IDLE, 110.0)
    assert standing.elapsed(BUSY, 111.0)[1] == ()
    waiting, actions = standing.elapsed(InHand(unrecorded=1), 112.0)
    assert actions == ()
    assert waiting.elapsed(IDLE, 113.0)[1] == (End(),)
    assert standing.told_to_stop(1.0, BUSY, 113.0) == (standing, ())


def test_what_still_runs_when_patience_is_over_is_interrupted_once() -> None:
    standing, _ = FRESH.told_to_stop(5.0, BUSY, 110.0)
    assert standing.elapsed(BUSY, 114.9)[1] == ()
    standing, actions = standing.elapsed(BUSY, 115.0)
    assert stops(actions) == [StopRuns(StopReason.DRAIN, now=False)]
    assert standing.elapsed(BUSY, 115.3)[1] == ()
    _, actions = standing.interrupted(BUSY, at_once=True)
    assert stops(actions) == [StopRuns(StopReason.DRAIN, now=True)]


def test_a_drain_gives_up_what_it_cannot_write_once_others_have_closed_it() -> None:
    unwritten = InHand(unrecorded=1)
    standing, _ = FRESH.told_to_stop(5.0, IDLE, 110.0)
    standing, actions = standing.elapsed(unwritten, 111.0)
    assert actions == ()
    # Patience was for what runs: it wakes nobody any more.
    assert standing.elapses_in(unwritten, 116.0) == pytest.approx(8.0)
    assert standing.elapsed(unwritten, 153.9)[1] == ()
    assert standing.elapsed(unwritten, 154.0)[1] == (End(),)


def test_a_drain_keeps_its_lease_and_stops_its_runs_if_it_cannot() -> None:
    standing, _ = FRESH.told_to_stop(None, BUSY, 110.0)
    _, actions = standing.elapsed(BUSY, 124.0)
    assert stops(actions) == [StopRuns(StopReason.LEASE, now=True)]


# What it looks at next

DEFAULT, URGENT, OTHER = Lane("default", 0), Lane("default", 5), Lane("other", 9)


def test_lanes_are_claimed_from_by_priority_and_only_those_that_are_served() -> None:
    assert Agenda(5.0).in_turn([DEFAULT, OTHER, URGENT]) == [OTHER, URGENT, DEFAULT]
    assert Agenda(5.0, ("default",)).in_turn([DEFAULT, OTHER, URGENT]) == [URGENT, DEFAULT]


def test_jobs_are_fired_when_their_time_has_come_by_the_last_look() -> None:
    agenda = Agenda(5.0).looked(NextDue(2.0, ()), 100.0)
    assert not agenda.jobs_are_due(101.9)
    assert agenda.jobs_are_due(102.0)
    assert not agenda.looked(NextDue(None, ()), 102.0).jobs_are_due(1e9)


def test_nothing_is_fired_while_the_clock_is_unsteady_and_once_means_once() -> None:
    assert Agenda(5.0).may_fire(steady=True)
    assert not Agenda(5.0).may_fire(steady=False)
    assert Agenda(5.0).fired().may_fire(steady=True)
    assert not Agenda(5.0, once=True).fired().may_fire(steady=True)


def test_a_job_whose_lock_somebody_has_is_left_alone_for_a_second() -> None:
    agenda = Agenda(5.0).refused_by({7}, 100.0)
    assert agenda.left_alone(100.9) == [7]
    agenda = agenda.refused_by({8}, 100.9)
    assert agenda.left_alone(101.0) == [8]
    assert dict(agenda.refused_by((), 102.0).refused) == {}


@pytest.mark.parametrize(
    ("due", "done", "seconds"),
    [
        pytest.param(NextDue(None, ()), 0, 5.0, id="nothing: the poll interval"),
        pytest.param(NextDue(2.0, ()), 0, 2.0, id="a job"),
        pytest.param(NextDue(60.0, ()), 0, 5.0, id="a job, later than the next poll"),
        pytest.param(NextDue(3.0, (LaneDue(DEFAULT, False, 1.5),)), 0, 1.5, id="a queued run"),
        pytest.param(NextDue(3.0, (LaneDue(DEFAULT, True, None),)), 0, 3.0, id="what is due waits for a place"),
        pytest.param(NextDue(-1.0, ()), 3, 0.0, id="overdue, and it gets on"),
        pytest.param(NextDue(-1.0, ()), 0, 0.02, id="overdue, and others have it locked"),
    ],
)
def test_it_sleeps_until_something_falls_due(due: NextDue, done: int, seconds: float) -> None:
    assert Agenda(5.0).pause(due, done=done, steady=True) == seconds


def test_it_does_not_wake_for_what_it_may_not_fire_nor_for_what_it_does_not_serve() -> None:
    assert Agenda(5.0).pause(NextDue(-1.0, ()), done=0, steady=False) == 5.0
    other = NextDue(None, (LaneDue(OTHER, False, 1.0),))
    assert Agenda(5.0, ("default",)).pause(other, done=0, steady=True) == 5.0


def test_it_looks_again_when_a_refused_job_may_be_tried_again() -> None:
    agenda = replace(Agenda(5.0), refused={7: 101.0})
    assert agenda.pause(NextDue(None, ()), done=0, steady=True) == 1.0
