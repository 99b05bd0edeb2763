"""Python runs as forks of a zygote: the same as one started cold in all that can be seen, and never lost or doubled."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgcron_runner.clock import boottime
from pgcron_runner.execution import warm
from pgcron_runner.execution.guard.table import read_table
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard, LaunchError, Process
from pgcron_runner.execution.python import PythonRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, Status, StopReason, Task
from tests.execution.guarded import ON_LINUX
from tests.execution.tasks import running, some_task, text_of
from tests.support.waiting import eventually_async

pytestmark = ON_LINUX

COLD = {"isolation": "fresh"}
LOST = {"log_level": "warning", "event": "no_warm_starts", "part": "execution.warm"}


def job(name: str, arguments: dict[str, Any] | None = None, **changes: Any) -> Task:
    """A run of a function of tests/execution/surroundings.py; a name with a colon is taken as it is."""
    target = name if ":" in name else f"tests.execution.surroundings:{name}"
    return some_task(target, kind=Kind.PYTHON, args=dict(arguments or {}), **changes)


@pytest.fixture(scope="module")
def shared_guard() -> Iterator[Guard]:
    guard = Guard.start()
    yield guard
    asyncio.run(guard.close())


@pytest.fixture
async def runner(shared_guard: Guard) -> AsyncIterator[PythonRunner]:
    """One that must not fail to start warm."""
    runner = PythonRunner(shared_guard, threads=1)
    with capture_logs() as logs:
        yield runner
    runner.close()
    assert [log for log in logs if log["log_level"] == "warning"] == []


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard.start()
    yield guard
    await guard.close()


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for modules that the worker can import; each notes down that it is being imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        note = f"open({str(tmp_path / 'imported')!r}, 'a').write({name + ' '!r})\n"
        (tmp_path / f"{name}.py").write_text(note + text)

    (tmp_path / "imported").touch()
    # The real one takes a second to import, and must be told to start no threads.
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").touch()
    (tmp_path / "numpy" / "random.py").write_text(
        "import os\ndef seed():\n    global state\n    state = os.urandom(4).hex()\ndef random(): return state"
    )
    write("preloaded", "import os\nos.environ['PRELOADED'] = os.environ['BOTH'] = 'by it'\nprint('printed by it')")
    write("user", "import preloaded, os\ndef f(): return [os.environ.get(name) for name in ('PRELOADED', 'BOTH')]")
    write(
        "with_a_thread", "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='pump').start()"
    )
    write("broken", "raise RuntimeError('no such licence')")
    write("slow", "import time\ntime.sleep(600)")
    return tmp_path


async def call(runner: PythonRunner, name: str, arguments: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    async with asyncio.timeout(30):
        return await runner.run(job(name, arguments, **changes), Stop(), Live())


async def is_warm(runner: PythonRunner, arguments: dict[str, Any] | None = None, **changes: Any) -> bool:
    outcome = await call(runner, "kinship", arguments, **changes)
    assert outcome.status is Status.SUCCEEDED, outcome.error
    return str(outcome.result["program"]).endswith("zygote.py")


def zygotes(guard: Guard) -> list[int]:
    """The processes of this guard that run zygote.py, the oldest first."""
    found = []
    for pid, (parent, _) in read_table().items():
        try:
            if parent == guard.pid and "zygote.py" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


# What it is


async def test_a_run_is_a_marked_child_of_the_guard_in_a_session_of_its_own(
    runner: PythonRunner, shared_guard: Guard
) -> None:
    first, second = [(await call(runner, "kinship")).result for _ in range(2)]
    assert first["program"].endswith("zygote.py")
    assert first["pid"] == first["session"] == first["group"] != second["pid"]
    assert first["parent"] == second["parent"] == shared_guard.pid
    assert first["mark"] != second["mark"]
    number = shared_guard.next_number()
    assert 0 < first["mark"] - shared_guard.mark_of(0) < second["mark"] - shared_guard.mark_of(0) < number


async def test_it_sees_nothing_else_than_one_that_is_started_cold(
    runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        "env": {"MINE": "1", "TZ": "Asia/Tokyo", "TMPDIR": str(tmp_path), "ODD": "\udcff"},
        "env_from": ("WORKERS",),
    }
    monkeypatch.setenv("WORKERS", "own")
    for more in ({}, changes, changes | {"working_dir": str(tmp_path)}):
        warm_run, cold_run = [await call(runner, "all_that_can_be_seen", how, **more) for how in ({}, COLD)]
        assert warm_run.result is not None, warm_run.error
        assert warm_run.result == cold_run.result
    assert cold_run.result["environment"]["TZ"] == "Asia/Tokyo"


async def test_only_the_standard_library_is_imported_before(runner: PythonRunner) -> None:
    names, cold = [set((await call(runner, "module_names", how)).result) for how in ({}, COLD)]
    ours = {"pgcron_runner", "pgcron_runner.running", "pgcron_runner.errors", "pgcron_child"}
    assert {name for name in names - cold if name.partition(".")[0] not in sys.stdlib_module_names} <= ours


async def test_what_a_run_changes_is_not_there_in_the_next(runner: PythonRunner) -> None:
    before = (await call(runner, "all_that_can_be_seen")).result
    outcome = await call(runner, "changes_everything")
    assert outcome.status is Status.SUCCEEDED, outcome.error
    assert (await call(runner, "all_that_can_be_seen")).result == before


async def test_luck_is_drawn_anew(shared_guard: Guard, modules: Path) -> None:
    runner = PythonRunner(shared_guard, threads=1, preload=("random", "numpy.random"))
    runs = [(await call(runner, "luck")).result for _ in range(3)]
    runner.close()
    for drawn in zip(*runs, strict=True):
        assert len(set(drawn)) == 3


async def test_whatever_forks_and_threads_works_as_ever(runner: PythonRunner, tmp_path: Path) -> None:
    outcome = await call(runner, "uses_everything", {"folder": str(tmp_path)})
    assert outcome.result == {"forked": [1, 2], "spawned": 3, "threaded": 4, "async": 5}, outcome.error
    assert text_of(outcome) == "heard\nfrom a program\n"


@pytest.mark.parametrize("how", [{}, COLD], ids=["warm", "cold"])
async def test_what_is_left_open_is_closed_in_order(runner: PythonRunner, tmp_path: Path, how: dict[str, Any]) -> None:
    outcome = await call(runner, "leaves_things_open", {"folder": str(tmp_path)} | how)
    assert outcome.status is Status.SUCCEEDED, outcome.error
    assert sorted(os.listdir(tmp_path)) == ["w", "wb"]
    assert [(tmp_path / name).read_text() for name in ("w", "wb")] == ["kept", "kept"]
    assert text_of(outcome) == "no end of linelate\nat exit\n"


async def test_many_at_once_keep_their_outputs_apart(runner: PythonRunner) -> None:
    runs = [call(runner, "prints", {"text": f"line {number}"}) for number in range(20)]
    for number, outcome in enumerate(await asyncio.gather(*runs)):
        assert (outcome.result, text_of(outcome)) == (f"line {number}", f"line {number}\n" * 2)


async def test_nothing_is_left_of_a_run(runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await call(runner, "kinship")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await call(runner, "kinship")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_an_environment_of_any_size_arrives(runner: PythonRunner) -> None:
    env = {f"BIG{number}": "x" * 100_000 for number in range(10)}
    outcome = await call(runner, "tests.execution.functions:environment", env=env)
    assert {name: text for name, text in outcome.result.items() if name.startswith("BIG")} == env


async def test_what_is_secret_in_its_environment_is_in_no_listing_and_on_no_disk(runner: PythonRunner) -> None:
    outcome = await call(runner, "all_that_others_can_read", env={"TOKEN": "s3cr3t-1"})
    assert outcome.result["own"] == "s3cr3t-1", outcome.error
    assert "zygote.py" in outcome.result["others"]
    assert '"target"' in outcome.result["others"]
    assert "s3cr3t" not in outcome.result["others"]


# What was imported


def imported(folder: Path) -> list[str]:
    return (folder / "imported").read_text().split()


async def test_preloaded_modules_are_imported_once_and_others_by_each_run(shared_guard: Guard, modules: Path) -> None:
    runner = PythonRunner(shared_guard, threads=1, preload=("preloaded",))
    outcomes = [await call(runner, "user:f", env={"BOTH": "the job's"}) for _ in range(3)]
    assert imported(modules) == ["preloaded", "user", "user", "user"]
    # What a module puts into the environment as it is imported is there, as in a cold run; the job's own comes first.
    assert [outcome.result for outcome in outcomes] == [["by it", "the job's"]] * 3
    assert {text_of(outcome) for outcome in outcomes} == {""}
    (modules / "user.py").write_text("def f(): return 'another'")
    assert (await call(runner, "user:f")).result == "another"
    runner.close()


async def test_the_first_run_waits_for_the_modules_and_does_not_import_them_itself(
    shared_guard: Guard, modules: Path
) -> None:
    runner = PythonRunner(shared_guard, threads=1, preload=("preloaded",))
    await asyncio.gather(*(call(runner, "user:f") for _ in range(4)))
    assert imported(modules).count("preloaded") == 1
    runner.close()


# What starts cold


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"PYTHONHASHSEED": "1"}},
        {"env": {"PYTHONPATH": "/nowhere"}},
        {"env": {"LC_ALL": "POSIX"}},
        {"env": {"LANG": "de_DE"}},
        {"env": {"LD_LIBRARY_PATH": "/nowhere"}},
        {"env": {"HOME": "/nowhere"}},
        {"args": COLD},
    ],
    ids=str,
)
async def test_where_the_interpreter_would_start_differently_it_is_started_cold(
    runner: PythonRunner, changes: dict[str, Any]
) -> None:
    assert await is_warm(runner)
    assert not await is_warm(runner, changes.get("args"), env=changes.get("env", {}))


async def test_a_run_as_another_user_is_started_cold(runner: PythonRunner) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    outcome = await call(runner, "os:getuid", {"run_as": "nobody"})
    # A virtual environment below /root is closed to others.
    words = f"launch failed: {sys.executable} may not be executed by this user, or is not executable"
    assert outcome.result not in (0, None) or outcome.error == words
    assert (await call(runner, "os:getuid", {"run_as": "root"})).result == 0


@pytest.mark.parametrize("name", ["preloaded.py", "preloaded/__init__.py"])
async def test_a_folder_with_other_modules_of_the_same_names_is_heeded(
    shared_guard: Guard, modules: Path, tmp_path: Path, name: str
) -> None:
    runner = PythonRunner(shared_guard, threads=1, preload=("preloaded",))
    own = tmp_path / "own"
    (own / name).parent.mkdir(parents=True)
    (own / name).write_text("def f(): return 'its own'")
    with capture_logs() as logs:
        assert (await call(runner, "preloaded:f", working_dir=str(own))).result == "its own"
        assert await is_warm(runner, working_dir=str(modules))
    assert [log["log_level"] for log in logs] == ["debug"]
    runner.close()


# What goes wrong


@pytest.mark.parametrize(
    ("preload", "error"),
    [
        ("broken", "RuntimeError: no such licence"),
        ("not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("with_a_thread", "importing with_a_thread has started threads: pump"),
    ],
)
async def test_a_zygote_that_cannot_be_is_told_once_and_runs_start_cold(
    guard: Guard, modules: Path, preload: str, error: str
) -> None:
    runner = PythonRunner(guard, threads=1, preload=(preload,))
    with capture_logs() as logs:
        for _ in range(2):
            assert not await is_warm(runner)
    consequence = "for 60 seconds each Python run starts cold, and imports by itself what it needs"
    assert logs == [LOST | {"preload": preload, "error": error, "consequence": consequence}]
    runner.close()


async def test_after_a_while_it_is_tried_again(guard: Guard, modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_REST", 0.0)
    runner = PythonRunner(guard, threads=1, preload=("broken",))
    with capture_logs() as logs:
        assert not await is_warm(runner)
        (modules / "broken.py").write_text("")
        assert await is_warm(runner)
    assert [log["event"] for log in logs] == ["no_warm_starts"]
    runner.close()


async def test_modules_that_never_end_importing_hold_up_nobody(
    guard: Guard, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_START_TIMEOUT", 0.5)
    runner = PythonRunner(guard, threads=1, preload=("slow",))
    with capture_logs() as logs:
        assert not await is_warm(runner)
    assert [log["error"] for log in logs] == ["it was not ready within 0.5 seconds"]
    await eventually_async(lambda: _is(not zygotes(guard)), message="the zygote is killed")
    runner.close()


async def test_a_run_that_is_to_stop_does_not_wait_for_the_imports(guard: Guard, modules: Path) -> None:
    runner = PythonRunner(guard, threads=1, preload=("slow",))
    stop = Stop()
    async with running(runner.run, job("kinship"), stop) as going:
        await eventually_async(lambda: _is("slow" in imported(modules)), message="it is being imported")
        stop.request(StopReason.CANCEL)
        async with asyncio.timeout(5):
            assert (await going).error == "stopped before it was started"
    runner.close()
    await eventually_async(lambda: _is(not zygotes(guard)), message="the zygote is killed")


async def test_a_zygote_that_was_killed_is_followed_by_another(guard: Guard) -> None:
    runner = PythonRunner(guard, threads=1)
    assert await is_warm(runner)
    before = zygotes(guard)
    os.kill(before[0], signal.SIGKILL)
    await eventually_async(lambda: _is(before[0] not in zygotes(guard)), message="it is dead")
    with capture_logs() as logs:
        await call(runner, "kinship")
        assert await is_warm(runner)
    assert not set(before) & set(zygotes(guard))
    assert [log for log in logs if log["log_level"] == "warning"] == []
    runner.close()


async def test_so_is_one_that_died_with_the_deadline(guard: Guard) -> None:
    runner = PythonRunner(guard, threads=1)
    assert await is_warm(runner)
    guard.feed(boottime() - 1)
    await eventually_async(lambda: _is(not zygotes(guard)), message="it is dead")
    refused = await call(runner, "kinship")
    assert refused.error == "launch failed: this worker could not renew its lease in time, so its guard starts nothing"
    guard.feed(boottime() + 60)
    runner._warm._resting_until = 0.0
    assert await is_warm(runner)
    runner.close()


async def test_one_that_is_stopped_is_given_up(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_FORK_TIMEOUT", 0.3)
    runner = PythonRunner(guard, threads=1)
    assert await is_warm(runner)
    await eventually_async(lambda: _is(len(zygotes(guard)) == 2), message="the next fork waits")
    for pid in zygotes(guard):
        os.kill(pid, signal.SIGSTOP)
    with capture_logs() as logs:
        assert not await is_warm(runner)
    assert [log["event"] for log in logs] == ["no_warm_starts"]
    await eventually_async(lambda: _is(not zygotes(guard)), message="the zygote is killed")
    runner.close()


async def test_a_zygote_that_cannot_be_reached_is_no_obstacle(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = PythonRunner(guard, threads=1)
    assert await is_warm(runner)
    assert runner._warm._zygote is not None
    runner._warm._zygote._line.shutdown(socket.SHUT_RDWR)
    with capture_logs() as logs:
        assert not await is_warm(runner)
    assert [log["event"] for log in logs] == ["no_warm_starts"]
    runner.close()


async def test_a_folder_for_temporary_files_with_too_long_a_name_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    guard = Guard.start()
    runner = PythonRunner(guard, threads=1)
    with capture_logs() as logs:
        assert not await is_warm(runner)
    assert [log["error"] for log in logs] == ["AF_UNIX path too long"]
    runner.close()
    await guard.close()


# Never lost, never doubled


async def test_a_fork_that_is_not_adopted_has_not_run(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Guard, pid: int, reading: int, *args: Any, **more: Any) -> Process:
        os.close(reading)
        raise LaunchError("not today")

    runner = PythonRunner(guard, threads=1)
    monkeypatch.setattr(Guard, "adopt", refuse)
    with capture_logs() as logs:
        outcome = await call(runner, "appends", {"path": str(tmp_path / "ran")})
    assert outcome.status is Status.SUCCEEDED
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert [log["error"] for log in logs] == ["not today"]
    runner.close()


async def test_nor_has_one_that_died_before_it_was_told_to_go_on(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt = Guard.adopt

    async def adopt_and_kill(self: Guard, *args: Any, **more: Any) -> Process:
        process = await adopt(self, *args, **more)
        os.kill(process.pid, signal.SIGKILL)
        await process.exited.wait()
        return process

    runner = PythonRunner(guard, threads=1)
    monkeypatch.setattr(Guard, "adopt", adopt_and_kill)
    with capture_logs() as logs:
        outcome = await call(runner, "appends", {"path": str(tmp_path / "ran")})
    assert outcome.status is Status.SUCCEEDED
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert [log["event"] for log in logs] == ["no_warm_starts"]
    runner.close()


async def test_a_run_that_is_torn_down_while_it_is_forked_does_not_run(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(self: Guard, pid: int, reading: int, *args: Any, **more: Any) -> Process:
        asked.set()
        try:
            await asyncio.sleep(600)
        finally:
            os.close(reading)
        raise AssertionError

    runner = PythonRunner(guard, threads=1)
    assert await is_warm(runner)
    monkeypatch.setattr(Guard, "adopt", never)
    async with running(runner.run, job("appends", {"path": str(tmp_path / "ran")})):
        await asked.wait()
    # The next one waits at the socket, and the zygote is the other.
    await eventually_async(lambda: _is(len(zygotes(guard)) == 2), message="the fork ends")
    assert not (tmp_path / "ran").exists()
    runner.close()


async def test_closing_ends_the_zygote(guard: Guard) -> None:
    runner = PythonRunner(guard, threads=1)
    assert await is_warm(runner)
    assert zygotes(guard)
    runner.close()
    await eventually_async(lambda: _is(not zygotes(guard)), message="nothing of it lives")


async def _is(truth: bool) -> bool:
    return truth
