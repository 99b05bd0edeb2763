"""Workers that are told to stop."""

from __future__ import annotations

import pytest

from tests.faults.processes import descendants
from tests.faults.stage import Stage, Worker

pytestmark = pytest.mark.faults


def end_reason(stage: Stage, worker: Worker) -> str:
    return str(stage.database.value("select end_reason from pgcron.workers where id = %s", [worker.ids[-1]]))


def test_a_drain_lets_runs_come_to_their_end_and_takes_nothing_new(stage: Stage) -> None:
    stage.add_shell("backup")
    stage.add_sql("report")
    worker = stage.ready()
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)
    worker.terminate()
    stage.wait_for(
        lambda: stage.database.value("select stopping from pgcron.workers where id = %s", [worker.ids[0]]),
        "it says that it stops",
    )
    report = stage.run_now("report")
    stage.open_gate("backup")
    assert worker.wait() == 0
    assert stage.run(backup).status == "succeeded"
    assert stage.run(report).status == "queued"
    assert end_reason(stage, worker) == "stopped"
    assert stage.database.value("select count(*) from pg_stat_activity where application_name like 'pgcron%'") == 0
    stage.ready()
    stage.wait_status(report, "succeeded")
    stage.check()


def test_a_drain_ends_after_its_timeout_with_interrupted_runs_that_are_tried_again(stage: Stage) -> None:
    stage.add_shell("backup")
    stage.add_sql("report", seconds=60)
    stage.add_shell("once", max_attempts=1)
    worker = stage.ready("--drain-timeout", "1s")
    runs = {job: stage.run_now(job) for job in ("backup", "report", "once")}
    for job in ("backup", "once"):
        stage.wait_begun(job, runs[job])
    stage.wait_for(lambda: stage.sessions(worker, "select pg_sleep%"), "the report is at work")
    started = descendants(worker.pid)

    worker.terminate()

    assert worker.wait() == 0
    assert {job: stage.run(run_id).status for job, run_id in runs.items()} == dict.fromkeys(runs, "interrupted")
    assert [process for process in started if process.is_alive] == []
    assert [run.status for run in stage.runs() if run.attempt == 2] == ["queued", "queued"]
    assert end_reason(stage, worker) == "stopped"
    stage.open_gate("backup")
    stage.ready()
    stage.wait_attempt("backup", 2, "succeeded")
    again = stage.wait_attempt("report", 2, "running")
    stage.database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", [again.id])
    stage.wait_status(again.id, "cancelled")
    stage.check()


def test_a_second_signal_interrupts_and_a_third_does_not_wait_for_the_grace(stage: Stage) -> None:
    stage.add_shell("polite", max_attempts=1)
    stage.add_shell("stubborn", before="trap '' TERM;", max_attempts=1, kill_grace="1 hour")
    worker = stage.ready()
    polite, stubborn = stage.run_now("polite"), stage.run_now("stubborn")
    stage.wait_begun("polite", polite)
    stage.wait_begun("stubborn", stubborn)
    worker.terminate()
    stage.wait_for(lambda: worker.events("worker_draining"), "it drains")
    assert stage.run(polite).status == "running"
    worker.terminate()
    stage.wait_status(polite, "interrupted")
    assert stage.run(stubborn).status == "running"
    worker.terminate()
    assert worker.wait() == 0
    assert stage.run(stubborn).status == "interrupted"
    assert end_reason(stage, worker) == "stopped"
    stage.check()


def test_a_worker_that_drains_keeps_its_lease(stage: Stage) -> None:
    stage.add_shell("backup")
    worker = stage.ready(lease="2s")
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    stage.ready(lease="2s")
    worker.terminate()
    beats = "select beat from pgcron.workers where id = %s"
    before = stage.database.value(beats, [worker.ids[0]])
    stage.wait_for(lambda: stage.database.value(beats, [worker.ids[0]]) > before + 7, "it beats on for over a lease")
    stage.open_gate("backup")
    assert worker.wait() == 0
    assert [(run.attempt, run.status) for run in stage.runs()] == [(1, "succeeded")]
    stage.check()
