"""What a due job turns into, stepped with a set clock and no database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from pgcron_runner.model import CatchUp, DstRepeat, DueJob, ExcludedDays, Overlap, Status
from pgcron_runner.planning import make_up, plan_job


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{text}+00:00")


def job(**changes: object) -> DueJob:
    """An hourly job in UTC whose nine o'clock run is due."""
    due = DueJob(
        id=7,
        name="hourly",
        schedule="0 * * * *",
        timezone="UTC",
        planned=True,
        anchored_at=at("00:30:00"),
        next_run_at=at("09:00:00"),
    )
    return replace(due, **changes)  # type: ignore[arg-type]


def test_an_occurrence_on_time_is_queued_and_the_job_moves_on() -> None:
    plan = plan_job(job(), at("09:00:00.010"))
    assert [(run.scheduled_for, run.run_at, run.status) for run in plan.runs] == [
        (at("09:00:00"), at("09:00:00"), Status.QUEUED)
    ]
    assert plan.next_run_at == at("10:00:00")
    assert plan.problem is None


def test_an_unplanned_job_gets_its_next_time_and_fires_nothing_of_the_past() -> None:
    plan = plan_job(job(planned=False, anchored_at=at("09:00:00"), next_run_at=at("09:00:00")), at("09:00:01"))
    assert plan.runs == ()
    assert plan.next_run_at == at("10:00:00")


def test_an_unplanned_job_does_not_lose_what_fell_due_since_it_was_made() -> None:
    made = at("08:59:59.500")
    plan = plan_job(job(planned=False, anchored_at=made, next_run_at=made), at("09:00:00.200"))
    assert [run.scheduled_for for run in plan.runs] == [at("09:00:00")]


def test_catch_up_latest_runs_the_newest_and_counts_the_rest_in_one_row() -> None:
    plan = plan_job(job(), at("14:10:00"))
    missed, run = plan.runs
    assert (missed.status, missed.scheduled_for, missed.missed_until, missed.missed_count) == (
        Status.MISSED,
        at("09:00:00"),
        at("13:00:00"),
        5,
    )
    assert (run.status, run.scheduled_for) == (Status.QUEUED, at("14:00:00"))
    assert plan.next_run_at == at("15:00:00")


def test_catch_up_latest_outside_its_window_runs_nothing() -> None:
    plan = plan_job(job(catch_up_window=timedelta(minutes=5)), at("14:10:00"))
    assert [(run.status, run.missed_count, run.missed_until) for run in plan.runs] == [
        (Status.MISSED, 6, at("14:00:00"))
    ]


def test_catch_up_skip_still_starts_what_is_a_moment_late() -> None:
    assert [run.status for run in plan_job(job(catch_up=CatchUp.SKIP), at("09:00:59")).runs] == [Status.QUEUED]
    late = plan_job(job(catch_up=CatchUp.SKIP), at("09:01:01"))
    assert [(run.status, run.missed_count) for run in late.runs] == [(Status.MISSED, 1)]


def test_catch_up_all_runs_the_oldest_up_to_the_limit_and_counts_the_rest() -> None:
    plan = plan_job(job(catch_up=CatchUp.ALL, catch_up_limit=2, overlap=Overlap.QUEUE_ALL), at("14:10:00"))
    queued = [run.scheduled_for for run in plan.runs if run.status is Status.QUEUED]
    [missed] = [run for run in plan.runs if run.status is Status.MISSED]
    assert queued == [at("09:00:00"), at("10:00:00")]
    assert (missed.scheduled_for, missed.missed_until, missed.missed_count) == (at("11:00:00"), at("14:00:00"), 4)


@pytest.mark.parametrize("catch_up", list(CatchUp))
@pytest.mark.parametrize("hours", [0, 1, 2, 7, 30])
@pytest.mark.parametrize("overlap", list(Overlap))
def test_every_occurrence_is_accounted_for_once(catch_up: CatchUp, hours: int, overlap: Overlap) -> None:
    now = at("09:00:00.100") + timedelta(hours=hours)
    plan = plan_job(job(catch_up=catch_up, catch_up_limit=3, overlap=overlap), now)
    assert sum(run.missed_count or 1 for run in plan.runs) == hours + 1
    assert len({run.scheduled_for for run in plan.runs}) == len(plan.runs)


