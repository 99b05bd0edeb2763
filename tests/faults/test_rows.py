"""Rows that somebody changes by hand while workers are at it."""

from __future__ import annotations

import pytest

from tests.faults.stage import Stage

pytestmark = pytest.mark.faults


def test_a_worker_whose_row_is_deleted_begins_anew_and_its_runs_are_tried_again(stage: Stage) -> None:
    stage.add_shell("backup")
    stage.add_sql("report", seconds=60)
    worker = stage.ready(lease="3s")
    backup, report = stage.run_now("backup"), stage.run_now("report")
    stage.wait_begun("backup", backup)
    stage.wait_for(lambda: stage.sessions(worker, "select pg_sleep%"), "the report is at work")
    stage.database.execute("delete from pgcron.workers")
    stage.wait_status(backup, "lost")
    stage.wait_status(report, "lost")
    stage.wait_for(lambda: len(worker.ids) == 2, "it begins anew")
    again = stage.wait_attempt("backup", 2, "running")
    assert again.worker_id == worker.ids[1]
    stage.open_gate("backup")
    stage.wait_status(again.id, "succeeded")
    other = stage.wait_attempt("report", 2, "running")
    stage.database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", [other.id])
    stage.wait_status(other.id, "cancelled")
    stage.check()


def test_runs_of_a_dead_worker_are_found_without_its_row(stage: Stage) -> None:
    stage.add_shell("backup")
    dying = stage.ready(lease="2s")
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)
    dying.kill()
    stage.database.execute("delete from pgcron.workers")
    stage.ready(lease="2s")
    stage.wait_status(backup, "lost")
    stage.open_gate("backup")
    stage.wait_attempt("backup", 2, "succeeded")
    stage.check()


def test_a_job_that_is_deleted_while_it_runs_keeps_its_history_and_is_not_tried_again(stage: Stage) -> None:
    stage.add_shell("backup", before="trap 'exit 3' TERM;")
    stage.add_sql("waiting", retry_delay="1 hour")
    stage.database.execute("update pgcron.jobs set command = 'select 1/0' where name = 'waiting'")
    worker = stage.ready()
    end = stage.database.value("select clock_timestamp() + '4 seconds'")
    stage.add_sql("tick", schedule="@every 1s", ends_at=end)
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)
    stage.run_now("waiting")
    retry = stage.wait_attempt("waiting", 2, "queued")

    stage.database.execute("delete from pgcron.jobs where name in ('backup', 'waiting')")
    stage.add_shell("backup")
    assert stage.wait_status(retry.id, "cancelled").reason == "the job was removed"
    assert stage.run(backup).status == "running"
    stage.database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", [backup])
    stage.wait_status(backup, "cancelled")
    assert stage.database.value("select job_id from pgcron.runs where id = %s", [backup]) is None
    stage.open_gate("backup")
    namesake = stage.run_now("backup")
    stage.wait_status(namesake, "succeeded")

    stage.wait_quiet()
    assert stage.runs("tick")[-1].status == "succeeded"
    assert worker.returncode is None
    assert [event for event in worker.events() if event["level"] != "info"] == []
    stage.check()


@pytest.mark.parametrize("end", ["it succeeds", "it fails", "its worker dies"])
def test_a_run_of_a_deleted_job_ends_normally(end: str, stage: Stage) -> None:
    stage.add_shell("backup", before="" if end == "it succeeds" else "trap 'exit 3' EXIT;")
    worker = stage.ready(lease="2s")
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)
    stage.database.execute("delete from pgcron.jobs")
    if end == "its worker dies":
        worker.kill()
        stage.ready(lease="2s")
    stage.open_gate("backup")
    expected = {"it succeeds": "succeeded", "it fails": "failed", "its worker dies": "lost"}[end]
    stage.wait_status(backup, expected)
    assert len(stage.runs()) == 1, "nothing is tried again"


def test_a_job_that_is_disabled_starts_nothing_that_still_waits(stage: Stage) -> None:
    stage.add_job("failing", "sql", "select 1/0", retry_delay="1 hour")
    stage.add_sql("elsewhere", schedule="@every 1s", queue="elsewhere")
    stage.ready("--queues", "default")
    failing = stage.run_now("failing")
    retry = stage.wait_attempt("failing", 2, "queued")
    scheduled = stage.wait_attempt("elsewhere", 1, "queued")
    manual = stage.run_now("elsewhere")
    stage.database.execute("update pgcron.jobs set enabled = false")
    for run_id in (retry.id, scheduled.id):
        assert stage.wait_status(run_id, "cancelled").reason == "the job was disabled"
    assert stage.run(failing).status == "failed"
    # Somebody has asked for this one.
    stage.ready()
    stage.wait_status(manual, "succeeded")
    stage.wait_for(lambda: stage.run(scheduled.id).status == "cancelled")
    assert {run.status for run in stage.runs("elsewhere")} <= {"cancelled", "skipped", "succeeded"}
