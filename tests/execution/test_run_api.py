"""`from pgcron_runner import run`: the same in a process of its own, in the worker, in a script and in a test."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner import pretend_run, run
from pgcron_runner.errors import InvalidInput
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.python import PythonRunner
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, NextRun, Outcome, Status, StopReason, Task
from pgcron_runner.running import NotInRun, NotKept, RunFiles
from tests.execution.tasks import SCHEDULED_FOR, running, some_task, text_of
from tests.support.waiting import eventually_async

PROCESS: dict[str, Any] = {}
THREAD = {"isolation": "thread"}
ROOT = str(Path(__file__).resolve().parents[2])
FACTS = {"id": 77, "job": "nightly", "attempt": 2, "scheduled_for": "2026-03-01T18:00:00+00:00", "cancelled": False}


def step_task(name: str, arguments: dict[str, Any] | None = None, **changes: Any) -> Task:
    target = f"tests.execution.steps_taken:{name}"
    return some_task(target, kind=Kind.PYTHON, args=dict(arguments or {}), **changes)


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    guard = Guard.start()
    yield guard
    asyncio.run(guard.close())


@pytest.fixture
def runner(guard: Guard) -> Iterator[PythonRunner]:
    runner = PythonRunner(guard, threads=1)
    yield runner
    runner.close()


async def call(runner: PythonRunner, name: str, arguments: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    async with asyncio.timeout(20):
        return await runner.run(step_task(name, arguments, **changes), Stop(), Live())


async def is_up(path: Path) -> None:
    async def made() -> bool:
        return path.name in os.listdir(path.parent)

    await eventually_async(made, message="the function is up")


# What it is told


@pytest.mark.parametrize(
    ("name", "isolation"), [("tells", PROCESS), ("tells", THREAD), ("tells_async", PROCESS), ("tells_async", THREAD)]
)
async def test_a_function_is_told_which_run_it_is(runner: PythonRunner, name: str, isolation: dict[str, Any]) -> None:
    arguments = {"day": "2027-01-31", "argv": ["x"]}
    outcome = await call(runner, name, arguments | isolation, attempt=2, state={"cursor": 7})
    assert outcome.result == FACTS | {"args": arguments, "state": {"cursor": 7}}, outcome.error


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
async def test_where_nothing_was_saved_the_state_is_empty(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    assert (await call(runner, "tells", isolation)).result["state"] == {}


async def test_a_script_that_a_shell_job_starts_is_told_the_same(guard: Guard) -> None:
    code = "import json; from tests.execution.steps_taken import tells; print(json.dumps(tells()))"
    task = some_task(
        f"exec {sys.executable} -c {shlex.quote(code)}",
        args={"day": "2027-01-31", "umask": "077"},
        env={"PYTHONPATH": ROOT},
        attempt=2,
        state=[1],
    )
    outcome = await run_shell(task, guard, Stop(), Live())
    assert json.loads(text_of(outcome)) == FACTS | {"args": {"day": "2027-01-31"}, "state": [1]}


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
async def test_what_it_is_given_is_a_copy(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    task = step_task("changes_its_copy", isolation | {"day": "today"}, state={"cursor": 1})
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.result, task.state, outcome.state) == ([{"cursor": 1}, {"day": "today"}], {"cursor": 1}, None)


# What it says


@pytest.mark.parametrize(
    ("name", "isolation"),
    [("says_all", PROCESS), ("says_all", THREAD), ("says_all_async", PROCESS), ("says_all_async", THREAD)],
)
async def test_what_a_function_says_is_in_the_outcome(
    runner: PythonRunner, name: str, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, name, isolation, state={"before": True})
    assert (outcome.status, outcome.error) == (Status.SUCCEEDED, None)
    assert outcome.progress == {"percent": 40, "text": "copied users"}
    assert outcome.state == {"cursor": 40, "table": "users"}
    assert outcome.result == {"rows": 17}
    assert outcome.next_runs == (
        NextRun(after=timedelta(seconds=10)),
        NextRun("report", timedelta(seconds=1.5), {"day": "2027-01-31"}),
    )


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
async def test_what_it_returns_counts_for_more_than_what_it_put_down(
    runner: PythonRunner, isolation: dict[str, Any]
) -> None:
    assert (await call(runner, "returns_and_says", isolation)).result == "returned"


@pytest.mark.parametrize(("given", "told"), [(-5, 0), (250, 100), (float("nan"), 0), (33.333, 33.3), (7, 7)])
def test_progress_is_between_0_and_100(given: float, told: float) -> None:
    with pretend_run() as pretended:
        run.progress(given, "x")
    assert pretended.line == f"{told:g} x"


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
@pytest.mark.parametrize(
    ("what", "error"),
    [
        (
            "set",
            "NotKept: state: JSON cannot hold it: Object of type set is not JSON serializable. For example: run.save",
        ),
        ("none", "NotKept: run.save(None) keeps nothing; run.save({}) forgets what is there"),
        ("both", "NotKept: run.save() takes a whole state or names with values, not both"),
        ("nan", "NotKept: state: JSON cannot hold it"),
        ("big", "NotKept: state: it is larger than 1,048,576 bytes"),
        ("to a list", "NotKept: run.save(name=value) adds to an object, but the state is [1]"),
        ("delay", "InvalidInput: delay: 'ten minutes ago' is not a duration. For example: 90s"),
        ("unit", "InvalidInput: delay: '10' has no unit. For example: 10s"),
        ("negative", 'InvalidInput: delay: -1 is not between 0s and 3650d. For example: run.run_after("10s")'),
    ],
)
async def test_what_cannot_be_kept_is_told_at_once(
    runner: PythonRunner, what: str, error: str, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, "saves", {"what": what} | isolation)
    assert outcome.error is not None
    assert outcome.error.startswith(error)


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
async def test_an_empty_state_forgets_what_was_there(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    outcome = await call(runner, "saves", {"what": "nothing"} | isolation, state={"cursor": 1})
    assert (outcome.result, outcome.state) == ({}, {})


async def test_what_was_saved_outlives_a_kill(runner: PythonRunner) -> None:
    outcome = await call(runner, "saves_and_is_killed")
    assert (outcome.exit_code, outcome.state) == (137, {"cursor": 50})
    assert outcome.progress == {"percent": 50, "text": "half"}


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
async def test_it_is_heard_while_the_run_goes_on(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    live, path = Live(), tmp_path / "up"
    task = step_task("saves_and_waits", {"path": str(path), "gate": str(tmp_path / "gate")} | isolation)
    going = asyncio.ensure_future(runner.run(task, Stop(), live))
    try:
        await is_up(path)
        said = live.news()
        assert said is not None
        assert (said.progress, said.state) == ({"percent": 50, "text": "half"}, {"cursor": 50})
    finally:
        (tmp_path / "gate").touch()
        assert (await going).status is Status.SUCCEEDED


async def test_progress_may_be_told_as_often_as_one_likes(runner: PythonRunner, tmp_path: Path) -> None:
    outcome = await call(runner, "progresses", {"times": 20_000})
    assert outcome.progress == {"percent": 100, "text": "done"}


async def test_it_may_share_the_file_with_others(runner: PythonRunner) -> None:
    outcome = await call(runner, "and_a_shell")
    assert outcome.progress == {"percent": 50, "text": "last"}, outcome.error


async def test_programs_that_the_job_starts_speak_for_the_same_run(runner: PythonRunner) -> None:
    outcome = await call(runner, "starts_a_script", state={"cursor": 1})
    assert (outcome.state, outcome.progress) == ({"cursor": 1, "script": 77}, {"percent": 70}), outcome.error


def test_the_file_of_progress_stays_as_small_as_its_longest_line(tmp_path: Path) -> None:
    files = RunFiles(environment(tmp_path))
    for number in range(1000):
        files.progress(f"{number % 100} " + "x" * (number % 7))
    files.progress("7 y")
    assert (tmp_path / "PGCRON_PROGRESS").read_text().split() == ["7", "y"]
    assert (tmp_path / "PGCRON_PROGRESS").stat().st_size < 20


def test_a_disk_that_is_full_does_not_end_the_work_because_of_progress(tmp_path: Path) -> None:
    files = RunFiles(environment(tmp_path / "gone"))
    files.progress("7 y")


def environment(folder: Path) -> dict[str, str]:
    """What a worker gives to a command whose files are in this folder."""
    paths = {
        f"PGCRON_{name}": str(folder / f"PGCRON_{name}") for name in ("ARGS", "STATE", "PROGRESS", "RESULT", "NEXT")
    }
    facts = {"PGCRON_RUN_ID": "7", "PGCRON_JOB": "nightly", "PGCRON_ATTEMPT": "1"}
    return paths | facts | {"PGCRON_SCHEDULED_FOR": SCHEDULED_FOR.isoformat()}


# How it is stopped


@pytest.mark.parametrize(
    ("name", "isolation"),
    [
        ("looks_until_cancelled", PROCESS),
        ("looks_until_cancelled", THREAD),
        ("looks_in_a_thread_until_cancelled", PROCESS),
    ],
)
async def test_who_looks_whether_it_is_cancelled_is_told_and_not_interrupted(
    runner: PythonRunner, tmp_path: Path, name: str, isolation: dict[str, Any]
) -> None:
    path, stop = tmp_path / "up", Stop()
    async with running(runner.run, step_task(name, {"path": str(path)} | isolation), stop) as going:
        await is_up(path)
        stop.request(StopReason.TIMEOUT)
        async with asyncio.timeout(10):
            outcome = await going
    assert (outcome.result, outcome.state) == ("in order", {"cursor": "where it was"}), outcome.error


async def test_a_function_that_is_interrupted_may_ask_why(runner: PythonRunner, tmp_path: Path) -> None:
    path, stop = tmp_path / "up", Stop()
    async with running(runner.run, step_task("tidies_up_and_looks", {"path": str(path)}), stop) as going:
        await is_up(path)
        stop.request(StopReason.CANCEL)
        outcome = await going
    assert text_of(outcome).startswith("cancelled: True\n")


@pytest.mark.parametrize("isolation", [PROCESS, THREAD])
async def test_a_coroutine_is_cancelled_even_if_it_looks(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    path, stop = tmp_path / "up", Stop()
    task = step_task("tidies_up_and_looks_async", {"path": str(path)} | isolation)
    async with running(runner.run, task, stop) as going:
        await is_up(path)
        stop.request(StopReason.CANCEL)
        outcome = await going
    assert outcome.state == {"cancelled": True}


async def test_a_script_that_looks_is_told_and_not_killed(guard: Guard, tmp_path: Path) -> None:
    path, stop = tmp_path / "up", Stop()
    code = f"from tests.execution.steps_taken import looks_until_cancelled as f; print(f({str(path)!r}))"
    task = some_task(f"exec {sys.executable} -c {shlex.quote(code)}", env={"PYTHONPATH": ROOT})
    going = asyncio.ensure_future(run_shell(task, guard, stop, Live()))
    await is_up(path)
    stop.request(StopReason.CANCEL)
    outcome = await going
    assert (text_of(outcome), outcome.exit_code) == ("in order\n", 0)


# Without a worker


def test_outside_of_a_run_it_says_so_and_how_to_try_the_code() -> None:
    for use in (
        lambda: run.id,
        lambda: run.state,
        lambda: run.progress(1),
        lambda: run.save(a=1),
        lambda: run.cancelled,
    ):
        with pytest.raises(NotInRun, match=r"There is no run here(.|\n)*with pretend_run"):
            use()


def test_a_pretended_run_is_set_up_and_looked_at() -> None:
    with pretend_run(job="nightly", args={"day": 1}, state={"cursor": 1}, cancelled=True) as pretended:
        assert (run.job, run.args, run.state, run.cancelled, run.attempt) == (
            "nightly",
            {"day": 1},
            {"cursor": 1},
            True,
            1,
        )
        run.progress(40, "copied")
        run.save(cursor=2)
        run.run_after(timedelta(minutes=1), args={})
        run.result(3)
        assert run.state == {"cursor": 2}
    assert (pretended.line, pretended.state, pretended.returned) == ("40 copied", {"cursor": 2}, 3)
    assert pretended.next_runs == [{"after": 60.0, "args": {}}]
    with pytest.raises(NotInRun):
        _ = run.id


def test_a_delay_is_refused_in_a_test_too() -> None:
    with pretend_run(), pytest.raises(InvalidInput):
        run.run_after("tomorrow")
    with pretend_run(), pytest.raises(NotKept):
        run.result({1})


def test_importing_it_loads_nothing_that_a_job_would_have_to_wait_for() -> None:
    code = "import sys; from pgcron_runner import run; run; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    loaded = set(done.stdout.replace("'", "").strip("[]\n").split(", "))
    assert {name for name in loaded if name.startswith("pgcron")} == {
        "pgcron_runner",
        "pgcron_runner.errors",
        "pgcron_runner.running",
    }
    assert not loaded & {"typing", "dataclasses", "inspect", "asyncio", "logging", "structlog", "psycopg", "typer"}


def test_the_time_is_the_nominal_one_in_utc() -> None:
    files = RunFiles(environment(Path("/nowhere")) | {"PGCRON_SCHEDULED_FOR": "2027-01-31T10:00:00+01:00"})
    assert files.scheduled_for == datetime(2027, 1, 31, 9, tzinfo=UTC)
    assert files.scheduled_for.utcoffset() == timedelta(0)
