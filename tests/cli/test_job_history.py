"""`pgcron-runner job history`: how a job has done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgcron_runner.cli.history import fold, summarize
from pgcron_runner.store.catalog import ListedRun
from tests.cli.conftest import Cli
from tests.statements.builders import add_final, add_job, add_run, add_running
from tests.support.databases import Database

AT = datetime(2026, 3, 1, 18, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def a_run(n: int, *, took: float | None = None, late: float = 0, status: str = "succeeded", **more: Any) -> ListedRun:
    """Run `n`, of the occurrence `n` hours after AT unless it says otherwise."""
    at = AT + n * HOUR
    started_at = None if took is None else at + late * SECOND
    facts: dict[str, Any] = {
        "id": n,
        "job_id": 1,
        "job_name": "job",
        "timezone": "UTC",
        "kind": "sql",
        "queue": "default",
        "trigger": "schedule",
        "scheduled_for": at,
        "run_at": at,
        "attempt": 1,
        "status": status,
        "reason": None,
        "created_at": at,
        "started_at": started_at,
        "finished_at": None if started_at is None or took is None else started_at + took * SECOND,
        "exit_code": None,
        "error": None,
        "worker_id": None,
        "worker": None,
        "missed_count": None,
        "missed_until": None,
        "backfill": False,
        "progress": None,
    }
    return ListedRun(**facts | more)


def test_attempts_at_one_time_are_one_occurrence() -> None:
    again = a_run(2, took=5, scheduled_for=AT, run_at=AT + 30 * SECOND, trigger="retry", attempt=2)
    first = a_run(1, took=7, late=3, scheduled_for=AT, run_at=AT + HOUR, status="failed")
    filled = a_run(3, took=1, scheduled_for=AT, backfill=True, trigger="backfill")
    [one, other] = fold([again, filled, first], AT)
    assert (one.status, one.attempts, one.run_id, one.trigger) == ("succeeded", 2, 2, "schedule")
    assert (one.took, one.late) == (5 * SECOND, 3 * SECOND)
    assert (other.backfill, other.attempts) == (True, 1)


def test_what_runs_has_taken_so_long_until_now() -> None:
    running = a_run(0, took=0, status="running", finished_at=None)
    [occurrence] = fold([running], AT + 90 * SECOND)
    assert occurrence.took == 90 * SECOND


def test_figures_are_of_what_was_tried() -> None:
    runs = [a_run(n, took=n, late=n / 10) for n in range(1, 21)]
    runs += [
        a_run(30, took=500, status="failed"),
        a_run(31, status="skipped"),
        a_run(32, status="missed", missed_count=7, missed_until=AT),
        a_run(33, took=1, status="cancelled"),
    ]
    summary = summarize(fold(runs, AT))
    assert (summary.occurrences, summary.tried, summary.succeeded) == (30, 21, 20)
    assert summary.success == pytest.approx(20 / 21)
    assert summary.took is not None
    assert (summary.took.p50, summary.took.p95, summary.took.longest) == (10 * SECOND, 19 * SECOND, 20 * SECOND)
    assert summary.late is not None
    assert (summary.late.p95, summary.late.longest) == (1.9 * SECOND, 2 * SECOND)
    assert summary.statuses == {"cancelled": 1, "failed": 1, "missed": 7, "skipped": 1, "succeeded": 20}


def test_nothing_tried_has_no_rate() -> None:
    summary = summarize(fold([a_run(1, status="skipped")], AT))
    assert (summary.success, summary.took, summary.late) == (None, None, None)


def test_the_page_has_figures_letters_and_a_line_for_each_time(cli: Cli, database: Database) -> None:
    job_id = add_job(database, "nightly", timezone="Asia/Kolkata")
    for n, state in enumerate(["succeeded", "failed", "succeeded"]):
        run_id = add_final(database, job_id, state, scheduled_for=AT + n * HOUR, run_at=AT + n * HOUR)
        database.execute(
            "update pgcron.runs set started_at = run_at + '2 s'::interval, finished_at = run_at + %s where id = %s",
            ((3 + n) * SECOND, run_id),
        )
    at = AT + 3 * HOUR
    add_run(database, job_id, scheduled_for=at, run_at=at, status="skipped", finished_at=at, reason="overlap: run 3")
    result = cli("job", "history", "nightly")
    assert (result.code, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.lines]
    assert lines[0] == "job nightly"
    assert lines[1].startswith("since 2026-03-01 23:30:00 +05:30 ")
    assert lines[1].endswith(", 4 times")
    assert lines[2] == "succeeded 2 of 3, 67%, 1 failed, 1 skipped"
    assert lines[3:5] == ["took p50 1s, p95 3s, at most 3s", "late p50 2s, p95 2s, at most 2s"]
    assert lines[6:8] == [".F.s", "oldest first; F failed, s skipped"]
    assert lines[10] == "2026-03-02 02:30:00 +05:30 skipped - - 1 4 overlap: run 3"
    assert lines[13].startswith("2026-03-01 23:30:00 +05:30 succeeded 2s 1s ▇")


def test_json_ids_and_bounds(cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    ids = [add_final(database, job_id, ago=n * HOUR) for n in range(5)]
    add_running(database, job_id, ago=-HOUR)
    shown = cli("job", "history", "job", "--json").json
    assert set(shown) == {"job", "timezone", "summary", "occurrences"}
    assert (shown["summary"]["succeeded"], len(shown["occurrences"])) == (5, 6)
    assert shown["occurrences"][0]["status"] == "running"
    assert cli("job", "history", "job", "--quiet", "--limit", "3").lines == [str(ids[-1] + 1), *map(str, ids[:2])]
    assert cli("job", "history", "job", "--since", "2099-01-01").err == "It has not run since then.\n"


def test_a_job_that_never_ran_and_one_that_is_not(cli: Cli, database: Database) -> None:
    add_job(database)
    assert cli("job", "history", "job").err == "It has not run yet.\n"
    assert cli("job", "history", "job", "--json").json["summary"]["success"] is None
    result = cli("job", "history", "jib")
    assert (result.code, result.err) == (1, "Error: There is no job named 'jib'. See: pgcron-runner job list\n")
