"""The checker itself: it is trusted to find faults, so each is planted once and must be named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.faults.checker import (
    Clock,
    Edition,
    Effect,
    History,
    Hold,
    Job,
    Mark,
    Run,
    SplitBrain,
    breaches,
    changed,
)
from tests.faults.checker.nominal import occurrences

BOOTED = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BOOTED + timedelta(seconds=seconds)


SHELL = Job("backup", (Edition("@every 10s", "UTC", at(0), at(50)),), max_attempts=2)
SQL = Job("report", (Edition("@every 20s", "UTC", at(0), None, ends_at=at(45)),))


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
    clock=Clock(((0.0, BOOTED, True),)),
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
            "came to its end with exit code 0, but did not succeed",
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
        pytest.param(
            replace(GOOD, holds=[Hold("backup", at(9), at(11))]), "while somebody else held its lock", id="an intruder"
        ),
        pytest.param(
            replace(GOOD, calm_from=at(5), late_after=timedelta(seconds=0.05)), "s late", id="late although all is calm"
        ),
        pytest.param(replace(GOOD, changes=["run 1 was lost"]), "run 1 was lost", id="a final row that has changed"),
        pytest.param(replace(GOOD, complaints=["KeyError"]), "KeyError", id="an exception in a log"),
        pytest.param(
            replace(GOOD, marks=[*marks(1, 10)[:2], Mark("backup", 1, "end", 12.5, 3), *GOOD.marks[3:]]),
            "came to its end with exit code 3, but did not fail",
            id="a failure that is called a success",
        ),
        pytest.param(replace(GOOD, locks=["job 7"]), "a lock is left: job 7", id="a lock"),
        pytest.param(replace(GOOD, processes=["sh"]), "a process is left: sh", id="a process"),
    ],
)
def test_each_planted_fault_is_named(history: History, named: str) -> None:
    assert any(named in str(breach) for breach in breaches(history)), breaches(history)


def test_a_command_may_end_unrecorded_where_that_is_allowed() -> None:
    late = replace(GOOD, marks=[*GOOD.marks, Mark("backup", 2, "end", 22.5)])
    assert breaches(replace(late, unrecorded=True)) == []


def test_a_command_may_end_and_fail_only_where_its_guard_took_the_exit_code_with_it() -> None:
    lost = replace(GOOD.runs[2], status="failed", error="its guard process ended, and so it was killed")
    assert breaches(replace(with_runs(lost, without=3), unrecorded=True)) == []
    untold = replace(with_runs(replace(lost, error="exited with code 1"), without=3), unrecorded=True)
    assert [breach.rule for breach in breaches(untold)] == ["marks and rows agree"]


def test_what_allows_overlap_may_overlap() -> None:
    marked = replace(GOOD, marks=[*GOOD.marks, Mark("backup", 1, "alive", 20.3)])
    assert breaches(replace(marked, jobs=[replace(SHELL, max_running=2), SQL])) == []


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


# Edits.


def test_a_command_that_goes_on_without_its_lock_is_named() -> None:
    hold = Hold("backup", at(10.5), at(12.8), since=10.5, until=12.8)
    held = replace(GOOD, holds=[hold], lease=1.0)
    marked = replace(held, marks=[*GOOD.marks, Mark("backup", 1, "alive", 12.6)])
    assert [str(breach) for breach in breaches(marked)] == [
        "run 1 of backup went on for 2.1 s while somebody else held its lock"
    ]
    assert breaches(replace(marked, lease=1.1)) == [], "it may take so long until a lost lock is noticed"
    assert breaches(replace(marked, holds=[replace(hold, since=10.1)])) == [], (
        "it began in spite of the lock: see there"
    )


def test_each_edition_has_its_own_times() -> None:
    editions = (
        Edition("@every 10s", "UTC", at(0), at(20)),
        Edition(None, "UTC", at(22), None),
        Edition("@every 20s", "UTC", at(25), at(60), not_before=at(45)),
    )
    job = Job("backup", editions)
    history = History([job], [run(1, 10)], at(60), GOOD.clock, marks=marks(1, 10))
    assert breaches(history) == []
    for second in (20, 40, 60):
        assert "was not due" in str(breaches(replace(history, runs=[run(1, 10), run(2, second, "skipped")]))[0])


def test_a_loss_is_not_tried_again_while_its_job_is_held() -> None:
    lonely = replace(with_runs(without=3), marks=GOOD.marks[:5])
    held = replace(SHELL, halts=((at(22), at(24)),))
    assert breaches(replace(lonely, jobs=[held, SQL])) == []
    later = replace(lonely, jobs=[replace(held, halts=((at(24), None),)), SQL])
    assert len(breaches(later)) == 1
    # Where the clock was set back in between, the two instants do not say what came first.
    assert breaches(replace(later, clock=stepped((25, -3, True)))) == []
    assert len(breaches(replace(lonely, clock=stepped((25, -3, True))))) == 1


# How many at a time.


def test_no_more_than_max_running_may_live_at_a_time() -> None:
    third = [Mark("backup", 1, "alive", 26.3), Mark("backup", 2, "alive", 26.3)]
    crowded = replace(GOOD, marks=[*GOOD.marks, *third], unrecorded=True)
    assert breaches(replace(crowded, jobs=[replace(SHELL, max_running=3), SQL])) == []
    assert breaches(replace(crowded, jobs=[replace(SHELL, max_running=None), SQL])) == []
    assert breaches(replace(crowded, jobs=[replace(SHELL, fenced=False), SQL])) == []
    (breach,) = breaches(replace(crowded, jobs=[replace(SHELL, max_running=2), SQL]))
    assert breach.run_ids == (1, 3)


# Clocks that step.


def stepped(*steps: tuple[float, float, bool]) -> Clock:
    return Clock(((0.0, BOOTED, True), *((at_, BOOTED + timedelta(seconds=by), trusted) for at_, by, trusted in steps)))


def test_a_row_is_no_evidence_where_the_clock_was_being_stepped() -> None:
    early = with_runs(run(1, 10, started_at=at(9.9)), without=1)
    assert len(breaches(replace(early, clock=stepped((40, -1, True))))) == 1
    assert breaches(replace(early, clock=stepped((11, -1, True), (12, 0, True)))) == []


def test_what_begins_by_a_clock_that_has_just_stepped_is_early_and_by_one_that_stays_is_not() -> None:
    hasty = replace(GOOD, marks=[*marks(1, 4), *GOOD.marks[3:]])
    assert "before its time" in str(breaches(hasty)[0])
    assert breaches(replace(hasty, clock=stepped((2, 7, True), (6, 0, True)))) == []
    (breach,) = breaches(replace(hasty, clock=stepped((2, 7, False), (6, 0, True))))
    assert "a clock that had just stepped" in breach.text


# Failovers that forget.


def test_what_only_the_old_primary_knew_of_is_not_judged_but_what_was_begun_later_is() -> None:
    stranger = replace(GOOD, marks=[*GOOD.marks, *marks(99, 55)])
    assert breaches(replace(stranger, splits=[SplitBrain(54, 56)])) == []
    assert len(breaches(replace(stranger, splits=[SplitBrain(40, 50)]))) == 1


# Nominal times, without the code under test.


@pytest.mark.parametrize(
    ("schedule", "first", "count"),
    [
        ("@every 7s", datetime(2026, 1, 5, 12, 0, 1, tzinfo=UTC), 9),
        ("@every 1m", datetime(2026, 1, 5, 12, 1, tzinfo=UTC), 1),
        ("@at 2026-01-05T13:00:30", datetime(2026, 1, 5, 12, 0, 30, tzinfo=UTC), 1),
        ("* * * * *", datetime(2026, 1, 5, 12, 1, tzinfo=UTC), 1),
        ("*/20 * * * * *", datetime(2026, 1, 5, 12, 0, 20, tzinfo=UTC), 3),
        ("15,45 * * * * *", datetime(2026, 1, 5, 12, 0, 15, tzinfo=UTC), 2),
    ],
)
def test_nominal_times_by_hand(schedule: str, first: datetime, count: int) -> None:
    found = list(occurrences(schedule, "Europe/Berlin", at(0), at(60)))
    assert (found[0], len(found)) == (first, count)


@pytest.mark.parametrize("schedule", ["@manual", "@every 10s after finish", "@at 2026-01-05T12:00:30"])
def test_what_has_no_nominal_time_in_the_window(schedule: str) -> None:
    assert list(occurrences(schedule, "Europe/Berlin", at(0), at(60))) == []
