"""Python jobs: in a process of their own, in a thread and on the worker's loop; none takes the worker down."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.python import PythonRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.execution.warm import WarmStarts
from pgcron_runner.model import Kind, Outcome, Status, StopReason, Task
from tests.execution.tasks import running, some_task, stopped, text_of
from tests.support.waiting import eventually_async

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")
WARM: dict[str, Any] = {}
COLD = {"isolation": "fresh"}
THREAD = {"isolation": "thread"}
IN_A_CHILD = pytest.mark.parametrize("isolation", [WARM, COLD], ids=["warm", "cold"])
ANYWHERE = pytest.mark.parametrize("isolation", [WARM, COLD, THREAD], ids=["warm", "cold", "thread"])


def function_task(name: str, arguments: dict[str, Any] | None = None, **changes: Any) -> Task:
    """A run that calls a function of tests/execution/functions.py; a name with a colon is taken as it is."""
    target = name if ":" in name else f"tests.execution.functions:{name}"
    return some_task(target, kind=Kind.PYTHON, args=dict(arguments or {}), **changes)


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    guard = Guard.start()
    yield guard
    asyncio.run(guard.close())


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why something could not be started warm, where that is a failure."""
    failures: list[str] = []
    monkeypatch.setattr(WarmStarts, "_rest", lambda _, error: failures.append(str(error)))
    return failures


@pytest.fixture
def runner(guard: Guard, failures: list[str]) -> Iterator[PythonRunner]:
    runner = PythonRunner(guard, threads=1)
    yield runner
    runner.close()
    assert failures == []


async def call(runner: PythonRunner, name: str, arguments: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    async with asyncio.timeout(20):
        return await runner.run(function_task(name, arguments, **changes), Stop(), Live())


async def is_up(path: Path) -> None:
    async def made() -> bool:
        return path.name in os.listdir(path.parent)

    await eventually_async(made, message="the function is up")


# What it is given and what it returns


@ANYWHERE
@pytest.mark.parametrize("name", ["echo", "echo_async"])
async def test_args_are_keywords_and_what_is_returned_is_the_result(
    runner: PythonRunner, name: str, isolation: dict[str, Any]
) -> None:
    keywords = {"text": "ä'\"🎉", "number": 1.5, "none": None, "list": [1, {"a": True}]}
    outcome = await call(runner, name, keywords | isolation)
    assert (outcome.status, outcome.error, outcome.result) == (Status.SUCCEEDED, None, keywords)


@ANYWHERE
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("nothing", {}, None),
        ("returns_a_coroutine", {}, {"a": 1}),
        ("adder", {"value": 1}, 2),
        ("adder.method", {"value": 2}, 4),
        ("partly", {"a": 1}, {"a": 1, "b": 2}),
        ("values", {"which": "emoji"}, "🎉"),
        ("values", {"which": "tuple"}, [1, 2]),
        ("values", {"which": "keys"}, {"1": "one"}),
        ("values", {"which": "nul"}, {"a␀": "b␀"}),
        ("values", {"which": "surrogate"}, "\\ud800"),
        ("values_async", {"which": "nul"}, {"a␀": "b␀"}),
    ],
)
async def test_whatever_can_be_called_is_called(
    runner: PythonRunner, name: str, arguments: dict[str, Any], result: object, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, name, arguments | isolation)
    assert (outcome.status, outcome.error, outcome.result) == (Status.SUCCEEDED, None, result)


@ANYWHERE
@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("set", "Object of type set is not JSON serializable"),
        ("nan", "JSON compliant"),
        ("loop", "Circular reference"),
        ("big", "larger than 1,048,576 bytes"),
        ("huge", "4300 digits"),
    ],
)
async def test_a_result_that_cannot_be_kept_is_a_failure_in_words(
    runner: PythonRunner, which: str, words: str, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, "values", {"which": which} | isolation)
    assert (outcome.status, outcome.result) == (Status.FAILED, None)
    assert outcome.error is not None
    assert outcome.error.startswith("the function returned what cannot be kept: ")
    assert words in outcome.error