def test_a_year_of_missed_seconds_is_one_row() -> None:
    every_second = job(schedule="* * * * * *", next_run_at=at("09:00:00") - timedelta(days=365))
    missed, run = plan_job(every_second, at("09:00:00.500")).runs
    assert missed.missed_count == 365 * 86400
    assert run.scheduled_for == at("09:00:00")


@pytest.mark.parametrize(
    ("overlap", "running", "queued", "expected", "names"),
    [
        (Overlap.SKIP, (11,), None, Status.SKIPPED, "run 11 is still running"),
        (Overlap.SKIP, (), 12, Status.SKIPPED, "run 12 is still queued"),
        (Overlap.SKIP, (), None, Status.QUEUED, None),
        (Overlap.QUEUE_ONE, (11,), None, Status.QUEUED, None),
        (Overlap.QUEUE_ONE, (11,), 12, Status.SKIPPED, "run 12 is still queued"),
        (Overlap.QUEUE_ALL, (11,), 12, Status.QUEUED, None),
        (Overlap.REPLACE, (11,), None, Status.QUEUED, None),
        (Overlap.REPLACE, (), 12, Status.SKIPPED, "run 12 is still queued"),
        (Overlap.ALLOW, (11,), 12, Status.QUEUED, None),
    ],
)
def test_overlap_decides_and_names_the_run_in_the_way(
    overlap: Overlap, running: tuple[int, ...], queued: int | None, expected: Status, names: str | None
) -> None:
    plan = plan_job(job(overlap=overlap, running_run_ids=running, queued_run_id=queued), at("09:00:00"))
    [run] = plan.runs
    assert run.status is expected
    assert (run.reason is None) if names is None else (names in str(run.reason))


def test_replace_asks_for_the_running_run_to_be_stopped() -> None:
    assert plan_job(job(overlap=Overlap.REPLACE, running_run_ids=(11,)), at("09:00:00")).replace == (11,)
    assert plan_job(job(overlap=Overlap.SKIP, running_run_ids=(11,)), at("09:00:00")).replace == ()


def test_nothing_fires_before_the_end_of_a_pause_or_the_start() -> None:
    for bound in ({"paused_until": at("12:00:00")}, {"starts_at": at("12:00:00")}):
        plan = plan_job(job(planned=False, anchored_at=at("08:59:00"), **bound), at("09:00:00"))
        assert plan.runs == ()
        assert plan.next_run_at == at("12:00:00")


def test_nothing_fires_after_the_end() -> None:
    last = plan_job(job(ends_at=at("09:00:00")), at("09:00:00.010"))
    assert [run.status for run in last.runs] == [Status.QUEUED]
    assert last.next_run_at is None
    over = plan_job(job(ends_at=at("11:30:00")), at("14:10:00"))
    assert sum(run.missed_count or 1 for run in over.runs) == 3


def test_a_schedule_that_cannot_be_read_is_a_problem_in_words() -> None:
    plan = plan_job(job(schedule="0 25 * * *"), at("09:00:00"))
    assert plan.runs == ()
    assert plan.next_run_at is None
    assert plan.problem is not None
    assert "25" in plan.problem
    assert plan_job(job(timezone="Europe/Berln"), at("09:00:00")).problem is not None


def test_jitter_is_the_same_for_one_job_and_different_for_others() -> None:
    jittered = job(jitter=timedelta(minutes=10))
    delays = {
        name: plan_job(replace(jittered, name=name), at("09:00:00")).runs[0].run_at - at("09:00:00")
        for name in ("a", "b", "c", "a")
    }
    assert len(set(delays.values())) == 3
    assert all(timedelta(0) <= delay < timedelta(minutes=10) for delay in delays.values())
    again = plan_job(replace(jittered, name="a"), datetime(2026, 3, 1, 9, tzinfo=UTC)).runs[0]
    assert again.run_at - at("09:00:00") == delays["a"]
    assert again.scheduled_for == at("09:00:00")


HOLIDAY = ExcludedDays("holidays", date(2026, 3, 1), date(2026, 3, 1), "Carnival")


def test_an_occurrence_on_an_excluded_day_is_skipped_and_names_the_calendar() -> None:
    plan = plan_job(job(excluded=(HOLIDAY,)), at("09:00:00"))
    assert [(run.status, run.reason, run.scheduled_for) for run in plan.runs] == [
        (Status.SKIPPED, "calendar holidays: Carnival", at("09:00:00"))
    ]
    assert plan.next_run_at == at("10:00:00")


