"""Deaths and stops of the worker and of its guard: nothing that was launched outlives them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pgcron_runner
from pgcron_runner.clock import boottime
from pgcron_runner.errors import GuardLost
from pgcron_runner.execution.processes import ExitStatus, Guard
from tests.execution.escapes import ENV, ESCAPES, exists, living
from tests.execution.guarded import ON_LINUX, eventually, launch

WORKER = """
import asyncio, sys
from pgcron_runner.clock import boottime
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard

async def main(lease, env, scripts):
    for script in scripts:
        await guard.launch(Command(("/bin/sh", "-c", script), env), OutputBuffer(1000))
    print(guard.pid, flush=True)
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

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@ON_LINUX
@pytest.mark.faults
async def test_when_the_worker_is_killed_nothing_stays_alive(marker: str) -> None:
    worker = Worker([script.format(marker) for script in ESCAPES.values()], lease=0)
    try:
        await eventually(lambda: len(living(marker)) >= len(ESCAPES))
        worker.popen.kill()
        await eventually(lambda: not living(marker) and not exists(worker.guard_pid), 2)
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
