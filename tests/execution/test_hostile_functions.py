"""Functions that cannot be reasoned with: whatever they do, their run ends in time, and it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.clock import boottime
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.python import PythonRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, Status, StopReason
from tests.execution.escapes import ESCAPES, living
from tests.execution.guarded import ON_LINUX, eventually
from tests.execution.tasks import running, some_task, text_of

pytestmark = [
    ON_LINUX,
    pytest.mark.parametrize("isolation", [{}, {"isolation": "fresh"}], ids=["warm", "cold"]),
]
SOON = timedelta(seconds=0.3)


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


async def call(
    runner: PythonRunner, name: str, arguments: dict[str, Any], *, stop: Stop | None = None, **changes: Any
) -> Outcome:
    target = name if ":" in name else f"tests.execution.hostile:{name}"
    task = some_task(target, kind=Kind.PYTHON, args=arguments, **changes)
    async with asyncio.timeout(30):
        return await runner.run(task, stop or Stop(), Live())


async def test_one_that_holds_the_interpreter_is_killed_after_its_grace(
    runner: PythonRunner, tmp_path: Path, isolation: dict[str, Any]
) -> None:
    stop, path = Stop(), tmp_path / "up"
    arguments = {"path": str(path)} | isolation
    going = asyncio.ensure_future(
        call(runner, "holds_the_lock_of_the_interpreter", arguments, stop=stop, kill_grace=SOON)
    )
    await eventually(path.exists)
    # Others are not held up.
    assert (await call(runner, "os:getpid", isolation)).status is Status.SUCCEEDED
    stop.request(StopReason.TIMEOUT)
    outcome = await going
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 137)
    assert outcome.error == "killed by SIGKILL (signal 9)"


async def test_one_that_uses_too_much_memory_is_stopped_and_told_how_much(
    runner: PythonRunner, isolation: dict[str, Any]
) -> None:
    stop = Stop()
    outcome = await call(runner, "allocates", {"megabytes": 4000} | isolation, stop=stop, memory_limit_mb=100)
    assert (outcome.status, stop.reason) == (Status.FAILED, StopReason.MEMORY)
    assert outcome.reason is not None
    assert outcome.reason.endswith(" MB of memory, more than its limit of 100 MB")
    assert 100 <= int(outcome.reason.removeprefix("it used ").split()[0]) < 2000


async def test_so_is_one_whose_children_do(runner: PythonRunner, isolation: dict[str, Any]) -> None:
    stop = Stop()
    outcome = await call(
        runner, "allocates_in_children", {"megabytes": 160} | isolation, stop=stop, memory_limit_mb=100
    )
    assert (outcome.status, stop.reason) == (Status.FAILED, StopReason.MEMORY)


async def test_what_was_imported_for_all_is_not_counted(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: dict[str, Any]
) -> None:
    (tmp_path / "heavy.py").write_text("kept = bytearray(150 << 20)\ndef f(): return len(kept)")
    monkeypatch.syspath_prepend(tmp_path)
    runner, stop = PythonRunner(guard, threads=1, preload=("heavy",)), Stop()
    arguments = {"megabytes": 20} | isolation
    outcome = await call(runner, "allocates", arguments, stop=stop, memory_limit_mb=60)
    assert (outcome.status, outcome.result, stop.reason) == (Status.SUCCEEDED, 20, None)
    outcome = await call(runner, "allocates", arguments | {"megabytes": 4000}, stop=stop, memory_limit_mb=60)
    assert (outcome.status, stop.reason) == (Status.FAILED, StopReason.MEMORY)
    runner.close()


async def test_an_exit_in_a_thread_of_its_own_is_that_threads_alone(
    runner: PythonRunner, isolation: dict[str, Any]
) -> None:
    outcome = await call(runner, "exits_in_a_thread", isolation)
    assert (outcome.status, outcome.result) == (Status.SUCCEEDED, "returned")


@pytest.mark.parametrize("way", ESCAPES)
async def test_nothing_that_it_has_started_outlives_a_kill(
    runner: PythonRunner, marker: str, way: str, isolation: dict[str, Any]
) -> None:
    stop = Stop()
    going = asyncio.ensure_future(call(runner, "hides", {"way": way, "marker": marker} | isolation, stop=stop))
    await eventually(lambda: len(living(marker)) >= 1)
    stop.request(StopReason.CANCEL, now=True)
    assert (await going).status is Status.FAILED
    assert living(marker) == []


async def test_nor_its_end(runner: PythonRunner, marker: str, isolation: dict[str, Any]) -> None:
    outcome = await call(runner, "leaves_behind", {"marker": marker} | isolation)
    assert (outcome.status, outcome.result, text_of(outcome)) == (Status.SUCCEEDED, "returned", "started\n")
    assert outcome.reason == "left processes running in the background; they were killed"
    assert living(marker) == []


async def test_nor_the_deadline_of_the_lease(
    marker: str, isolation: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard.start()
    runner = PythonRunner(guard, threads=1)
    arguments = {"way": "daemon", "marker": marker} | isolation
    going = asyncio.ensure_future(call(runner, "hides", arguments))
    await eventually(lambda: living(marker))
    guard.feed(boottime() - 1)
    outcome = await going
    assert (outcome.status, outcome.exit_code, living(marker)) == (Status.LOST, 137, [])
    assert outcome.reason == "killed by the guard: this worker could not renew its lease in time"
    runner.close()
    await guard.close()


async def test_a_run_that_is_torn_down_is_killed(
    runner: PythonRunner, tmp_path: Path, marker: str, isolation: dict[str, Any]
) -> None:
    task = some_task(
        "tests.execution.hostile:hides", kind=Kind.PYTHON, args={"way": "child", "marker": marker} | isolation
    )
    async with running(runner.run, task):
        await eventually(lambda: living(marker))
    await eventually(lambda: not living(marker))
