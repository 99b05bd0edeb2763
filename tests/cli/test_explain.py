"""`pgcron-runner explain` on real rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cli.conftest import Cli
from tests.statements.builders import WORKER, add_final, add_job, add_planned_job, add_run, register
from tests.support.databases import Database

DUE = datetime(2027, 1, 31, 2, tzinfo=UTC)  # 03:00 in Berlin
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def old_job(database: Database) -> int:
    job_id = add_planned_job(database, "nightly", next_run_at=None, schedule="0 3 * * *", timezone="Europe/Berlin")
    long_ago = "update pgcron.jobs set anchored_at = '2020-01-01', created_at = '2020-01-01', keep_for = '100 years'"
    database.execute(f"{long_ago}, planned = true, next_run_at = '2100-01-01'")
    return job_id


def test_a_run_is_told_by_the_local_minute(cli: Cli, database: Database) -> None:
    job_id = old_job(database)
    register(database, WORKER, name="web-1")
    run_id = add_final(database, job_id, "failed", scheduled_for=DUE, run_at=DUE, created_at=DUE, exit_code=3)
    told = [f"Run {run_id} started at 2027-01-31 03:00:00+01:00 on worker web-1: it failed after 0ms (exit code 3)."]
    assert cli("explain", "nightly", "2027-01-31T03:00").lines == told
    assert cli("explain", "nightly", "2027-01-31T02:00Z").lines == told
    assert cli("explain", "nightly", "2027-01-31 03:00:00").lines == told
    [shown] = cli("explain", "nightly", "2027-01-31T03:00", "--json").json
    assert shown == {"at": "2027-01-31T02:00:00Z", "verdict": "failed", "sentences": told}


def test_a_missed_range_that_covers_it_is_found(cli: Cli, database: Database) -> None:
    job_id = old_job(database)
    missed: dict[str, Any] = {
        "status": "missed",
        "missed_count": 5,
        "missed_until": DUE + DAY,
        "finished_at": DUE,
        "reason": "nobody",
    }
    run_id = add_run(database, job_id, scheduled_for=DUE - 3 * DAY, **missed)
    [line] = cli("explain", "nightly", "2027-01-31T03:00").lines
    assert line.startswith(f"Run {run_id} records it as missed, one of 5 times from 2027-01-28 03:00:00+01:00 to ")
    assert cli("explain", "nightly", "2027-02-02T03:00", "--json").json[0]["verdict"] != "missed"


def test_why_there_is_no_run_of_a_new_job(cli: Cli, database: Database) -> None:
    add_job(database, "new", schedule="0 3 * * *")
    assert cli("explain", "new", "2020-01-01T03:00", "--json").json[0]["verdict"] == "before_made"
    assert cli("explain", "new", "2100-01-01T03:00").out.startswith("It is due at 2100-01-01 03:00:00Z.\nThat is in ")
    assert cli("explain", "new", "2100-01-01T04:00").lines == [
        "It is not due at 2100-01-01 04:00:00Z by its schedule '0 3 * * *'.",
        "The nearest time before is 2100-01-01 03:00:00Z.",
        "The nearest time after is 2100-01-02 03:00:00Z.",
    ]


def test_times_that_the_clock_skips_or_repeats(cli: Cli, database: Database) -> None:
    add_job(database, "odd", schedule="30 2 * * *", timezone="Europe/Berlin")
    skipped = cli("explain", "odd", "2027-03-28T02:30").lines
    assert skipped[:2] == [
        "The clock of Europe/Berlin skips 02:30 on 2027-03-28: it goes from 02:00 to 03:00.",
        "It is due at 2027-03-28 03:00:00+02:00.",
    ]
    verdicts = [told["verdict"] for told in cli("explain", "odd", "2027-10-31T02:30", "--json").json]
    assert verdicts == ["future", "not_due"]


def test_what_cannot_be_explained(cli: Cli, database: Database) -> None:
    add_job(database)
    assert "There is no job named 'nope'" in cli("explain", "nope", "2027-01-31T03:00").err
    wrong = cli("explain", "job", "noon")
    assert (wrong.code, "time: 'noon' is not a date and time" in wrong.err) == (2, True)
