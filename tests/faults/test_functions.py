"""Python jobs on real workers: those that cannot be reasoned with harm nobody but themselves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.faults.stage import Stage

pytestmark = pytest.mark.faults

ROOT = str(Path(__file__).resolve().parents[2])
_FUNCTIONS = """\
import pathlib, time
from pgcron_runner import run

def lingers(path):
    while not pathlib.Path(path + ".gate").exists():
        run.progress(50, "lingering")
        pathlib.Path(path).touch()
        time.sleep(0.01)

def looks(path):
    pathlib.Path(path).touch()
    while not run.cancelled:
        time.sleep(0.01)
    run.save(stopped=True)
"""


def add_function(stage: Stage, name: str, function: str, isolation: str, **columns: object) -> Path:
    """A job that gets the path of a file to touch when it is up; that path."""
    (stage.folder / "tried.py").write_text(_FUNCTIONS)
    target = function if ":" in function else f"tried:{function}"
    path = stage.folder / name
    stage.add_job(name, "python", target, args=f'{{"path": "{path}", "isolation": "{isolation}"}}', **columns)
    return path


@pytest.mark.parametrize("isolation", ["process", "fresh"])
def test_a_function_that_holds_the_interpreter_ends_in_time_and_holds_up_nobody(stage: Stage, isolation: str) -> None:
    function = "tests.execution.hostile:holds_the_lock_of_the_interpreter"
    limits = {"timeout": timedelta(seconds=3), "kill_grace": timedelta(seconds=1), "max_attempts": 1}
    path = add_function(stage, "stubborn", function, isolation, **limits)
    worker = stage.ready(lease="2s", PYTHONPATH=ROOT)
    run_id = stage.run_now("stubborn")
    stage.wait_for(path.exists, "it holds the interpreter")
    beat = "select beat from pgcron.workers where id = %s"
    before = stage.database.value(beat, [worker.ids[0]])
    stage.add_sql("other", schedule="* * * * * *")
    run = stage.wait_status(run_id, "timed_out")
    stage.database.execute("update pgcron.jobs set enabled = false where name = 'other'")
    assert run.started_at is not None
    assert run.finished_at is not None
    assert timedelta(seconds=4) <= run.finished_at - run.started_at
    assert stage.database.value("select exit_code from pgcron.runs where id = %s", [run_id]) == 137
    stage.wait_quiet()
    others = stage.runs("other")
    assert len(others) >= 3
    assert {(other.status, other.attempt) for other in others} == {("succeeded", 1)}
    assert stage.database.value(beat, [worker.ids[0]]) - before >= 6
    assert worker.events("lease_not_renewed") == worker.events("no_warm_starts") == []


def test_a_function_in_a_thread_that_never_returns_keeps_its_run(stage: Stage) -> None:
    path = add_function(stage, "stubborn", "lingers", "thread", kill_grace=timedelta(seconds=0.1))
    worker = stage.ready("--drain-timeout", "0s")
    run_id = stage.run_now("stubborn")
    stage.wait_for(path.exists, "it is at work")

    worker.terminate()

    stage.wait_for(lambda: worker.events("function_goes_on", run=run_id), "the worker says why it does not end")
    assert stage.run(run_id).status == "running"
    assert stage.job_lock_pids("stubborn"), "nobody else may run it meanwhile"
    Path(f"{path}.gate").touch()
    assert worker.wait() == 0
    # It came to its end, whatever it was asked for.
    assert stage.run(run_id).status == "succeeded"


@pytest.mark.parametrize("isolation", ["thread", "process", "fresh"])
def test_a_function_that_looks_whether_it_is_cancelled_ends_with_its_worker(stage: Stage, isolation: str) -> None:
    path = add_function(stage, "cooperative", "looks", isolation)
    worker = stage.ready("--drain-timeout", "0s", PYTHONPATH=ROOT)
    run_id = stage.run_now("cooperative")
    stage.wait_for(path.exists, "it is at work")
    worker.terminate()
    assert worker.wait() == 0
    assert stage.database.value("select state from pgcron.runs where id = %s", [run_id]) == {"stopped": True}
    assert stage.run(run_id).status == ("succeeded" if isolation == "thread" else "interrupted")
