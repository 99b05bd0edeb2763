"""Deaths and stops of the worker and of its guard: nothing that was launched outlives them."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pgcron_runner
from pgcron_runner.clock import boottime
from pgcron_runner.errors import GuardLost
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, ExitStatus, Guard
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status, StopReason
from tests.execution.escapes import ENV, ESCAPES, STORM, exists, living
from tests.execution.guarded import ON_LINUX, eventually, launch
from tests.execution.shell_runs import run

WORKER = """
import asyncio, sys
from pgcron_runner.clock import boottime
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard

async def main(lease, env, scripts):
    for script in scripts:
        await guard.launch(Command(("/bin/sh", "-c", script), env), OutputBuffer(1000))
    print(guard.pid, guard.scratch.path, sep=chr(10), flush=True)
    while True:
        if lease:
            guard.feed(boottime() + lease)
        await asyncio.sleep(0.05)

guard = Guard.start()
asyncio.run(main(float(sys.argv[1]), {"PATH": sys.argv[2]}, sys.argv[3:]))
"""


class Worker:
    """A process that owns a guard and commands."""

    def __init__(self, scripts: list[str], *, lease: float) -> None:
        root = Path(pgcron_runner.__file__).parents[1]
        arguments = [sys.executable, "-c", WORKER, str(lease), ENV["PATH"], *scripts]
        env = {**os.environ, "PYTHONPATH": str(root)}
        self.popen = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=env, text=True)
        assert self.popen.stdout is not None
        self.guard_pid = int(self.popen.stdout.readline())
        self.scratch = Path(self.popen.stdout.readline().strip())

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@ON_LINUX
@pytest.mark.faults
async def test_when_the_worker_is_killed_nothing_stays_alive(marker: str) -> None:
    worker = Worker([script.format(marker) for script in ESCAPES.values()], lease=0)
    (worker.scratch / "a-run").mkdir()
    try:
        await eventually(lambda: len(living(marker)) >= len(ESCAPES))
        worker.popen.kill()
        await eventually(lambda: not living(marker) and not exists(worker.guard_pid), 2)
        assert not worker.scratch.exists()
    finally:
        worker.end()


@ON_LINUX
@pytest.mark.faults
async def test_when_the_worker_is_stopped_everything_dies_at_the_deadline_and_it_can_go_on_later(
    marker: str,
) -> None:
    worker = Worker([script.format(marker) for script in ESCAPES.values()], lease=0.5)
    try:
        await eventually(lambda: len(living(marker)) >= len(ESCAPES))
        os.kill(worker.popen.pid, signal.SIGSTOP)
        started = time.monotonic()
        await eventually(lambda: not living(marker), 3)
        assert time.monotonic() - started > 0.3
        os.kill(worker.popen.pid, signal.SIGCONT)
        assert exists(worker.guard_pid)
    finally:
        worker.end()


@ON_LINUX
@pytest.mark.faults
async def test_when_the_guard_is_killed_the_worker_hears_of_it_and_kills_what_it_left(marker: str) -> None:
    guard = Guard.start()
    processes = [await launch(guard, script.format(marker)) for script in ESCAPES.values()]
    await eventually(lambda: len(living(marker)) >= len(ESCAPES))
    os.kill(guard.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        await guard.lost.wait()
    assert not living(marker)
    for process in processes:
        with pytest.raises(GuardLost):
            await process.wait()
        process.close()
    with pytest.raises(GuardLost):
        await launch(guard, "true")
    guard.feed(boottime() + 1)
    await guard.close()


@ON_LINUX
async def test_closing_kills_what_runs_and_ends_the_guard(marker: str) -> None:
    guard = Guard.start()
    process = await launch(guard, ESCAPES["daemon"].format(marker))
    await eventually(lambda: living(marker))
    await guard.close()
    assert not living(marker)
    assert not exists(guard.pid)
    assert not guard.scratch.path.exists()
    assert not guard.lost.is_set()
    assert process.gone.is_set()
    guard.feed(boottime() + 1)
    process.signal_group(signal.SIGTERM)
    with pytest.raises(GuardLost):
        await launch(guard, "true")
    process.close()


async def test_a_stopped_guard_does_not_block_the_worker(guard: Guard) -> None:
    os.kill(guard.pid, signal.SIGSTOP)
    try:
        for _ in range(20_000):
            guard.feed(boottime() + 60)
        launching = asyncio.create_task(launch(guard, "exit 6"))
        await asyncio.sleep(0.01)
        assert not launching.done()
    finally:
        os.kill(guard.pid, signal.SIGCONT)
    assert await (await launching).wait() == ExitStatus(6)


@ON_LINUX
@pytest.mark.faults
async def test_a_guard_that_does_not_answer_is_given_up_and_so_are_its_commands(marker: str) -> None:
    guard = Guard.start(patience=0.5)
    process = await launch(guard, ESCAPES["daemon"].format(marker))
    await eventually(lambda: living(marker))
    os.kill(guard.pid, signal.SIGSTOP)
    launching = asyncio.create_task(launch(guard, f"sleep 300 {marker}1"))
    with pytest.raises(GuardLost, match=r"the guard did not answer for 0\.5 seconds and was killed"):
        await launching
    await guard.lost.wait()
    assert not exists(guard.pid)
    assert not living(marker)
    assert not living(f"{marker}1"), "what it had not started before it never starts"
    with pytest.raises(GuardLost, match="did not answer"):
        await launch(guard, "true")
    process.close()
    await guard.close()


@ON_LINUX
async def test_heartbeats_alone_tell_that_a_guard_does_not_answer(marker: str) -> None:
    guard = Guard.start(patience=0.3)
    await launch(guard, f"sleep 300 {marker}; true")
    guard.feed(boottime() + 600)
    # As long as it answers it may be silent in between: nothing is owed.
    await asyncio.sleep(0.7)
    assert living(marker)
    os.kill(guard.pid, signal.SIGSTOP)
    guard.feed(boottime() + 600)
    async with asyncio.timeout(10):
        await guard.lost.wait()
    assert not living(marker)
    await guard.close()


@ON_LINUX
async def test_a_command_is_killed_also_while_its_guard_is_stopped(guard: Guard, marker: str) -> None:
    stop = Stop()
    running = asyncio.create_task(run(guard, ESCAPES["daemon without environment"].format(marker), stop=stop))
    await eventually(lambda: living(marker))
    os.kill(guard.pid, signal.SIGSTOP)
    try:
        stop.request(StopReason.CANCEL, now=True)
        outcome = await running
        assert not living(marker)
        assert exists(guard.pid)
    finally:
        os.kill(guard.pid, signal.SIGCONT)
    assert (outcome.status, outcome.error) == (
        Status.FAILED,
        "it was killed, but its guard did not tell how it ended",
    )


@ON_LINUX
@pytest.mark.faults
async def test_a_storm_of_forks_dies_with_the_worker(marker: str) -> None:
    storm = shlex.join([sys.executable, "-I", "-S", "-c", STORM, marker])
    worker = Worker([f"env -i {storm}"] * 4, lease=0)
    try:
        await eventually(lambda: len(living(marker)) >= 30)
        worker.popen.kill()
        await eventually(lambda: not living(marker) and not exists(worker.guard_pid))
    finally:
        worker.end()


@ON_LINUX
@pytest.mark.faults
async def test_a_storm_of_forks_dies_when_the_guard_is_killed(marker: str) -> None:
    guard = Guard.start()
    command = Command((sys.executable, "-I", "-S", "-c", STORM, marker), {})
    processes = [await guard.launch(command, OutputBuffer(10)) for _ in range(4)]
    await eventually(lambda: len(living(marker)) >= 30)
    os.kill(guard.pid, signal.SIGKILL)
    await guard.lost.wait()
    await eventually(lambda: not living(marker))
    for process in processes:
        process.close()
    await guard.close()
