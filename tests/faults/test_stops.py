"""Single runs that are stopped: on request, at their timeout, and against their will."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.execution.escapes import exists
from tests.faults.processes import marked
from tests.faults.stage import WORK, Stage

pytestmark = pytest.mark.faults

_FUNCTIONS = """\
import asyncio, os, pathlib, time

def linger(path):
    pathlib.Path(path).write_text(str(os.getpid()))
    time.sleep(300)

async def wait(path):
    pathlib.Path(path).touch()
    await asyncio.sleep(300)
"""
# What the promise says is within a second; a busy machine may take longer.
SOON = timedelta(seconds=10)


def add_python(stage: Stage, name: str, function: str, isolation: str) -> None:
    (stage.folder / "lingering.py").write_text(_FUNCTIONS)
    args = f'{{"path": "{stage.folder / name}", "isolation": "{isolation}"}}'
    stage.add_job(name, "python", f"lingering:{function}", args=args)


def test_runs_of_every_kind_are_cancelled_on_request(stage: Stage) -> None:
    stage.add_shell("shell")
    stage.add_sql("sql", seconds=300)
    add_python(stage, "process", "linger", "process")
    add_python(stage, "coroutine", "wait", "thread")
    jobs = ("shell", "sql", "process", "coroutine")
    worker = stage.ready(lease="60s", poll="60s")
    runs = {job: stage.run_now(job) for job in jobs}
    stage.wait_begun("shell", runs["shell"])
    stage.wait_for(lambda: stage.sessions(worker, "select pg_sleep%"), "the SQL job is at work")
    for job in ("process", "coroutine"):
        stage.wait_for((stage.folder / job).exists, f"{job} is at work")

    stage.database.execute("update pgcron.runs set cancel_requested_at = clock_timestamp() where status = 'running'")

    for run_id in runs.values():
        run = stage.wait_status(run_id, "cancelled")
        asked = stage.database.value("select cancel_requested_at from pgcron.runs where id = %s", [run_id])
        assert run.finished_at is not None
        assert run.finished_at - asked < SOON
    assert len(stage.runs()) == len(jobs), "what was stopped on purpose is not tried again"
    assert stage.sessions(worker, "select pg_sleep%") == []
    assert not exists(int((stage.folder / "process").read_text()))
    stage.check()


def test_each_attempt_ends_at_its_timeout(stage: Stage) -> None:
    second = timedelta(seconds=1)
    stage.add_shell("shell", timeout=second)
    stage.add_sql("sql", seconds=300, timeout=second)
    add_python(stage, "coroutine", "wait", "thread")
    stage.database.execute("update pgcron.jobs set timeout = '1 second'")
    stage.ready()
    for job in ("shell", "sql", "coroutine"):
        stage.run_now(job)
    for job in ("shell", "sql", "coroutine"):
        for attempt in (1, 2):
            run = stage.wait_attempt(job, attempt, "timed_out")
            assert run.started_at is not None
            assert run.finished_at is not None
            assert second <= run.finished_at - run.started_at < second + SOON
    stage.check()


def test_a_command_that_ignores_term_or_hides_is_killed_after_its_grace(stage: Stage) -> None:
    marker = str(stage.folder / "hidden")
    hidden = f"sh -c 'while :; do sleep 0.1; done' {marker}"
    before = f"trap '' TERM; setsid {hidden} & (setsid {hidden} & ) ; kill -STOP $! ;"
    stage.add_shell("stubborn", before=before, timeout=timedelta(seconds=1), max_attempts=1)
    worker = stage.ready()
    run_id = stage.run_now("stubborn")
    stage.wait_begun("stubborn", run_id)
    assert stage.wait_for(lambda: len(marked(marker)) >= 2, "its hidden processes are there")
    run = stage.wait_status(run_id, "timed_out")
    assert run.started_at is not None
    assert run.finished_at is not None
    # The timeout and the grace of a second each.
    assert timedelta(seconds=2) <= run.finished_at - run.started_at < timedelta(seconds=2) + SOON
    assert marked(marker) == []
    assert stage.database.value("select exit_code from pgcron.runs where id = %s", [run_id]) == 137
    assert worker.events("lease_not_renewed") == []
    stage.check()


def test_a_run_that_waits_is_cancelled_without_a_worker(stage: Stage) -> None:
    stage.add_job("report", "sql", WORK)
    run_id = stage.run_now("report")
    stage.database.execute(
        "update pgcron.runs set status = 'cancelled', finished_at = now() where id = %s and status = 'queued'", [run_id]
    )
    stage.ready()
    stage.wait_status(stage.run_now("report"), "succeeded")
    assert stage.run(run_id).status == "cancelled"
    stage.check()