def test_the_day_is_that_of_the_jobs_own_zone() -> None:
    # Nine o'clock in UTC is still the day before in Honolulu, at eleven in the evening.
    honolulu = job(timezone="Pacific/Honolulu", excluded=(HOLIDAY,))
    assert [run.status for run in plan_job(honolulu, at("09:00:00")).runs] == [Status.QUEUED]


def test_after_downtime_the_latest_run_is_the_latest_that_is_not_excluded() -> None:
    days = ExcludedDays("freeze", date(2026, 3, 2), date(2026, 3, 5))
    plan = plan_job(job(excluded=(days,)), datetime(2026, 3, 4, 12, 0, 1, tzinfo=UTC))
    queued = [run.scheduled_for for run in plan.runs if run.status is Status.QUEUED]
    skipped = [run.scheduled_for for run in plan.runs if run.status is Status.SKIPPED]
    [missed] = [run for run in plan.runs if run.status is Status.MISSED]
    assert queued == [at("23:00:00")]
    assert skipped == [datetime(2026, 3, 4, 12, tzinfo=UTC)]
    assert (missed.missed_count or 0) + 2 == 15 + 24 * 2 + 13


def test_queue_all_is_bounded() -> None:
    busy = job(overlap=Overlap.QUEUE_ALL, catch_up_limit=3, queued_run_id=5, queued_count=3, running_run_ids=(4,))
    [run] = plan_job(busy, at("09:00:00")).runs
    assert run.status is Status.SKIPPED
    assert run.reason == "overlap: 3 runs are queued already, from run 5 on"


def test_newer_zone_data_fires_nothing_twice() -> None:
    # By the old data nine in the morning was 08:00Z and has fired; by the new data it is 09:00Z.
    fired = job(
        planned=False,
        anchored_at=at("08:00:00"),
        fired_local=datetime.fromisoformat("2026-03-01T09:00"),
        schedule="0 9 * * *",
    )
    plan = plan_job(fired, at("08:30:00"))
    assert plan.runs == ()
    assert plan.next_run_at == at("09:00:00") + timedelta(days=1)


def test_newer_zone_data_loses_nothing() -> None:
    # By the old data the slot was to come at 10:00Z; by the new data it was at 09:00Z, ten minutes ago.
    late = job(planned=False, anchored_at=at("09:00:00") - timedelta(days=1), schedule="0 9 * * *")
    plan = plan_job(replace(late, fired_local=datetime.fromisoformat("2026-02-28T09:00")), at("09:10:00"))
    assert [run.scheduled_for for run in plan.runs] == [at("09:00:00")]


DAILY = {
    "schedule": "0 9 * * *",
    "other_zone_data": True,
    "fired_until": at("09:00:00") - timedelta(days=1),
    "fired_local": datetime.fromisoformat("2026-02-28T09:00"),
}


def test_a_time_of_other_zone_data_that_is_too_late_by_this_one_is_not_lost() -> None:
    # Other data has planned 11:00Z; by this one nine o'clock was two hours ago, and has not fired.
    plan = plan_job(job(**DAILY, next_run_at=at("11:00:00")), at("11:00:00.010"))
    assert [run.scheduled_for for run in plan.runs] == [at("09:00:00")]
    assert plan.next_run_at == at("09:00:00") + timedelta(days=1)


def test_a_time_of_other_zone_data_that_is_too_early_by_this_one_does_not_fire() -> None:
    # Other data fired yesterday at 08:00Z and has planned 08:00Z; by this one it is an hour to nine.
    fired_until = at("08:00:00") - timedelta(days=1)
    plan = plan_job(job(**DAILY | {"fired_until": fired_until}, next_run_at=at("08:00:00")), at("08:00:00.010"))
    assert (plan.runs, plan.next_run_at) == ((), at("09:00:00"))


def test_several_local_times_that_have_fired_do_not_fire_again() -> None:
    # By the old data nine and ten o'clock were at 07:00Z and 08:00Z; by the new they are still to come.
    fired = {"planned": False, "fired_until": at("08:00:00"), "fired_local": datetime.fromisoformat("2026-03-01T10:00")}
    plan = plan_job(job(schedule="0 9,10,11 * * *", **fired), at("08:30:00"))
    assert (plan.runs, plan.next_run_at) == ((), at("11:00:00"))


