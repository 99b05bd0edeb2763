"""`python -m tests.bench.launches [--count 2000]`: launches of /bin/true through the guard, beside the machine's limit.

The limit is a bare loop of posix_spawn and waitpid in this process. Each figure is the best of three, taken in turns,
since a machine has other things to do; the CPU time of all that takes part tells more where it is busy.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard

TRUE = "/bin/true"
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000)
    count = parser.parse_args().count
    ways: dict[str, Callable[[], None]] = {
        "bare posix_spawn + waitpid, one at a time": lambda: spawn_bare(count, at_once=1),
        "bare posix_spawn + waitpid, 20 at a time": lambda: spawn_bare(count, at_once=20),
        "through the guard, 1 at a time": lambda: launch_all(count, at_once=1),
        "through the guard, 20 at a time": lambda: launch_all(count, at_once=20),
        "through the guard, 100 at a time": lambda: launch_all(count, at_once=100),
    }
    best, cpu = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, math.inf)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {count:,} launches of {TRUE}, best of {ROUNDS}")
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began, cpu_before = time.perf_counter(), cpu_seconds()
            way()
            best[name] = max(best[name], count / (time.perf_counter() - began))
            cpu[name] = min(cpu[name], (cpu_seconds() - cpu_before) / count)
    limit = max(rate for name, rate in best.items() if name.startswith("bare"))
    for name, rate in best.items():
        print(f"{name:45} {rate:8,.0f}/s   {rate / limit:5.2f} of the limit   {cpu[name] * 1e6:5,.0f} us of CPU each")
    print_start_up()


def cpu_seconds() -> float:
    """Of this process, the guards that have ended, and all that was launched."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def spawn_bare(count: int, *, at_once: int) -> None:
    """As the guard spawns: output to a pipe, a session of its own, signals as they were."""
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, writing, 2)]
    running = 0
    for _ in range(count):
        os.posix_spawn(TRUE, [TRUE], {}, file_actions=actions, setsid=True, setsigmask=())
        running += 1
        if running >= at_once:
            os.wait()
            running -= 1
    for _ in range(running):
        os.wait()
    for fd in (reading, writing, null):
        os.close(fd)


def launch_all(count: int, *, at_once: int) -> None:
    guard = Guard.start()
    asyncio.run(_launch_all(guard, count, at_once))


async def _launch_all(guard: Guard, count: int, at_once: int) -> None:
    numbers = iter(range(count))
    command = Command((TRUE,), {})

    async def launch_in_turn() -> None:
        for _ in numbers:
            process = await guard.launch(command, OutputBuffer(1024))
            status = await process.wait()
            await process.drained.wait()
            process.close()
            assert status.code == 0

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(launch_in_turn())
    await guard.close()


def print_start_up() -> None:
    """How long a worker waits for its guard, and what that weighs."""
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        guard = Guard.start()
        seconds.append(time.perf_counter() - began)
        status = Path(f"/proc/{guard.pid}/status").read_text()
        asyncio.run(guard.close())
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    print(f"start of a guard: median {sorted(seconds)[5] * 1000:.0f} ms, {int(resident) // 1024} MB resident")


if __name__ == "__main__":
    main()
