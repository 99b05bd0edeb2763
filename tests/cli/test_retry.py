"""`pgcron-runner runs retry`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import NOW, add_final, add_job, add_run, add_running
from tests.support.databases import Database


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled", "interrupted", "lost", "skipped"])
def test_what_has_not_succeeded_is_tried_once_more(status: str, cli: Cli, database: Database) -> None:
    run_id = add_final(database, add_job(database), status, args={"day": 1}, state={"cursor": 7})
    told = cli("runs", "retry", str(run_id), "--json")
    assert told.json == {"id": run_id + 1, "attempt": 2, "retry_of": run_id}
    assert database.rows(
        "select attempt, status, trigger, scheduled_for, args, state, parent_run_id from pgcron.runs where attempt = 2"
    ) == [(2, "queued", "manual", NOW - timedelta(minutes=1), {"day": 1}, {"cursor": 7}, run_id)]


def test_a_failed_backfill_can_be_filled_in_again(cli: Cli, database: Database) -> None:
    run_id = add_final(database, add_job(database), "failed", trigger="backfill", backfill=True)
    assert cli("runs", "retry", str(run_id)).lines == [
        f"Queued run {run_id + 1}: attempt 2 of what run {run_id} was to do."
    ]
    assert database.value("select backfill from pgcron.runs where attempt = 2")


def test_an_earlier_attempt_is_followed_by_the_next_number(cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    first = add_final(database, job_id, "failed")
    add_final(database, job_id, "lost", attempt=2)
    assert cli("runs", "retry", str(first), "--json").json["attempt"] == 3


def test_what_cannot_be_tried_again_says_why(cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    done, failed = add_final(database, job_id), add_final(database, job_id, "failed", scheduled_for="2026-01-01")
    later = add_run(database, job_id, scheduled_for="2026-01-01", attempt=2)
    running = add_running(database, add_job(database, "other"))
    orphan = add_final(database, add_job(database, "gone"), "failed")
    database.execute("delete from pgcron.jobs where name = 'gone'")
    for run_id, words in (
        (done, "has succeeded. To run the job once more: pgcron-runner job run job"),
        (failed, "A later attempt at what run"),
        (later, "is queued. To stop it: pgcron-runner runs cancel"),
        (running, "is running. To stop it"),
        (orphan, "is of the job 'gone', which was removed"),
    ):
        refused = cli("runs", "retry", str(run_id))
        assert refused.code == 1
        assert words in refused.err
    assert "There is no run 999" in cli("runs", "retry", "999").err
    assert database.value("select count(*) from pgcron.runs where trigger = 'manual'") == 0