def test_what_comes_every_so_often_misses_nothing_when_zone_data_changes() -> None:
    # By the old data it was ten o'clock local time at 09:00Z; by the new it is at 10:00Z.
    fired = {"planned": False, "fired_until": at("09:00:00"), "fired_local": datetime.fromisoformat("2026-03-01T10:00")}
    plan = plan_job(job(**fired), at("10:00:00"))
    assert [run.scheduled_for for run in plan.runs] == [at("10:00:00")]


def test_the_second_pass_of_a_repeated_hour_fires_although_its_local_time_has_fired() -> None:
    berlin = job(schedule="30 2 * * *", timezone="Europe/Berlin", dst_repeat=DstRepeat.BOTH, planned=False)
    first, second = (datetime(2027, 10, 31, hour, 30, tzinfo=UTC) for hour in (0, 1))
    again = replace(berlin, fired_until=first, fired_local=datetime.fromisoformat("2027-10-31T02:30"))
    assert [run.scheduled_for for run in plan_job(again, second).runs] == [second]


def test_making_up_for_a_pause_keeps_to_its_bounds_and_to_those_of_the_job() -> None:
    held = job(planned=False, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    bounds = at("09:00:00"), at("12:00:00") - timedelta(microseconds=1), at("14:30:00")
    assert [run.scheduled_for for run in make_up(held, *bounds).runs] == [at("10:00:00"), at("11:00:00")]
    [later] = make_up(replace(held, starts_at=at("11:00:00")), *bounds).runs
    assert later.scheduled_for == at("11:00:00")
    assert make_up(replace(held, starts_at=at("11:30:00")), *bounds).runs == ()
    [earlier] = make_up(replace(held, ends_at=at("10:00:00")), *bounds).runs
    assert earlier.scheduled_for == at("10:00:00")
    assert make_up(replace(held, schedule="@manual"), *bounds).runs == ()
    assert make_up(after_finish(planned=False), *bounds).runs == ()


def test_what_is_made_up_for_is_excluded_and_in_the_way_as_ever() -> None:
    held = job(planned=False, catch_up=CatchUp.ALL, running_run_ids=(4,))
    bounds = at("09:00:00"), at("11:30:00"), at("11:30:00")
    reasons = [run.reason for run in make_up(held, *bounds).runs]
    assert reasons == ["overlap: run 4 is still running"] * 2
    holiday = replace(held, excluded=(ExcludedDays("holidays", date(2026, 3, 1), date(2026, 3, 1)),))
    assert {run.reason for run in make_up(holiday, *bounds).runs} == {"calendar holidays"}


def test_an_edit_counts_from_its_anchor_although_a_clock_that_was_ahead_has_fired_beyond_it() -> None:
    edited = job(planned=False, anchored_at=at("08:59:30"), next_run_at=at("08:59:30"), fired_until=at("23:00:00"))
    assert plan_job(edited, at("08:59:31")).next_run_at == at("09:00:00")
    # Between its anchor and now there may be what has fired.
    assert plan_job(edited, at("09:00:01")).runs == ()


def test_a_plan_remembers_the_local_time_of_what_it_fired() -> None:
    berlin = job(timezone="Europe/Berlin")
    assert plan_job(berlin, at("09:00:00")).fired_local == datetime.fromisoformat("2026-03-01T10:00")
    assert plan_job(replace(berlin, planned=False, anchored_at=at("09:00:00")), at("09:00:01")).fired_local is None


def after_finish(**changes: object) -> DueJob:
    return job(**({"schedule": "@every 10m after finish"} | changes))


def test_a_pause_after_the_end_begins_when_the_run_has_ended() -> None:
    [run] = plan_job(after_finish(), at("09:00:00.010")).runs
    assert run.scheduled_for == at("09:00:00")
    busy = plan_job(after_finish(running_run_ids=(4,)), at("09:00:00"))
    assert (busy.runs, busy.next_run_at) == ((), at("09:10:00"))
    ended = plan_job(after_finish(next_run_at=at("09:10:00"), last_finished_at=at("09:04:00")), at("09:10:00"))
    assert (ended.runs, ended.next_run_at) == ((), at("09:14:00"))
    [again] = plan_job(after_finish(next_run_at=at("09:14:00"), last_finished_at=at("09:04:00")), at("09:14:00")).runs
    assert again.scheduled_for == at("09:14:00")


def test_the_first_run_of_such_a_job_comes_a_pause_after_it_was_made() -> None:
    new = plan_job(after_finish(planned=False, anchored_at=at("09:00:00"), next_run_at=at("09:00:00")), at("09:00:01"))
    assert (new.runs, new.next_run_at) == ((), at("09:10:01"))
