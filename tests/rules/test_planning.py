"""What a due job turns into, stepped with a set clock and no database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pgcron_runner.model import CatchUp, DueJob, Overlap, Status
from pgcron_runner.planning import plan_job


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
