"""The server itself goes away: restarted, killed, crashed, for a moment or for longer than a lease."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from pgcron_runner.embedded import Server
from tests.faults.processes import marked
from tests.faults.stage import Stage, boottime

pytestmark = pytest.mark.faults


def restart_fast(server: Server) -> None:
    server.restart("fast")


def restart_immediate(server: Server) -> None:
    server.restart("immediate")


def kill_postmaster(server: Server) -> None:
    server.kill()
    server.start()


def kill_one_backend(server: Server) -> None:
    """As the kernel does when memory is short: the server ends all sessions and recovers."""
    with psycopg.connect(server.dsn()) as victim, psycopg.connect(server.dsn(), autocommit=True) as witness:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("select 1")
        # Until the server has noticed, it goes on as if nothing had happened.
        with pytest.raises(psycopg.OperationalError):
            witness.execute("select pg_sleep(60)")


@pytest.mark.parametrize("crash", [restart_fast, restart_immediate, kill_postmaster, kill_one_backend])
def test_a_short_outage_costs_no_command_and_later_runs_start(
    crash: Callable[[Server], None], own_stage: Stage
) -> None:
    stage = own_stage
    stage.add_shell("backup")
    stage.add_sql("report", seconds=30, max_attempts=1)
    end = stage.database.value("select clock_timestamp() + '5 seconds'")
    stage.add_sql("tick", schedule="@every 1s", ends_at=end)
    workers = [stage.ready(lease="20s"), stage.ready(lease="20s")]
    backup, report = stage.run_now("backup"), stage.run_now("report")
    stage.wait_begun("backup", backup)
    at_work = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%'"
    stage.wait_for(lambda: stage.database.value(at_work), "the report is at work")
    before = stage.runs("tick")

    crash(stage.database.server)
    stage.reconnect()

    stage.wait_for(lambda: stage.job_lock_pids("backup"), "the lock is held again")
    stage.wait_for(
        lambda: [run for run in stage.runs("tick") if run.status == "succeeded" and run not in before], "a later run"
    )
    # The transaction of a SQL run is gone with its session: rolled back, and told so.
    assert stage.wait_status(report, "lost", "succeeded", "failed").status == "lost"
    assert stage.begun("backup") == [backup]
    stage.open_gate("backup")
    assert stage.wait_status(backup, "succeeded").attempt == 1
    for worker in workers:
        assert worker.returncode is None
        assert len(worker.ids) == 1
        assert worker.events("lease_not_renewed") + worker.events("locks_taken_over") == []
    stage.wait_quiet()
    stage.check()


def test_an_outage_longer_than_the_lease_kills_the_commands_before_they_are_tried_again(own_stage: Stage) -> None:
    stage, lease = own_stage, 3.0
    stage.add_shell("first")
    stage.add_shell("second")
    stage.add_shell("finished")
    end = stage.database.value("select clock_timestamp() + '10 seconds'")
    stage.add_sql("tick", schedule="@every 1s", ends_at=end)
    workers = [stage.ready("--slots", "3", lease="3s"), stage.ready("--slots", "3", lease="3s")]
    runs = {job: stage.run_now(job) for job in ("first", "second", "finished")}
    for job, run_id in runs.items():
        stage.wait_begun(job, run_id)

    stopped_at = boottime()
    stage.database.server.stop("fast")
    # One command comes to its end while nobody can be told.
    stage.open_gate("finished")
    stage.wait_for(lambda: not marked(str(stage.folder / "first")), "the first is dead")
    stage.wait_for(lambda: not marked(str(stage.folder / "second")), "the second is dead")
    assert boottime() - stopped_at < lease, "before anybody else may take it"
    stage.wait_for(lambda: boottime() - stopped_at > 2 * lease, "two leases are over")
    stage.database.server.start()
    stage.reconnect()

    for job in ("first", "second"):
        assert stage.wait_status(runs[job], "lost").attempt == 1
        stage.open_gate(job)
        stage.wait_attempt(job, 2, "succeeded")
    assert stage.wait_status(runs["finished"], "succeeded", "lost")
    assert [worker.returncode for worker in workers] == [None, None]
    stage.wait_quiet()
    history = stage.check(unrecorded=True)
    missed = [run.missed_count for run in history.runs if run.status == "missed"]
    assert len(missed) <= 2, "the outage is one row, or two where it was noticed in two steps"


def test_an_end_during_a_short_outage_is_recorded_afterwards(own_stage: Stage) -> None:
    stage = own_stage
    stage.add_shell("backup")
    worker = stage.ready(lease="20s")
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    stage.database.server.stop("fast")
    stage.open_gate("backup")
    stage.wait_for(lambda: not marked(str(stage.folder / "backup")), "it has ended")
    stage.database.server.start()
    stage.reconnect()
    run = stage.wait_status(run_id, "succeeded", "lost")
    assert run.status == "succeeded"
    assert run.finished_at is not None
    assert run.finished_at - run.scheduled_for < timedelta(seconds=20)
    assert worker.events("result_dropped") == []
    stage.check()


def test_a_worker_that_drains_during_an_outage_still_records_what_it_has(own_stage: Stage) -> None:
    stage = own_stage
    stage.add_shell("backup")
    worker = stage.ready(lease="20s")
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    stage.database.server.stop("fast")
    worker.terminate()
    stage.wait_for(lambda: worker.events("worker_draining"), "it drains")
    stage.open_gate("backup")
    stage.wait_for(lambda: not marked(str(stage.folder / "backup")), "it has ended")
    stage.database.server.start()
    stage.reconnect()
    assert worker.wait() == 0
    assert stage.run(run_id).status == "succeeded"
    stage.check()
