"""Workers that die without a word."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest

from tests.faults.processes import descendants
from tests.faults.stage import Stage

pytestmark = pytest.mark.faults

LEASE = timedelta(seconds=3)
BEAT = LEASE / 6
# For a machine that is busy with other things; the promise itself is one lease and one heartbeat.
SLACK = timedelta(seconds=4)


def test_the_runs_of_a_killed_worker_are_lost_in_time_and_tried_again(stage: Stage) -> None:
    # With children that leave its group and its session.
    stage.add_shell("backup", before="sleep 300 >/dev/null 2>&1 & (setsid sleep 300 >/dev/null 2>&1 &);")
    stage.add_sql("report", seconds=3)
    dying = stage.ready(lease="3s")
    backup, report = stage.run_now("backup"), stage.run_now("report")
    stage.wait_begun("backup", backup)
    stage.wait_for(lambda: stage.sessions(dying, "select pg_sleep%"), "the report is at work")
    heir = stage.ready(lease="3s")
    started = descendants(dying.pid)
    commands = [process.command for process in started]
    assert any("/guard" in command for command in commands)
    assert commands.count("sleep 300") == 2

    dying.kill()

    lost = [stage.wait_status(run_id, "lost") for run_id in (backup, report)]
    last_beat = stage.database.value("select heartbeat_at from pgcron.workers where id = %s", [dying.ids[0]])
    for run in lost:
        assert run.finished_at is not None
        assert LEASE <= run.finished_at - last_beat <= LEASE + 2 * BEAT + SLACK
    assert [process for process in started if process.is_alive] == []
    again = stage.wait_attempt("backup", 2, "running")
    assert again.worker_id == heir.ids[0]
    stage.wait_begun("backup", again.id)
    stage.open_gate("backup")
    stage.wait_attempt("backup", 2, "succeeded")
    stage.wait_attempt("report", 2, "succeeded")
    stage.check()


def test_a_worker_that_is_killed_without_another_one_is_reaped_by_the_next_to_start(stage: Stage) -> None:
    stage.add_shell("backup")
    dying = stage.ready(lease="2s")
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    dying.kill()
    stage.ready(lease="2s")
    stage.wait_status(run_id, "lost")
    stage.open_gate("backup")
    stage.wait_attempt("backup", 2, "succeeded")
    stage.check()


def test_a_worker_whose_guard_is_killed_ends_and_its_runs_are_tried_again(stage: Stage) -> None:
    stage.add_shell("backup")
    dying = stage.ready()
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    stage.ready()
    commands = descendants(dying.pid)
    guard = next(process for process in commands if "/guard" in process.command)

    os.kill(guard.pid, signal.SIGKILL)

    assert dying.wait() == 1
    assert [event["event"] for event in dying.events("guard_lost")] == ["guard_lost"]
    assert [process for process in commands if process.is_alive] == []
    assert stage.wait_status(run_id, "failed", "interrupted", "lost").attempt == 1
    stage.open_gate("backup")
    stage.wait_attempt("backup", 2, "succeeded")
    stage.check()
