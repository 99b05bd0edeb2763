"""Warm starts: Python jobs as forks of a process that has imported already what they need (zygote.py).

Any trouble with it means a cold start, and a warning. Nothing of a job has run before its fork was adopted by the guard
and told to go on, so that no run is lost or doubled by that.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TypeVar

from pgcron_runner.errors import GuardLost, PgcronError
from pgcron_runner.execution.commands import launch_error, launch_frame
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard, LaunchError, Process
from pgcron_runner.execution.stop import Stop
from pgcron_runner.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")

# Not imported: the worker has no use for what it needs.
_PROGRAM = str(Path(__file__).with_name("zygote.py"))
_START_TIMEOUT = 60.0
_FORK_TIMEOUT = 10.0
# After a failure runs start cold for a while, before it is tried again.
_REST = 60.0
_OUTPUT_BYTES = 16_384
# An interpreter looks at these when it starts, and only then; so does the loader of programs, and the allocator.
_READ_AT_START = ("PYTHON", "LC_", "LD_", "MALLOC_", "GLIBC_")
_READ_AT_START_TOO = ("LANG", "LANGUAGE", "HOME")
_GO = b"g"


class _Cold(PgcronError):
    """It cannot be started warm."""


class WarmStarts:
    """Launches Python children like the guard, where it can as forks of one zygote, which `preload` was imported in.

    `environment` is what a job finds that adds nothing of its own.
    """

    def __init__(self, guard: Guard, environment: Mapping[str, str], preload: tuple[str, ...]) -> None:
        self._guard = guard
        self._environment = dict(environment)
        self._preload = preload
        self._zygote: _Zygote | None = None
        self._starting: asyncio.Task[None] | None = None
        self._resting_until = 0.0

    async def prepare(self, command: Command, stop: Stop) -> None:
        """Waits until this command could be started warm, or it is clear that it cannot, or it is to stop."""
        if self._zygote is not None and not self._zygote.lives:
            self._drop()
        if not self._may_be_warm(command) or self._zygote is not None:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        stopped = asyncio.ensure_future(stop.event.wait())
        try:
            await asyncio.wait({self._starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    async def launch(self, command: Command, output: OutputBuffer) -> Process:
        """As Guard.launch. The last argument is the folder of the run."""
        zygote = self._zygote
        if zygote is not None and self._may_be_warm(command):
            try:
                return await zygote.fork(command, output)
            except (_Cold, OSError, TimeoutError) as error:
                self._give_up(zygote, error)
            except _OtherModules:
                log.debug("cold_start", folder=command.cwd, reason="its folder has other modules of the same names")
        return await self._guard.launch(command, output)

    def close(self) -> None:
        """Ends the zygote; its forks are the guard's."""
        if self._starting is not None:
            self._starting.cancel()
        self._drop()

    def _may_be_warm(self, command: Command) -> bool:
        """Not where the interpreter itself would start differently, or as another user; and only Linux has adoption."""
        return (
            sys.platform == "linux"
            and not command.user
            and asyncio.get_running_loop().time() >= self._resting_until
            and _read_at_start(command.env) == _read_at_start(self._environment)
        )

    async def _start(self) -> None:
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                self._zygote = await _Zygote.start(self._guard, self._environment, self._preload)
        except TimeoutError:
            self._rest(_Cold(f"it was not ready within {_START_TIMEOUT:g} seconds"))
        except (_Cold, LaunchError, GuardLost, OSError) as error:
            self._rest(error)
        finally:
            self._starting = None

    def _give_up(self, zygote: _Zygote, error: Exception) -> None:
        if zygote is not self._zygote:
            # Another run has noticed before.
            return
        self._drop()
        if zygote.was_killed:
            # As all commands are when the lease could not be renewed in time.
            log.info("zygote_killed", consequence="this Python run starts cold, and the next another zygote")
        else:
            self._rest(error)

    def _rest(self, error: Exception) -> None:
        self._resting_until = asyncio.get_running_loop().time() + _REST
        log.warning(
            "no_warm_starts",
            preload=",".join(self._preload) or None,
            error=str(error) or type(error).__name__,
            consequence=f"for {_REST:g} seconds each Python run starts cold, and imports by itself what it needs",
        )

    def _drop(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


class _OtherModules(Exception):
    """The run's folder has modules of its own for names that the zygote has imported from elsewhere."""


class _Zygote:
    """The living process, and the line to it."""

    def __init__(self, guard: Guard, process: Process, line: socket.socket, memory: int) -> None:
        self._guard = guard
        self._process = process
        self._line = line
        self._memory = memory

    @classmethod
    async def start(cls, guard: Guard, environment: dict[str, str], preload: tuple[str, ...]) -> _Zygote:
        """Raises _Cold, with what it has printed, where it ends before it is ready; LaunchError, GuardLost, OSError."""
        with tempfile.TemporaryDirectory(prefix="zygote-", dir=guard.scratch.path) as folder:
            address = str(Path(folder) / "socket")
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.setblocking(False)
                listener.bind(address)
                listener.listen(1)
                command = Command((sys.executable, "-P", "-u", _PROGRAM, address), environment)
                process = await guard.launch(command, OutputBuffer(_OUTPUT_BYTES))
                try:
                    line, memory = await _meet(process, listener, preload)
                except BaseException:
                    process.request_kill()
                    process.close()
                    raise
        return cls(guard, process, line, memory)

    @property
    def lives(self) -> bool:
        return not self._process.exited.is_set()

    @property
    def was_killed(self) -> bool:
        return self._process.status is not None and self._process.status.signal is not None

    async def fork(self, command: Command, output: OutputBuffer) -> Process:
        """The command as a fork, adopted and on its way.

        Raises LaunchError as a cold start would; _Cold, _OtherModules, OSError or TimeoutError where it cannot be.
        """
        number = self._guard.next_number()
        # What no operating system could start is no start here either.
        launch_frame(number, command)
        channel, theirs = socket.socketpair()
        with channel:
            channel.setblocking(False)
            reading = self._ask(theirs)
            try:
                async with asyncio.timeout(_FORK_TIMEOUT):
                    pid = await self._introduce(channel, number, command)
            except BaseException:
                os.close(reading)
                raise
            process = await self._adopt(pid, reading, output, number, command)
            try:
                channel.send(_GO)
            except OSError as error:
                process.request_kill()
                process.close()
                raise _Cold(f"the forked process ended before it was told to go on: {error}") from error
            return process

    def close(self) -> None:
        """It ends, also where it hangs."""
        self._line.close()
        self._process.request_kill()
        self._process.close()

    def _ask(self, theirs: socket.socket) -> int:
        """Asks for a fork that has `theirs`; returns the end of its output."""
        with theirs:
            reading, writing = os.pipe()
            try:
                files = array.array("i", [theirs.fileno(), writing])
                self._line.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            except BaseException:
                os.close(reading)
                raise
            finally:
                os.close(writing)
        return reading

    async def _introduce(self, channel: socket.socket, number: int, command: Command) -> int:
        """Tells the fork what it is to be; its pid."""
        loop = asyncio.get_running_loop()
        request = {
            "mark": self._guard.mark_of(number),
            "env": command.env,
            "cwd": command.cwd,
            "umask": command.umask,
            "folder": command.argv[-1],
        }
        text = json.dumps(request).encode()
        try:
            await loop.sock_sendall(channel, len(text).to_bytes(4, "big") + text)
            answer = await loop.sock_recv(channel, 4096)
        except ConnectionError:
            answer = b""
        match json.loads(answer) if answer else {}:
            case {"pid": int(pid)}:
                return pid
            case {"errno": int(code)}:
                raise launch_error(b"folder", code, command)
            case {"other": _}:
                raise _OtherModules
        raise _Cold(await _why_ended(self._process))

    async def _adopt(self, pid: int, reading: int, output: OutputBuffer, number: int, command: Command) -> Process:
        try:
            return await self._guard.adopt(
                pid, reading, output, number, memory_limit=command.memory_limit, inherited=self._memory
            )
        except LaunchError as error:
            raise _Cold(str(error)) from error


async def _meet(process: Process, listener: socket.socket, preload: tuple[str, ...]) -> tuple[socket.socket, int]:
    """The line to a zygote that has just been launched, and its size, once it has imported everything."""
    loop = asyncio.get_running_loop()
    line, _ = await _unless_ended(process, loop.sock_accept(listener))
    try:
        line.setblocking(False)
        path = [entry or os.getcwd() for entry in sys.path]
        line.send(json.dumps({"path": path, "preload": preload}).encode())
        answer = await _unless_ended(process, loop.sock_recv(line, 16))
        if not answer:
            raise _Cold(await _why_ended(process))
    except BaseException:
        line.close()
        raise
    return line, int(answer)


async def _unless_ended(process: Process, awaitable: Awaitable[T]) -> T:
    wanted, ended = asyncio.ensure_future(awaitable), asyncio.ensure_future(process.exited.wait())
    try:
        await asyncio.wait({wanted, ended}, return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        raise _Cold(await _why_ended(process))
    finally:
        for future in (wanted, ended):
            future.cancel()


async def _why_ended(process: Process) -> str:
    """The last line that it has printed, which is its error."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await process.drained.wait()
            await process.exited.wait()
    lines = process.output.render().text.strip().splitlines()
    return lines[-1] if lines else "no process could be forked"


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(_READ_AT_START) or name in _READ_AT_START_TOO
    }
