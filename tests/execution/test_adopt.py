"""Processes that one command forks and the guard adopts as commands of their own: what warm starts stand on."""

from __future__ import annotations

import array
import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pgcron_runner.clock import boottime
from pgcron_runner.errors import GuardLost
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, ExitStatus, Guard, LaunchError, Process
from tests.execution import zygote as program
from tests.execution.escapes import ENV, ESCAPES, exists, living
from tests.execution.guarded import ON_LINUX, eventually, launch

pytestmark = ON_LINUX


class Fork:
    """A forked process that has not been told to go on yet."""

    def __init__(self, guard: Guard, number: int, pid: int, reading: int, go: int) -> None:
        self.pid = pid
        self.output = OutputBuffer(10_000)
        self._guard, self._number, self._reading, self._go = guard, number, reading, go

    async def adopt(self) -> Process:
        try:
            process = await self._guard.adopt(self.pid, self._reading, self.output, self._number)
            os.write(self._go, b"!")
        finally:
            os.close(self._go)
        return process


class Zygote:
    """A command that forks others."""

    def __init__(self, guard: Guard, process: Process, line: socket.socket) -> None:
        self.guard, self.process, self.line = guard, process, line

    async def fork(self, script: str) -> Fork:
        number = self.guard.next_number()
        reading, output = os.pipe()
        waiting, go = os.pipe()
        files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [output, waiting]))]
        self.line.sendmsg([f"{self.guard.mark_of(number)} {script}".encode()], files)
        os.close(output)
        os.close(waiting)
        pid = int(await asyncio.to_thread(self.line.recv, 100))
        return Fork(self.guard, number, pid, reading, go)

    async def start(self, script: str) -> Process:
        return await (await self.fork(script)).adopt()


async def adopt(guard: Guard, pid: int) -> None:
    """Asks for what is to be refused; nobody reads then."""
    reading, writing = os.pipe()
    try:
        await guard.adopt(pid, reading, OutputBuffer(10), guard.next_number())
    finally:
        with pytest.raises(BrokenPipeError):
            os.write(writing, b"nobody reads")
        os.close(writing)


@pytest.fixture
async def zygote(guard: Guard, tmp_path: Path) -> AsyncIterator[Zygote]:
    path = str(tmp_path / "z")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        argv = (sys.executable, "-I", "-S", program.__file__, path)
        process = await guard.launch(Command(argv, ENV), OutputBuffer(10_000))
        line, _ = await asyncio.to_thread(listener.accept)
    with line:
        yield Zygote(guard, process, line)


async def test_an_adopted_process_is_told_of_like_any_command(zygote: Zygote) -> None:
    process = await zygote.start("(sleep 0.3; echo late) & echo $$; exit 3")
    assert await process.wait() == ExitStatus(3)
    assert not process.gone.is_set()
    async with asyncio.timeout(5):
        await process.gone.wait()
        await process.drained.wait()
    assert process.output.render().text == f"{process.pid}\nlate\n"


async def test_it_waits_until_it_was_adopted(zygote: Zygote, tmp_path: Path) -> None:
    fork = await zygote.fork(f"touch {tmp_path}/ran; kill -KILL $$")
    assert exists(fork.pid)
    assert not (tmp_path / "ran").exists()
    process = await fork.adopt()
    assert (await process.wait()).signal == signal.SIGKILL
    assert (tmp_path / "ran").exists()


async def test_many_at_once_keep_their_outputs_and_ends_apart(zygote: Zygote) -> None:
    processes = [await zygote.start(f"echo {number}; exit {number}") for number in range(30)]
    for number, process in enumerate(processes):
        assert await process.wait() == ExitStatus(number)
        await process.drained.wait()
        assert process.output.render().text == f"{number}\n"


@pytest.mark.parametrize("way", ESCAPES)
async def test_no_descendant_of_an_adopted_one_escapes_kill_tree(zygote: Zygote, marker: str, way: str) -> None:
    bystander = await zygote.start("sleep 300")
    process = await zygote.start(ESCAPES[way].format(marker))
    await eventually(lambda: living(marker))
    assert await process.kill_tree()
    assert not living(marker)
    assert not bystander.exited.is_set()
    assert not zygote.process.exited.is_set()


async def test_it_gets_its_signals(zygote: Zygote) -> None:
    process = await zygote.start("trap 'echo bye; exit 7' TERM; echo up; sleep 300 & wait")
    await eventually(lambda: process.output.total_bytes)
    process.signal_group(signal.SIGTERM)
    assert await process.wait() == ExitStatus(7)


async def test_it_outlives_the_one_who_forked_it(zygote: Zygote, marker: str) -> None:
    process = await zygote.start(f"sleep 300 {marker}; true")
    await eventually(lambda: living(marker))
    assert await zygote.process.kill_tree()
    assert not process.exited.is_set()
    assert await process.kill_tree()
    assert not living(marker)


async def test_one_that_is_never_adopted_ends_by_itself(zygote: Zygote) -> None:
    fork = await zygote.fork("true")
    with pytest.raises(LaunchError, match="could not be adopted"):
        await adopt(zygote.guard, os.getpid())
    assert exists(fork.pid)
    os.close(fork._go)
    await eventually(lambda: not exists(fork.pid))
    os.close(fork._reading)


async def test_only_own_children_that_are_no_commands_yet_are_adopted(zygote: Zygote, guard: Guard) -> None:
    command = await launch(guard, "sleep 300")
    refused = {os.getpid(): "No child", guard.pid: "No child", command.pid: "File exists", 0: "could not be adopted"}
    for pid, words in refused.items():
        with pytest.raises(LaunchError, match=words):
            await adopt(guard, pid)
    fork = await zygote.fork("exit 5")
    assert await (await fork.adopt()).wait() == ExitStatus(5)


async def test_one_that_died_before_it_was_adopted_is_refused(zygote: Zygote) -> None:
    fork = await zygote.fork("true")
    os.kill(fork.pid, signal.SIGKILL)
    await eventually(lambda: not Path(f"/proc/{fork.pid}").exists())
    with pytest.raises(LaunchError, match="could not be adopted"):
        await fork.adopt()


async def test_a_passed_deadline_kills_all_and_adopts_none(zygote: Zygote, guard: Guard, marker: str) -> None:
    process = await zygote.start(f"sleep 300 {marker}; true")
    fork = await zygote.fork("true")
    await eventually(lambda: living(marker))
    guard.feed(boottime() - 1)
    with pytest.raises(LaunchError, match="could not renew its lease"):
        await fork.adopt()
    assert (await process.wait()).cut_off
    assert (await zygote.process.wait()).cut_off
    await eventually(lambda: not living(marker) and not exists(fork.pid))


async def test_a_lost_guard_adopts_none(zygote: Zygote, guard: Guard) -> None:
    fork = await zygote.fork("true")
    os.kill(guard.pid, signal.SIGKILL)
    with pytest.raises(GuardLost):
        await fork.adopt()
    await guard.lost.wait()
    assert not exists(fork.pid)
    with pytest.raises(GuardLost):
        await adopt(guard, fork.pid)