async def test_a_result_is_kept_as_it_was_returned(runner: PythonRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[int] = [1]

    async def returns_it() -> list[int]:
        return shared

    monkeypatch.setattr("tests.execution.functions.returns_it", returns_it, raising=False)
    outcome = await call(runner, "returns_it", THREAD)
    shared.append(2)
    assert outcome.result == [1]


@IN_A_CHILD
async def test_more_arguments_than_an_environment_can_hold_arrive(
    runner: PythonRunner, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, "echo", {"text": "x" * 500_000} | isolation)
    assert outcome.status is Status.SUCCEEDED
    assert len(outcome.result["text"]) == 500_000


# Where it runs


@IN_A_CHILD
async def test_by_default_it_runs_in_a_process_of_its_own(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    assert (await call(runner, "where", isolation)).result["pid"] != os.getpid()


async def test_in_the_worker_coroutines_run_on_the_loop_and_the_rest_in_threads(runner: PythonRunner) -> None:
    on_loop = (await call(runner, "where_async", THREAD)).result
    in_thread = (await call(runner, "where", THREAD)).result
    assert (on_loop["pid"], on_loop["thread"]) == (os.getpid(), "MainThread")
    assert (in_thread["pid"], in_thread["thread"].startswith("pgcron-job")) == (os.getpid(), True)


async def test_another_isolation_is_refused_in_words(runner: PythonRunner) -> None:
    outcome = await call(runner, "echo", {"isolation": "container"})
    assert outcome.error == 'launch failed: args.isolation is \'container\', not "process", "fresh" or "thread"'


# Failures


@ANYWHERE
@pytest.mark.parametrize("name", ["fails", "fails_async"])
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("text", "ValueError: no ␀ stock \\ud800 🎉"),
        ("odd", "OddError (its message cannot be shown)"),
        ("exit text", "SystemExit: out of stock"),
        ("exit 3", "SystemExit: 3"),
        ("exit 256", "SystemExit: 256"),
        ("interrupt", "KeyboardInterrupt: "),
        ("cancelled", "CancelledError: "),
    ],
)
async def test_whatever_it_raises_is_the_error_of_the_run(
    runner: PythonRunner, name: str, how: str, error: str, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, name, {"how": how} | isolation)
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.splitlines()[0] == error
    assert outcome.reason is None
    assert (await call(runner, "echo_async", THREAD)).status is Status.SUCCEEDED


@ANYWHERE
@pytest.mark.parametrize("how", ["generator", "base"])
async def test_so_is_what_is_no_ordinary_exception(runner: PythonRunner, how: str, isolation: dict[str, Any]) -> None:
    assert (await call(runner, "fails", {"how": how} | isolation)).status is Status.FAILED


