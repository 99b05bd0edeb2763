"""Workers that are frozen, as by a debugger, a suspended machine or a hypervisor, and go on later."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.checker import changed
from tests.faults.stage import Stage, Worker, boottime

pytestmark = pytest.mark.faults

LEASE = 3.0


def test_a_worker_that_wakes_up_after_its_lease_changes_nothing_and_works_again(stage: Stage) -> None:
    stage.add_shell("backup")
    stage.add_sql("report", seconds=60)
    sleeper = stage.ready(lease="3s")
    taken = [stage.run_now("backup"), stage.run_now("report")]
    stage.wait_begun("backup", taken[0])
    stage.wait_for(lambda: stage.sessions(sleeper, "select pg_sleep%"), "the report is at work")
    heir = stage.ready(lease="3s")

    sleeper.stop()
    stopped_at = boottime()
    for run_id in taken:
        stage.wait_status(run_id, "lost")
    again = [stage.wait_attempt(job, 2, "running") for job in ("backup", "report")]
    assert [run.worker_id for run in again] == heir.ids * 2
    stage.wait_begun("backup", again[0].id)
    stage.wait_for(lambda: boottime() > stopped_at + 3 * LEASE, "three leases are over")
    before = stage.runs()
    sleeper.cont()

    wait_for_tenure(stage, sleeper, 2)
    assert changed(before, stage.runs()) == []
    assert [run.status for run in stage.runs() if run.attempt == 2] == ["running", "running"]
    assert_each_loss_is_told_once(sleeper, taken)
    stage.add_shell("other")
    stage.open_gate("other")
    heir.stop()
    other = stage.run_now("other")
    assert stage.wait_status(other, "succeeded").worker_id == sleeper.ids[1]
    # A stop that is shorter than the lease, for the heir: its runs are still its own.
    heir.cont()
    stage.open_gate("backup")
    stage.database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", [again[1].id])
    stage.wait_status(again[0].id, "succeeded")
    stage.wait_status(again[1].id, "cancelled")
    stage.check()


def assert_each_loss_is_told_once(worker: Worker, run_ids: list[int]) -> None:
    assert len(worker.events("worker_reaped")) == 1
    assert worker.events("text") == [], "every line is JSON, also what libraries say"
    assert worker.dropped == Counter(run_ids)


def test_stopping_one_after_the_other_never_mixes_up_the_owners(stage: Stage) -> None:
    """Each run of one job passes from hand to hand; late ends of earlier owners fit nowhere."""
    stage.add_shell("backup", max_attempts=3)
    workers = [stage.ready(lease="2s"), stage.ready(lease="2s")]
    first = stage.run_now("backup")
    for attempt in (1, 2):
        run = stage.wait_attempt("backup", attempt, "running")
        stage.wait_begun("backup", run.id)
        owner = next(worker for worker in workers if run.worker_id in worker.ids)
        tenures = len(owner.ids)
        owner.stop()
        stage.wait_attempt("backup", attempt, "lost")
        owner.cont()
        wait_for_tenure(stage, owner, tenures + 1)
    last = stage.wait_attempt("backup", 3, "running")
    stage.wait_begun("backup", last.id)
    stage.open_gate("backup")
    stage.wait_status(last.id, "succeeded")
    assert stage.run(first).status == "lost"
    stage.check()


def wait_for_tenure(stage: Stage, worker: Worker, count: int) -> None:
    stage.wait_for(lambda: len(worker.ids) == count, f"it begins its tenure number {count}")


def test_all_sessions_of_a_stopped_worker_are_ended_at_once(stage: Stage) -> None:
    """And not one after the other, while the one who reaps it can record nothing."""
    for number in range(20):
        stage.add_sql(f"report-{number}", seconds=300, max_attempts=1)
    sleeper = stage.ready("--slots", "20", lease="2s")
    taken = [stage.run_now(f"report-{number}") for number in range(20)]

    def at_work() -> int:
        return len(stage.sessions(sleeper, "select pg_sleep%"))

    stage.wait_for(lambda: at_work() == 20, "all are at work")
    stage.ready(lease="2s")
    sleeper.stop()
    stage.wait_for(lambda: at_work() < 20, "the first is ended")
    began = boottime()
    stage.wait_for(lambda: at_work() == 0, "all are ended")
    assert boottime() - began < 1
    for run_id in taken:
        stage.wait_status(run_id, "lost")
    stage.check()


def test_a_stop_that_is_shorter_than_the_lease_loses_nothing(stage: Stage) -> None:
    stage.add_shell("backup")
    stage.add_sql("report", seconds=3)
    sleeper = stage.ready(lease="8s")
    backup, report = stage.run_now("backup"), stage.run_now("report")
    stage.wait_begun("backup", backup)
    stage.wait_status(report, "running")
    other = stage.ready(lease="8s")

    sleeper.stop()
    stopped_at = boottime()
    stage.wait_for(lambda: boottime() > stopped_at + 3, "it was stopped for a while")
    sleeper.cont()

    assert stage.wait_status(report, "succeeded").attempt == 1
    stage.open_gate("backup")
    assert stage.wait_status(backup, "succeeded").worker_id == sleeper.ids[0]
    for worker in (sleeper, other):
        assert [event for event in worker.events() if event["level"] != "info"] == []
    stage.check()
