"""Memory limits: over the whole tree, told in words, and for the one that is over its limit alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.guard import cgroups, memory
from pgcron_runner.execution.guard.orders import Order
from pgcron_runner.execution.guard.spawn import spawn
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Status, StopReason
from tests.execution.escapes import ENV, living
from tests.execution.guarded import ON_LINUX, eventually
from tests.execution.shell_runs import run, text

pytestmark = ON_LINUX

_MB = 1 << 20
# Takes so many MB, says so, and waits; TERM ends it in order, unless it is stubborn.
_EAT = """
import signal, sys, time
tidy = lambda *_: (print("tidied"), sys.exit(0))
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else tidy)
kept = []
for _ in range(int(sys.argv[1])):
    kept.append(bytearray(1 << 20))
    time.sleep(float(sys.argv[2]))
print("full", flush=True)
time.sleep(600)
"""
# Takes memory and then forks children that share it and never write to it.
_SHARE = """
import os, sys, time
kept = bytearray(int(sys.argv[1]) << 20)
for _ in range(8):
    if os.fork() == 0:
        time.sleep(600)
print("shared", flush=True)
time.sleep(1)
os.killpg(0, 9)
"""


def eat(mb: int, *, seconds_a_mb: float = 0.0, marker: str = "") -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _EAT, str(mb), str(seconds_a_mb), marker]


async def run_argv(guard: Guard, argv: list[str], **changes: Any) -> tuple[Outcome, Stop]:
    stop = Stop()
    return await run(guard, "argv", stop=stop, args={"argv": argv}, **changes), stop


def used_mb(outcome: Outcome, limit: int) -> int:
    assert outcome.reason is not None
    assert outcome.reason.endswith(f" MB of memory, more than its limit of {limit} MB")
    return int(outcome.reason.removeprefix("it used ").split()[0])


async def test_a_run_above_its_limit_is_stopped_in_order_and_says_what_it_used(guard: Guard) -> None:
    outcome, stop = await run_argv(guard, eat(62), memory_limit_mb=60)
    assert (outcome.status, stop.reason) == (Status.FAILED, StopReason.MEMORY)
    assert 60 <= used_mb(outcome, 60) <= 90
    assert text(outcome).endswith("tidied\n"), "it was given its grace"


async def test_one_that_is_far_above_gets_no_grace(guard: Guard) -> None:
    argv = eat(200, marker="stubborn")
    outcome, stop = await run_argv(guard, argv, memory_limit_mb=60, kill_grace=timedelta(minutes=10))
    assert stop.reason is StopReason.MEMORY
    assert outcome.error == "killed by SIGKILL (signal 9)"
    assert used_mb(outcome, 60) >= 75


async def test_one_that_goes_on_growing_in_its_grace_loses_it(guard: Guard) -> None:
    argv = eat(600, seconds_a_mb=0.02, marker="stubborn")
    outcome, _ = await run_argv(guard, argv, memory_limit_mb=40, kill_grace=timedelta(minutes=10))
    assert outcome.exit_code == 137
    assert used_mb(outcome, 40) >= 50


async def test_a_run_below_its_limit_is_left_alone(guard: Guard) -> None:
    argv = [sys.executable, "-I", "-S", "-c", "import time; kept = bytearray(20 << 20); time.sleep(1)"]
    outcome, stop = await run_argv(guard, argv, memory_limit_mb=60)
    assert stop.reason is None
    assert outcome.status is Status.SUCCEEDED


@pytest.mark.parametrize("hide", ["{} & {} & {} & wait", "(setsid {} &); ({} &); env -i {}"])
async def test_the_limit_is_for_all_that_it_starts_wherever_that_hides(
    guard: Guard, marker: str, tmp_path: Path, hide: str
) -> None:
    script = tmp_path / "eat.py"
    script.write_text(_EAT)
    one = f"{sys.executable} -I -S {script} 40 0 {marker}"
    bystander = await guard.launch(Command(tuple(eat(60)), ENV, memory_limit=1000 * _MB), OutputBuffer(100))
    stop = Stop()
    # Each of the three is far below.
    outcome = await run(guard, hide.format(one, one, one), stop=stop, memory_limit_mb=100)
    assert (outcome.status, stop.reason) == (Status.FAILED, StopReason.MEMORY)
    assert used_mb(outcome, 100) > 100
    assert not living(marker)
    assert not bystander.exited.is_set()


async def test_what_forked_processes_share_counts_once(guard: Guard) -> None:
    argv = [sys.executable, "-I", "-S", "-c", _SHARE, "100"]
    outcome, stop = await run_argv(guard, argv, memory_limit_mb=250)
    assert text(outcome) == "shared\n"
    assert stop.reason is None, "nine times a hundred it is not"


async def test_an_adopted_or_launched_process_tells_each_time_that_it_is_above(guard: Guard) -> None:
    process = await guard.launch(Command(tuple(eat(50)), ENV, memory_limit=10 * _MB), OutputBuffer(100))
    seen: list[int] = []
    process.on_excess = seen.append
    await eventually(lambda: len(seen) >= 2)
    assert seen[-1] > 10 * _MB
    assert await process.kill_tree()


async def test_memory_of_one_process_and_of_none() -> None:
    assert memory.used_by([], 0) == 0
    assert memory.used_by([2**22], 0) == 0, "it has ended"
    assert 5 * _MB < memory.used_by([os.getpid()], 0) < 2000 * _MB
    # Twice the same process: each is asked for its share.
    assert memory.used_by([os.getpid()] * 2, 0) <= memory.used_by([os.getpid()] * 2, 1 << 60)


# The net in the kernel, with a tree of plain files in the place of the kernel's.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A delegated cgroup with the memory controller; what is written there stays there."""
    folder = tmp_path / "unit"
    folder.mkdir()
    try:
        os.setxattr(folder, "user.delegate", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    return folder


def read(path: Path) -> str:
    return path.read_text().strip()


async def test_delegated_cgroups_are_found_and_the_worker_makes_room_for_them(tree: Path) -> None:
    assert cgroups.find(str(tree)) is not None
    assert read(tree / "cgroup.subtree_control") == "+memory"
    # No process may stay in a cgroup whose children have limits.
    assert read(tree / "pgcron-worker" / "cgroup.procs") == str(os.getpid())


async def test_a_worker_in_a_subgroup_of_the_delegated_one_stays_there(tree: Path) -> None:
    (tree / "main").mkdir()
    assert cgroups.find(str(tree / "main")) is not None
    assert read(tree / "cgroup.subtree_control") == "+memory"
    assert not (tree / "pgcron-worker").exists()


@pytest.mark.parametrize("lacking", ["delegation", "controller", "rights"])
async def test_without_delegation_there_are_no_cgroups(tree: Path, lacking: str) -> None:
    match lacking:
        case "delegation":
            os.removexattr(tree, "user.delegate")
        case "controller":
            (tree / "cgroup.controllers").write_text("cpu pids\n")
        case "rights":
            (tree / "cgroup.subtree_control").mkdir()  # so that even root cannot write to it
    assert cgroups.find(str(tree)) is None


async def test_each_command_with_a_limit_has_a_cgroup(tree: Path) -> None:
    found = cgroups.find(str(tree))
    assert found is not None
    folder = found.make(7, 512 * _MB)
    assert folder is not None
    made = Path(folder)
    assert made.parent == tree
    assert read(made / "memory.max") == str(640 * _MB), "the kernel leaves the first quarter above the limit to us"
    assert (read(made / "memory.oom.group"), read(made / "memory.swap.max")) == ("1", "0")
    assert found.make(7, 512 * _MB) is None, "there is one already: no limit is better than another's"


async def test_a_kill_by_the_kernel_is_told_from_others(tree: Path) -> None:
    assert not cgroups.was_out_of_memory(str(tree))
    (tree / "memory.events").write_text("low 0\nhigh 3\nmax 7\noom 2\noom_kill 0\noom_group_kill 0\n")
    assert not cgroups.was_out_of_memory(str(tree))
    (tree / "memory.events").write_text("low 0\nhigh 3\nmax 7\noom 2\noom_kill 1\noom_group_kill 1\n")
    assert cgroups.was_out_of_memory(str(tree))


@pytest.fixture
def real_cgroup() -> Iterator[Path]:
    """A cgroup of this host's kernel, with whatever controllers it has."""
    for root in (Path("/sys/fs/cgroup/unified"), Path(cgroups.ROOT)):
        folder = root / f"pgcron-test-{os.getpid()}"
        if (root / "cgroup.procs").exists():
            with suppress(OSError):
                folder.mkdir()
                yield folder
                folder.rmdir()
                return
    pytest.skip("this user may make no cgroups here")


@pytest.mark.parametrize("user", [(), (65534, 65534)])
def test_a_command_begins_its_life_in_its_cgroup(real_cgroup: Path, user: tuple[int, ...]) -> None:
    if user and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    reading, writing = os.pipe()
    procs = cgroups.open_procs(str(real_cgroup))
    show = [b"/bin/sh", b"-c", b"cat /proc/self/cgroup; id -u"]
    pid = spawn(Order(1, show, [], user=user), writing, procs)
    os.close(writing)
    os.close(procs)
    with open(reading) as output:
        seen = output.read()
    assert os.waitpid(pid, 0)[1] == 0
    assert f"0::/{real_cgroup.name}\n" in seen
    assert seen.endswith(f"{user[0] if user else os.geteuid()}\n")


def test_a_process_that_was_adopted_is_moved_to_its_cgroup(real_cgroup: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as popen:
        cgroups.move(popen.pid, str(real_cgroup))
        seen = Path(f"/proc/{popen.pid}/cgroup").read_text()
        popen.kill()
    assert f"0::/{real_cgroup.name}\n" in seen


async def test_nothing_is_found_where_the_host_does_not_say_where_we_are(tmp_path: Path) -> None:
    assert cgroups.find(str(tmp_path / "no" / "such")) is None