@ANYWHERE
async def test_the_error_ends_with_the_end_of_the_traceback(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    outcome = await call(runner, "fails", {"how": "deep"} | isolation)
    assert outcome.error is not None
    lines = outcome.error.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("ValueError: deep down", "ValueError: deep down", 21)
    assert 'raise ValueError("deep down")' in outcome.error


@ANYWHERE
@pytest.mark.parametrize("name", ["fails", "fails_async"])
async def test_the_traceback_begins_with_the_jobs_own_code(
    runner: PythonRunner, name: str, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, name, {"how": "text"} | isolation)
    assert outcome.error is not None
    assert "pgcron_runner" not in outcome.error
    assert outcome.error.splitlines()[2].endswith(f"in {name}")


@ANYWHERE
async def test_a_long_message_is_cut(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    outcome = await call(runner, "fails", {"how": "long"} | isolation)
    assert outcome.error is not None
    assert len(outcome.error) < 40_000


@ANYWHERE
@pytest.mark.parametrize("name", ["fails", "fails_async"])
async def test_exit_without_a_code_is_an_end_in_order(
    runner: PythonRunner, name: str, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, name, {"how": "exit 0"} | isolation)
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.SUCCEEDED, 0, None)


@IN_A_CHILD
async def test_the_exit_code_is_the_one_that_it_gave(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    codes = [
        (await call(runner, "fails", {"how": how} | isolation)).exit_code for how in ("exit 3", "exit text", "text")
    ]
    assert codes == [3, 1, 1]


@pytest.mark.parametrize("name", ["fails_in_a_task", "fails_in_a_group"])
@pytest.mark.parametrize("how", ["exit 3", "interrupt"])
async def test_an_exit_in_a_task_of_the_jobs_own_does_not_end_the_loop(
    runner: PythonRunner, name: str, how: str
) -> None:
    outcome = await call(runner, name, {"how": how} | THREAD)
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert ("SystemExit: 3" in outcome.error) or ("KeyboardInterrupt" in outcome.error)


async def test_nor_does_one_that_nobody_waits_for(runner: PythonRunner) -> None:
    outcome = await call(runner, "fails_behind_its_back", {"how": "exit 3"} | THREAD)
    assert (outcome.status, outcome.result) == (Status.SUCCEEDED, "Exited")


async def test_tasks_of_the_jobs_own_are_otherwise_as_ever(runner: PythonRunner) -> None:
    assert (await call(runner, "uses_tasks", THREAD)).result == [0, 1, 2]


@IN_A_CHILD
@pytest.mark.parametrize("code", [0, 3])
async def test_a_process_that_ends_before_the_function_returns_has_failed(
    runner: PythonRunner, code: int, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, "os_exit", {"code": code} | isolation)
    assert (outcome.status, outcome.exit_code, text_of(outcome)) == (Status.FAILED, code, "going\n")
    expected = {0: "the process ended before the function had returned", 3: "exited with code 3"}
    assert outcome.error == expected[code]


@IN_A_CHILD
async def test_so_has_one_that_becomes_another_program(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    assert (await call(runner, "execs", isolation)).error == "the process ended before the function had returned"


@IN_A_CHILD
async def test_a_killed_process_is_told_with_its_signal(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    outcome = await call(runner, "kills_itself", isolation)
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 137)
    assert outcome.error == "killed by SIGKILL (signal 9)"


@ANYWHERE
@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("tests.execution.functions:no_such", "AttributeError: module"),
        ("tests.execution.functions:NOT_A_FUNCTION", "NoFunctionError: 'tests.execution.functions:NOT_A_FUNCTION' is"),
        (":", "NoFunctionError: ':' does not name a function, as myapp.reports:send_daily does"),
        ("exits_when_imported:f", "SystemExit: not for import"),
        ("broken_when_imported:f", "SyntaxError: "),
    ],
)
async def test_a_function_that_cannot_be_imported_is_a_failed_launch(
    runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, error: str,
    isolation: dict[str, Any],
) -> None:  # fmt: skip
    (tmp_path / "exits_when_imported.py").write_text("raise SystemExit('not for import')")
    (tmp_path / "broken_when_imported.py").write_text("def f(:")
    monkeypatch.syspath_prepend(tmp_path)
    outcome = await call(runner, target, isolation)
    assert (outcome.status, outcome.reason) == (
        Status.FAILED,
        "launch failed: the function cannot be imported",
    )
    assert outcome.error is not None
    assert outcome.error.startswith(error)


@ANYWHERE
async def test_wrong_keywords_are_told_as_python_tells_them(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    outcome = await call(runner, "values", {"wich": 1} | isolation)
    assert outcome.error is not None
    assert outcome.error.startswith("TypeError: values() got an unexpected keyword argument 'wich'")


async def test_importing_does_not_hold_up_the_loop(
    runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = "import pathlib, time\nwhile not pathlib.Path(r'{}').exists(): time.sleep(0.005)\nasync def f(): pass\n"
    (tmp_path / "slow_to_import.py").write_text(waiting.format(tmp_path / "gate"))
    monkeypatch.syspath_prepend(tmp_path)
    async with running(runner.run, function_task("slow_to_import:f", THREAD)) as going:
        (tmp_path / "gate").touch()  # reached only if the loop goes on
        async with asyncio.timeout(10):
            assert (await going).status is Status.SUCCEEDED


# Its surroundings


@IN_A_CHILD
async def test_what_a_child_changes_stays_in_it(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    before = (dict(os.environ), os.getcwd(), list(sys.path))
    assert (
        await call(runner, "changes_its_surroundings", {"folder": str(tmp_path)} | isolation)
    ).status is Status.SUCCEEDED
    assert (dict(os.environ), os.getcwd(), list(sys.path)) == before
    after = await call(runner, "environment", isolation)
    assert "PGCRON_TEST_LEAK" not in after.result
    assert (await call(runner, "where", isolation)).result["folder"] == os.getcwd()


@IN_A_CHILD
async def test_a_childs_environment_is_clean(
    runner: PythonRunner, monkeypatch: pytest.MonkeyPatch, isolation: dict[str, Any]
) -> None:
    for name in ("PGPASSWORD", "PGCRON_DSN", "PGSERVICE", "TOKEN", "PYTHONPATH"):
        monkeypatch.setenv(name, "s3cr3t")
    found = (await call(runner, "environment", isolation, env={"MINE": "1"})).result
    assert {name for name in found if name.startswith("PG")} == {
        "PGCRON_JOB",
        "PGCRON_RUN_ID",
        "PGCRON_ATTEMPT",
        "PGCRON_SCHEDULED_FOR",
        "PGCRON_ARGS",
        "PGCRON_STATE",
        "PGCRON_PROGRESS",
        "PGCRON_RESULT",
        "PGCRON_NEXT",
    }
    assert found["MINE"] == "1"
    assert "s3cr3t" not in found.values()
    assert (await call(runner, "command_line", isolation)).result == []


@IN_A_CHILD
async def test_a_child_can_import_what_the_worker_can(
    runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: dict[str, Any]
) -> None:
    (tmp_path / "only_here.py").write_text("def answer():\n    return 'the worker\\'s'")
    monkeypatch.syspath_prepend(tmp_path)
    assert (await call(runner, "only_here:answer", isolation)).result == "the worker's"
    own_code = str(Path(sys.modules[PythonRunner.__module__].__file__ or "").parent)
    assert own_code not in (await call(runner, "search_path", isolation)).result


@IN_A_CHILD
async def test_the_jobs_own_python_path_and_folder_come_first(
    runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: dict[str, Any]
) -> None:
    for name in ("folder", "path", "worker"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "three_times.py").write_text(f"def answer():\n    return {name!r}")
    monkeypatch.syspath_prepend(tmp_path / "worker")
    env = {"PYTHONPATH": str(tmp_path / "path")}
    folder = str(tmp_path / "folder")
    assert (await call(runner, "three_times:answer", isolation)).result == "worker"
    assert (await call(runner, "three_times:answer", isolation, env=env)).result == "path"
    assert (await call(runner, "three_times:answer", isolation, env=env, working_dir=folder)).result == "folder"
    assert (await call(runner, "where", isolation, working_dir=folder)).result["folder"] == folder


@IN_A_CHILD
async def test_a_folder_that_is_not_there_is_a_failed_launch(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, "where", isolation, working_dir=str(tmp_path / "none"))
    assert outcome.error == f"launch failed: the folder {tmp_path / 'none'} does not exist"


@IN_A_CHILD
async def test_so_is_a_host_without_room_for_the_request(
    runner: PythonRunner, guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: dict[str, Any]
) -> None:
    monkeypatch.setattr(guard.scratch, "path", tmp_path / "none" / "none")
    outcome = await call(runner, "where", isolation)
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: ")


@IN_A_CHILD
async def test_nothing_is_left_in_the_folder_for_temporary_files(
    runner: PythonRunner, guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: dict[str, Any]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert (await call(runner, "nothing", isolation)).status is Status.SUCCEEDED
    assert os.listdir(tmp_path) == []
    assert os.listdir(guard.scratch.path) == []


@IN_A_CHILD
async def test_what_a_child_prints_is_kept_at_once(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    path = tmp_path / "up"
    stop = Stop()
    arguments = {"path": str(path), "gate": str(tmp_path / "gate")} | isolation
    async with running(runner.run, function_task("prints_and_waits", arguments), stop) as going:
        await is_up(path)
        stop.request(StopReason.LEASE, now=True)
        outcome = await going
    assert (outcome.exit_code, text_of(outcome)) == (137, "before\n")


# Stopping


async def stop_when_up(
    runner: PythonRunner,
    tmp_path: Path,
    name: str,
    *,
    now: bool = False,
    args: dict[str, Any] = WARM,
    **changes: Any,
) -> Outcome:
    path, stop = tmp_path / "up", Stop()
    async with running(runner.run, function_task(name, {"path": str(path)} | args, **changes), stop) as going:
        await is_up(path)
        stop.request(StopReason.CANCEL, now=now)
        async with asyncio.timeout(10):
            return await going


@IN_A_CHILD
@ON_LINUX
@pytest.mark.parametrize("name", ["sleeps", "spins", "tidies_up", "sleeps_async"])
async def test_a_stopped_child_may_tidy_up_and_tells_where_it_was(
    runner: PythonRunner, tmp_path: Path, name: str, isolation: dict[str, Any]
) -> None:
    outcome = await stop_when_up(runner, tmp_path, name, args=isolation)
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("Terminated: the run was stopped (SIGTERM)")
    assert "functions.py" in outcome.error
    assert text_of(outcome).startswith("tidied\n" if name in ("tidies_up", "sleeps_async") else "Traceback")


@IN_A_CHILD
@ON_LINUX
async def test_a_child_that_ignores_term_is_killed_after_the_grace(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    before = time.monotonic()
    outcome = await stop_when_up(runner, tmp_path, "is_deaf", args=isolation, kill_grace=timedelta(seconds=0.5))
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 137)
    assert outcome.error == "killed by SIGKILL (signal 9)"
    assert time.monotonic() - before >= 0.5


@IN_A_CHILD
@ON_LINUX
async def test_an_urgent_stop_kills_a_child_at_once(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    outcome = await stop_when_up(runner, tmp_path, "tidies_up", now=True, args=isolation, kill_grace=timedelta(hours=1))
    assert (outcome.exit_code, text_of(outcome)) == (137, "")


@IN_A_CHILD
async def test_a_busy_child_does_not_hold_up_the_workers_loop(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    path, stop = tmp_path / "up", Stop()
    async with running(runner.run, function_task("spins", {"path": str(path)} | isolation), stop) as going:
        await is_up(path)
        # Turns of the loop, of which a held lock would allow a few hundred a second.
        async with asyncio.timeout(5):
            for _ in range(5000):
                await asyncio.sleep(0)
        stop.request(StopReason.TIMEOUT)
        await going


async def test_a_stopped_coroutine_is_cancelled(runner: PythonRunner, tmp_path: Path) -> None:
    outcome = await stop_when_up(runner, tmp_path, "sleeps_async", args=THREAD)
    assert (outcome.status, outcome.error, outcome.reason) == (Status.FAILED, None, None)
    assert (tmp_path / "up.tidied").exists()


async def test_a_coroutine_that_swallows_its_cancellation_is_no_success(runner: PythonRunner, tmp_path: Path) -> None:
    outcome = await stop_when_up(runner, tmp_path, "swallows", args=THREAD)
    assert (outcome.status, outcome.result) == (Status.FAILED, "half done")
    assert outcome.reason == "it swallowed its cancellation and returned"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_what_it_raises_while_it_is_cancelled_is_told(runner: PythonRunner, tmp_path: Path) -> None:
    outcome = await stop_when_up(runner, tmp_path, "swallows_and_fails", args=THREAD)
    assert outcome.error is not None
    assert outcome.error.startswith("ValueError: while tidying up")


async def test_timeouts_of_a_coroutines_own_work_as_ever(runner: PythonRunner, tmp_path: Path) -> None:
    outcome = await call(runner, "uses_timeouts", {"path": str(tmp_path / "up")} | THREAD)
    assert outcome.result == "in time"


async def test_a_cancellation_from_elsewhere_goes_through(runner: PythonRunner, tmp_path: Path) -> None:
    path = tmp_path / "up"
    going = asyncio.ensure_future(
        runner.run(function_task("sleeps_async", {"path": str(path)} | THREAD), Stop(), Live())
    )
    await is_up(path)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


@pytest.mark.parametrize(
    ("function", "reason", "status"),
    [
        ("returns_when", "a thread cannot be stopped", Status.SUCCEEDED),
        ("returns_when_async", "it has swallowed its cancellation", Status.FAILED),
    ],
)
async def test_a_function_that_cannot_be_stopped_goes_on_until_it_returns_and_the_log_says_so(
    runner: PythonRunner, tmp_path: Path, function: str, reason: str, status: Status
) -> None:
    path, gate, stop = tmp_path / "up", tmp_path / "gate", Stop()
    arguments = {"path": str(path), "gate": str(gate)} | THREAD

    async def told(logs: list[Any]) -> bool:
        return bool(logs)

    task = function_task(function, arguments, kill_grace=timedelta(0))
    async with running(runner.run, task, stop) as going:
        await is_up(path)
        with capture_logs() as logs:
            stop.request(StopReason.TIMEOUT)
            await eventually_async(lambda: told(logs), message="it says that it cannot be stopped")
        assert not going.done()
        assert runner.close() == (function != "returns_when")
        gate.touch()
        outcome = await going
    words = f"{reason}: its run stays running, and its job locked, until it returns"
    assert [(log["event"], log["run"], log["consequence"]) for log in logs] == [("function_goes_on", 77, words)]
    assert (outcome.status, outcome.result) == (status, "returned")
    assert runner.close()


async def test_a_stop_while_it_waits_for_a_thread_lets_it_not_begin(runner: PythonRunner, tmp_path: Path) -> None:
    path, gate, stop = tmp_path / "up", tmp_path / "gate", Stop()
    first = function_task("returns_when", {"path": str(path), "gate": str(gate)} | THREAD)
    second = function_task("sleeps", {"path": str(tmp_path / "second")} | THREAD)
    async with running(runner.run, first) as going:
        await is_up(path)
        async with running(runner.run, second, stop) as waiting:
            await asyncio.sleep(0)
            stop.request(StopReason.CANCEL)
            assert (await waiting).status is Status.FAILED
        gate.touch()
        assert (await going).status is Status.SUCCEEDED
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("name", ["sleeps", "sleeps_async"])
@ANYWHERE
async def test_a_stop_that_came_before_the_run_lets_nothing_begin(
    runner: PythonRunner, tmp_path: Path, name: str, isolation: dict[str, Any]
) -> None:
    path = tmp_path / "up"
    outcome = await runner.run(function_task(name, {"path": str(path)} | isolation), stopped(), Live())
    assert outcome.status is Status.FAILED
    assert not path.exists()
