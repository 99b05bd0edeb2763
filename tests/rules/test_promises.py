"""The checks of a history: each passes a good one, and finds each way in which it can be broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pgcron_runner.model import Kind, Status, Trigger
from pgcron_runner.promises import (
    CountedJob,
    Mark,
    Moment,
    RunRow,
    Verdict,
    check_attempts,
    check_commands,
    check_machine,
    check_nothing_open,
    check_occurrences,
    check_overlaps,
    check_sql_work,
)

START = datetime(2026, 3, 2, 12, 0, 1, tzinfo=UTC)
REPORT = CountedJob("report", "@every 2s", "UTC", START, START + timedelta(seconds=9))
BACKUP = replace(REPORT, name="backup", schedule="@at 2026-03-02T12:00:04", max_attempts=2)


def at(second: int) -> datetime:
    """12:00 and so many seconds."""
    return START.replace(second=second)


def run(run_id: int, second: int, status: Status = Status.SUCCEEDED, job: CountedJob = REPORT) -> RunRow:
    """A run as the schedule makes it; begun and ended where its status says so."""
    began = None if status in (Status.QUEUED, Status.SKIPPED, Status.MISSED) else at(second)
    kind = Kind.SQL if job is REPORT else Kind.SHELL
    return RunRow(run_id, job.name, kind, Trigger.SCHEDULE, at(second), 1, status, started_at=began)


def retried(run_id: int, first: RunRow, attempt: int, status: Status = Status.SUCCEEDED) -> RunRow:
    return replace(first, id=run_id, trigger=Trigger.RETRY, attempt=attempt, status=status)


def missed(run_id: int, first: int, last: int, count: int) -> RunRow:
    return replace(run(run_id, first, Status.MISSED), missed_count=count, missed_until=at(last))


def marks(*words: str) -> list[Mark]:
    """`marks("begin backup 1", ...)`"""
    split = (word.split() for word in words)
    return [Mark(Moment(moment), job, int(run_id), 100 + int(run_id)) for moment, job, run_id in split]


# Due at 2, 4, 6, 8: after 12:00:01 and before 12:00:10.
GOOD = [run(1, 2), run(2, 4), run(3, 6, Status.SKIPPED), run(4, 8)]
LOST = run(5, 4, Status.LOST, BACKUP)


def test_a_history_with_one_trail_for_each_occurrence_is_in_order() -> None:
    verdict = check_occurrences([REPORT, BACKUP], [*GOOD, LOST, retried(6, LOST, 2)])
    assert verdict.kept
    assert verdict.figures == "5 due: 4 started, 1 skipped, 0 missed"


def test_a_missed_range_stands_for_its_occurrences() -> None:
    verdict = check_occurrences([REPORT], [run(1, 2), missed(2, 4, 6, 2), run(3, 8)])
    assert verdict.kept
    assert verdict.figures == "4 due: 2 started, 0 skipped, 2 missed"


def test_the_bounds_of_what_counts_are_exclusive() -> None:
    even = replace(REPORT, anchored_at=at(2), until=at(6))
    assert even.occurrences() == [at(4)]


def test_a_run_that_somebody_asked_for_is_no_occurrence() -> None:
    asked = replace(run(9, 5), trigger=Trigger.MANUAL)
    assert check_occurrences([REPORT], [*GOOD, asked]).kept


@pytest.mark.parametrize(
    ("runs", "fault"),
    [
        ([run(1, 2), run(2, 4), run(4, 8)], "report: nothing tells of 12:00:06 UTC"),
        ([*GOOD, run(5, 4)], "report: 2 trails for 12:00:04 UTC"),
        ([*GOOD, run(5, 7)], "report: 12:00:07 UTC was not due"),
        ([*GOOD, run(5, 10)], "report: 12:00:10 UTC was not due"),
        ([run(1, 2), missed(2, 4, 6, 1), run(3, 8)], "report: nothing tells of 12:00:06 UTC"),
        ([*GOOD, missed(5, 4, 6, 2)], "report: 2 trails for 12:00:06 UTC"),
        ([*GOOD[:3], retried(4, run(4, 8), 2)], "report: nothing tells of 12:00:08 UTC"),
    ],
)
def test_a_gap_a_double_and_a_stranger_are_found(runs: list[RunRow], fault: str) -> None:
    assert fault in check_occurrences([REPORT], runs).faults


def test_a_lost_run_that_was_tried_again_is_in_order() -> None:
    verdict = check_attempts([REPORT, BACKUP], [*GOOD, LOST, retried(6, LOST, 2)])
    assert verdict.kept
    assert verdict.figures == "1 failed or lost, 1 retried"


def test_the_last_attempt_may_fail() -> None:
    assert check_attempts([BACKUP], [LOST, retried(6, LOST, 2, Status.FAILED)]).kept


@pytest.mark.parametrize(
    ("runs", "fault"),
    [
        ([LOST], "backup at 12:00:04 UTC: not tried again after attempt 1 had lost"),
        ([LOST, retried(6, LOST, 3)], "backup at 12:00:04 UTC: attempts 1, 3"),
        ([LOST, retried(6, LOST, 2), retried(7, LOST, 2)], "backup at 12:00:04 UTC: attempts 1, 2, 2"),
        (
            [replace(LOST, status=Status.SUCCEEDED), retried(6, LOST, 2)],
            "backup at 12:00:04 UTC: tried again after attempt 1 had succeeded",
        ),
        (
            [LOST, retried(6, LOST, 2, Status.FAILED), retried(7, LOST, 3)],
            "backup at 12:00:04 UTC: 3 attempts of 2",
        ),
    ],
)
def test_wrong_attempts_are_found(runs: list[RunRow], fault: str) -> None:
    assert check_attempts([BACKUP], runs).faults == (fault,)


RERUN = [LOST, retried(6, LOST, 2)]
WRITTEN = marks("begin backup 5", "gone backup 5", "begin backup 6", "end backup 6")


def test_commands_that_agree_with_the_history_are_in_order() -> None:
    verdict = check_commands([*GOOD, *RERUN], WRITTEN)
    assert verdict.kept
    assert verdict.figures == "2 began, 1 ended, 1 killed"


@pytest.mark.parametrize(
    ("runs", "written", "fault"),
    [
        (RERUN, [*WRITTEN, *marks("begin backup 6")], "run 6 began 2 times"),
        (RERUN, [*WRITTEN, *marks("end backup 6")], "run 6 ended 2 times"),
        (RERUN, [*WRITTEN, *marks("begin backup 7", "end backup 7")], "run 7 began, but no row tells of it"),
        (RERUN, WRITTEN[:3], "run 6 of backup succeeded, but did not begin and end"),
        (RERUN, WRITTEN[:3], "run 6 began, and nothing tells of its end"),
        (RERUN, WRITTEN[:2], "run 6 of backup succeeded, but did not begin and end"),
        ([run(5, 4, Status.SKIPPED, BACKUP)], WRITTEN[:2], "run 5 of backup began, but is skipped"),
    ],
)
def test_a_command_that_the_history_does_not_tell_of_is_found(
    runs: list[RunRow], written: list[Mark], fault: str
) -> None:
    assert fault in check_commands(runs, written).faults


def test_one_after_the_other_is_in_order_whoever_ended_the_first() -> None:
    assert check_overlaps([BACKUP], WRITTEN).kept
    assert check_overlaps([BACKUP], [*WRITTEN, *marks("gone backup 6")]).kept


@pytest.mark.parametrize(
    "written",
    [
        marks("begin backup 5", "begin backup 6", "end backup 5", "end backup 6"),
        marks("begin backup 5", "begin backup 6", "gone backup 5", "end backup 6"),
        marks("begin backup 5", "end backup 4", "begin backup 6"),
    ],
)
def test_two_at_once_are_found_by_their_marks_alone(written: list[Mark]) -> None:
    assert check_overlaps([BACKUP], written).faults == ("backup: run 6 began while run 5 was going",)


def test_a_job_that_allows_overlap_may() -> None:
    written = marks("begin backup 5", "begin backup 6")
    assert check_overlaps([replace(BACKUP, exclusive=False)], written).kept


def test_work_that_was_done_once_for_each_success_is_in_order() -> None:
    assert check_sql_work([*GOOD, *RERUN], [4, 2, 1]).kept


@pytest.mark.parametrize(
    ("runs", "work", "fault"),
    [
        (GOOD, [1, 2], "run 4 succeeded without its work"),
        (GOOD, [1, 2, 4, 4], "run 4 did its work 2 times"),
        (GOOD, [1, 2, 3, 4], "run 3 is skipped, but its work is there"),
        ([*GOOD, run(9, 9, Status.LOST)], [1, 2, 4, 9], "run 9 is lost, but its work is there"),
        (GOOD, [1, 2, 4, 77], "run 77 is not in the history, but its work is there"),
    ],
)
def test_work_without_its_record_and_a_record_without_its_work_are_found(
    runs: list[RunRow], work: list[int], fault: str
) -> None:
    assert check_sql_work(runs, work).faults == (fault,)


def test_a_history_that_is_over_has_nothing_open() -> None:
    verdict = check_nothing_open(GOOD, [("a", "stopped"), ("b", "lost"), ("c", "stopped")])
    assert verdict.kept
    assert verdict.figures == "0 of 4 open; workers: 1 lost, 2 stopped"


def test_open_runs_and_workers_that_have_not_ended_are_found() -> None:
    verdict = check_nothing_open([run(1, 2, Status.RUNNING), run(2, 4, Status.QUEUED)], [("a", None)])
    assert verdict.faults == (
        "run 1 of report is still running",
        "run 2 of report is still queued",
        "a has not ended",
    )


def test_what_is_left_on_the_machine_is_found() -> None:
    assert check_machine([], []).kept
    assert check_machine(["17 sleep 4"], ["/tmp/x"]).faults == ("still alive: 17 sleep 4", "still there: /tmp/x")


@pytest.mark.parametrize(
    "check",
    [
        lambda: check_occurrences([REPORT], []),
        lambda: check_sql_work([run(n, 2) for n in range(50)], []),
        lambda: check_machine([str(n) for n in range(50)], []),
    ],
)
def test_of_many_faults_the_first_are_told(check: Callable[[], Verdict]) -> None:
    verdict = check()
    assert not verdict.kept
    assert len(verdict.faults) <= 6
    assert len(verdict.faults) < 6 or verdict.faults[-1] == "and 45 more"
