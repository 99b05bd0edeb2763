"""The checker itself: it is trusted to find faults, so each is planted once and must be named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.faults.checker import Effect, History, Job, Mark, Run, breaches, changed

BOOTED = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BOOTED + timedelta(seconds=seconds)


SHELL = Job("backup", "@every 10s", "UTC", at(0), at(50), max_attempts=2)
SQL = Job("report", "@every 20s", "UTC", at(0), None, ends_at=at(45))


def run(number: int, second: int, status: str = "succeeded", **columns: Any) -> Run:
    row = Run(number, "backup", "shell", "schedule", at(second), at(second), 1, status)
    if status not in ("queued", "skipped", "missed"):
        row = replace(row, worker_id="w", started_at=at(second + 0.1))
    if status not in ("queued", "running"):
        row = replace(row, finished_at=at(second + 3))
    return replace(row, **columns)


def report(number: int, second: int, status: str = "succeeded") -> Run:
    return run(number, second, status, job="report", kind="sql")


def marks(number: int, second: float, *, ended: bool = True) -> list[Mark]:
    begun = [Mark("backup", number, "begin", second + 0.2), Mark("backup", number, "alive", second + 2.0)]
    return [*begun, Mark("backup", number, "end", second + 2.5)] if ended else begun


GOOD = History(
    jobs=[SHELL, SQL],
    runs=[
        run(1, 10),
        run(2, 20, "lost"),
        run(3, 20, attempt=2, trigger="retry", run_at=at(24), started_at=at(24.1), finished_at=at(27)),
        run(4, 30, "missed", missed_count=2, missed_until=at(40)),
        report(5, 20),
        report(6, 40),
    ],
    marks=[*marks(1, 10), *marks(2, 20, ended=False), *marks(3, 24)],
    effects=[Effect(5, at(20), at(21)), Effect(6, at(40), at(41))],
    now=at(60),
    booted_at=BOOTED,
)


def with_runs(*more: Run, without: int | None = None) -> History:
    return replace(GOOD, runs=[*(r for r in GOOD.runs if r.id != without), *more])


def test_a_good_history_has_no_breach() -> None:
    assert breaches(GOOD) == []


@pytest.mark.parametrize(
    ("history", "named"),
    [
        pytest.param(with_runs(without=1), "nothing tells of 2026-01-05 12:00:10", id="an occurrence without a row"),
        pytest.param(with_runs(report(9, 20)), "report: 2 trails for", id="an occurrence with two rows"),
        pytest.param(with_runs(run(9, 40, "skipped")), "backup: 2 trails for", id="a missed one that has a row too"),
        pytest.param(with_runs(run(9, 15)), "12:00:15+00:00 was not due", id="a run that nobody asked for"),
        pytest.param(with_runs(run(9, 0, "skipped")), "12:00:00+00:00 was not due", id="one at its anchor"),
        pytest.param(with_runs(report(9, 60)), "12:01:00+00:00 was not due", id="one after the job's end"),
        pytest.param(
            with_runs(run(4, 30, "missed", missed_count=3, missed_until=at(40)), without=4),
            "counts 3 missed occurrences, but its range has 2",
            id="a missed row that counts wrongly",
        ),
        pytest.param(
            replace(GOOD, marks=[*GOOD.marks, Mark("backup", 1, "alive", 20.3)]),
            "runs 1 and 2 overlapped for 0.10 s by their own marks",
            id="a command that lived on beside its successor",
        ),
        pytest.param(
            with_runs(run(1, 10, finished_at=at(20.2)), without=1), "overlapped by their rows", id="rows that overlap"
        ),
        pytest.param(
            replace(GOOD, marks=[*GOOD.marks, *marks(99, 55)]), "run 99 was carried out, but no row", id="no row at all"
        ),
        pytest.param(
            replace(GOOD, marks=[*GOOD.marks, Mark("backup", 3, "begin", 24.3)]), "began 2 times", id="begun twice"
        ),
        pytest.param(
            replace(GOOD, marks=marks(2, 20, ended=False) + marks(3, 24)), "did not come to its end", id="no marks"
        ),
        pytest.param(
            replace(GOOD, marks=[*GOOD.marks, Mark("backup", 2, "end", 22.5)]),
            "came to its end, but did not succeed",
            id="lost although it came to its end",
        ),
        pytest.param(
            replace(GOOD, marks=[*GOOD.marks, *marks(4, 30)]), "was carried out all the same", id="missed, yet run"
        ),
        pytest.param(replace(GOOD, effects=GOOD.effects[1:]), "has not left its work", id="recorded but not done"),
        pytest.param(
            replace(GOOD, effects=[*GOOD.effects, GOOD.effects[0]]), "did its work 2 times", id="work done twice"
        ),
        pytest.param(
            replace(GOOD, effects=[*GOOD.effects, Effect(98, at(20), at(21))]),
            "run 98, which has no row, left its work behind",
            id="done but not recorded",
        ),
        pytest.param(
            with_runs(report(5, 20, "lost"), without=5), "left its work behind", id="lost, but its work is there"
        ),
        pytest.param(
            replace(GOOD, effects=[Effect(5, at(40), at(21)), GOOD.effects[1]]),
            "did its work for",
            id="a wrong nominal",
        ),
        pytest.param(
            replace(GOOD, effects=[Effect(5, at(20), at(33)), GOOD.effects[1]]), "outside of", id="work after its end"
        ),
        pytest.param(with_runs(without=2), "has the attempts [2]", id="a second attempt without the first"),
        pytest.param(
            with_runs(run(9, 20, attempt=3, trigger="retry", started_at=at(28), finished_at=at(29))),
            "had 3 attempts of 2",
            id="more attempts than allowed",
        ),
        pytest.param(with_runs(run(2, 20), without=2), "was tried again", id="a success that was tried again"),
        pytest.param(with_runs(without=3), "was not tried again", id="a loss without its second attempt"),
        pytest.param(
            with_runs(run(1, 10, started_at=at(9.9)), without=1), "before it might", id="a row that started early"
        ),
        pytest.param(
            replace(GOOD, marks=[*marks(1, 9), *GOOD.marks[3:]]), "before its time", id="a command that started early"
        ),
        pytest.param(with_runs(run(1, 10, "running"), without=1), "is left at", id="a run that nobody closed"),
        pytest.param(with_runs(run(1, 10, "queued"), without=1), "is left at", id="a run that nobody began"),
        pytest.param(replace(GOOD, locks=["job 7"]), "a lock is left: job 7", id="a lock"),
        pytest.param(replace(GOOD, processes=["sh"]), "a process is left: sh", id="a process"),
    ],
)
def test_each_planted_fault_is_named(history: History, named: str) -> None:
    assert any(named in breach for breach in breaches(history)), breaches(history)


def test_a_command_may_end_unrecorded_where_that_is_allowed() -> None:
    late = replace(GOOD, marks=[*GOOD.marks, Mark("backup", 2, "end", 22.5)])
    assert breaches(late, unrecorded=True) == []


def test_what_allows_overlap_may_overlap() -> None:
    marked = replace(GOOD, marks=[*GOOD.marks, Mark("backup", 1, "alive", 20.3)])
    assert breaches(replace(marked, jobs=[replace(SHELL, exclusive=False), SQL])) == []


def test_a_run_that_waits_for_its_time_is_no_breach() -> None:
    waiting = with_runs(run(3, 20, "queued", attempt=2, trigger="retry", run_at=at(61)), without=3)
    assert breaches(replace(waiting, marks=GOOD.marks[:5])) == []


def test_a_final_row_that_changes_is_named() -> None:
    before = [run(1, 10, "lost"), run(2, 20, "running")]
    assert changed(before, [run(1, 10, "lost"), run(2, 20, "failed")]) == []
    assert changed(before, [run(1, 10), run(2, 20)]) == [
        "run 1 (backup, 12:00:10, attempt 1, lost) has become run 1 (backup, 12:00:10, attempt 1, succeeded)"
    ]
    assert "nothing" in changed(before, [])[0]
