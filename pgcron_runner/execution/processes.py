"""The worker's side of its guard: commands are launched, read, signalled and awaited here, on asyncio.

It must not know jobs and runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pgcron_runner.errors import GuardLost
from pgcron_runner.execution import guard as program
from pgcron_runner.execution.commands import Command, ExitStatus, LaunchError, launch_error, launch_frame
from pgcron_runner.execution.guard import table, wire
from pgcron_runner.execution.leftovers import kill_all, kill_groups, kill_one
from pgcron_runner.execution.mailbox import Mailbox
from pgcron_runner.execution.orphans import reap_orphans
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.patience import Patience
from pgcron_runner.execution.process import Process
from pgcron_runner.execution.scratch import Scratch

__all__ = ["Command", "ExitStatus", "Guard", "LaunchError", "Process"]

_START_TIMEOUT = 10.0
_KILL_TIMEOUT = 2.0
_CLOSE_TIMEOUT = 10.0
_PATIENCE = 10.0
_ANSWERS = (b"started", b"failed", b"fed")


class Guard:
    """The guard process of this worker, and the only way to start commands.

    `lost` is set when it ended without being told to: its commands are dead by then, and no other can start. One that
    does not answer for so many seconds (`patience`) is killed: it could not be relied on to kill in its turn.
    `scratch` is for what its commands keep on disk.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], channel: socket.socket, mark_base: int, scratch: Scratch, patience: float
    ) -> None:
        self.lost = asyncio.Event()
        self.scratch = scratch
        self._popen = popen
        self._mailbox = Mailbox(channel)
        self._mark_base = mark_base
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[bytes, int]]] = {}
        self._processes: dict[int, Process] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seconds = patience
        self._patience: Patience | None = None
        self._gave_up = False
        self._silent = asyncio.Event()
        self._burial: asyncio.Task[None] | None = None
        self._closing = False
        self._reaps = table.LINUX

    @classmethod
    def start(cls, *, patience: float = _PATIENCE, in_service: bool = False) -> Guard:
        """Start the guard and wait until it is ready. For before there are threads, loops and connections.

        `in_service`: this process has children of its own, which are none of our business.
        """
        # What the guard leaves should it die, so that it can be caught however fast it forks.
        if not in_service:
            table.adopt_orphans()
        mark_base = table.new_mark_base()
        scratch = Scratch()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                popen = _start_program(theirs, mark_base, scratch.path)
            _await_ready(popen, ours)
        except GuardLost:
            ours.close()
            scratch.remove()
            raise
        guard = cls(popen, ours, mark_base, scratch, patience)
        guard._reaps = table.LINUX and not in_service
        return guard

    @property
    def pid(self) -> int:
        return self._popen.pid

    def attach(self) -> None:
        """Serve this guard from the running loop; `launch` and `close` do it by themselves."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop and self._burial is None:
            self._loop = loop
            loop.add_reader(self._mailbox.socket, self._receive)
            self._mailbox.attach(loop)
            self._patience = Patience(loop, self._seconds, self._give_up)
            if self._reaps:
                reap_orphans(loop, spare=self._popen.pid)

    def feed(self, deadline: float) -> None:
        """Let commands live until `deadline` (on `clock.boottime`), or longer if fed again. Never blocks.

        Until the first feed there is no deadline; after one has passed nothing is launched until a later one.
        """
        if self._burial is None:
            self._ask(wire.pack(b"feed", repr(deadline).encode()))

    async def launch(self, command: Command, output: OutputBuffer) -> Process:
        """Start a command; what it prints goes to `output`. LaunchError says in words why it could not be."""
        number = self.next_number()
        frame = launch_frame(number, command)
        self._ensure_alive()
        reading, writing = _open_pipe()
        return await self._begin(number, frame, reading, writing, output, lambda s, c: launch_error(s, c, command))

    async def adopt(
        self,
        pid: int,
        reading: int,
        output: OutputBuffer,
        number: int,
        *,
        memory_limit: int | None = None,
        inherited: int = 0,
    ) -> Process:
        """Make a command of a process that one of our commands has forked for us, and that is an orphan by now.

        `number` is from `next_number`, and the process carries `mark_of(number)` and leads a session of its own.
        It waits to be told to go on until this has returned, so that its end cannot be missed; where this raises
        LaunchError it must not go on. `reading`, which is closed in any case, is the end of the pipe that it prints to.
        The limit is for what it uses beside the `inherited` bytes, which it has of the one who forked it.
        """
        try:
            self._ensure_alive()
        except GuardLost:
            os.close(reading)
            raise
        frame = wire.pack(b"adopt", number, pid, memory_limit + inherited if memory_limit else 0)
        process = await self._begin(number, frame, reading, None, output, lambda s, c: _adoption_error(s, c, pid))
        process.inherited = inherited
        return process

    def next_number(self) -> int:
        """The number of a command that is to be adopted."""
        return next(self._numbers)

    def mark_of(self, number: int) -> int:
        """The soft limit RLIMIT_LOCKS that tells that a process belongs to this command."""
        return self._mark_base + number

    async def close(self) -> None:
        """Kill what still runs, end the guard and wait for it."""
        self.attach()
        self._closing = True
        with contextlib.suppress(OSError):
            self._mailbox.socket.shutdown(socket.SHUT_WR)
        try:
            await asyncio.wait_for(self._silent.wait(), _CLOSE_TIMEOUT)
        except TimeoutError:
            self._popen.kill()
            await self._silent.wait()
        if self._burial is not None:
            await self._burial
        self._mailbox.socket.close()
        # Not sooner: of a lost guard's commands it is still to be read what they have saved.
        self.scratch.remove()

    # Asking and answering.

    def _ensure_alive(self) -> None:
        self.attach()
        if self._burial is not None:
            raise self._loss()

    def _loss(self) -> GuardLost:
        if self._gave_up:
            return GuardLost(f"the guard did not answer for {self._seconds:g} seconds and was killed")
        return GuardLost()

    async def _begin(
        self,
        number: int,
        frame: bytes,
        reading: int,
        writing: int | None,
        output: OutputBuffer,
        tell: Callable[[bytes, int], LaunchError],
    ) -> Process:
        """Ask for a command and await the answer; where it is no, `tell` says why."""
        process = self._processes[number] = Process(number, self._kill_one, reading, output, self._send)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._ask(frame, writing)
        try:
            outcome, value = await answer
            if outcome != b"started":
                raise tell(outcome, value)
        except BaseException:
            # Perhaps cancelled between the request and the answer: the command may well have started.
            process.request_kill()
            process.close()
            raise
        process.pid = value
        return process

    def _ask(self, frame: bytes, fd: int | None = None) -> None:
        """Post a message that is answered."""
        if self._patience is not None:
            self._patience.asked()
        self._mailbox.post(frame, fd)

    def _send(self, word: bytes, *fields: bytes | int) -> None:
        """Post a message of guard/wire.py's. A lost guard needs none."""
        if self._burial is None:
            self._mailbox.post(wire.pack(word, *fields))

    def _kill_one(self, number: int) -> str | None:
        """Kills a command without the guard, which may be stopped. Who lives on, in words."""
        return kill_one(self.mark_of(number), self._popen.pid, seconds=_KILL_TIMEOUT / 2)

    def _receive(self) -> None:
        frames = self._mailbox.collect()
        if frames is None:
            self._bury()
            return
        assert self._patience is not None
        self._patience.heard(sum(frame[0] in _ANSWERS for frame in frames))
        for frame in frames:
            self._hear(frame)

    def _hear(self, frame: list[bytes]) -> None:
        match frame:
            case [b"started", number, pid]:
                self._answer(int(number), b"started", int(pid))
            case [b"failed", number, step, code]:
                del self._processes[int(number)]
                self._answer(int(number), step, int(code))
            case [b"exited", number, code, cut_off, leftovers]:
                self._processes[int(number)].end(int(code), cut_off=cut_off == b"1")
                if leftovers == b"0":
                    self._processes.pop(int(number)).gone.set()
            case [b"memory", number, used]:
                process = self._processes[int(number)]
                if process.on_excess is not None:
                    process.on_excess(int(used) - process.inherited)
            case [b"gone", number]:
                self._processes.pop(int(number)).gone.set()

    def _answer(self, number: int, outcome: bytes, value: int) -> None:
        answer = self._answers.pop(number)
        if not answer.done():
            answer.set_result((outcome, value))

    # The end.

    def _give_up(self) -> None:
        self._gave_up = True
        self._popen.kill()

    def _bury(self) -> None:
        assert self._loop is not None
        assert self._patience is not None
        self._patience.end()
        self._loop.remove_reader(self._mailbox.socket)
        self._mailbox.shut()
        self._burial = self._loop.create_task(self._clean_up())
        self._silent.set()

    async def _clean_up(self) -> None:
        await asyncio.to_thread(self._kill_leftovers)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._loss())
        for process in self._processes.values():
            process.exited.set()
            process.gone.set()
        self._answers.clear()
        self._processes.clear()
        if not self._closing:
            self.lost.set()

    def _kill_leftovers(self) -> None:
        """What an orderly guard has done itself already."""
        try:
            self._popen.wait(_KILL_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if self._popen.returncode == 0:
            return
        if sys.platform == "linux":
            kill_all(self._mark_base, seconds=_KILL_TIMEOUT)
        else:
            # 0 would be our own group: the answer to that launch had not come yet.
            kill_groups(process.pid for process in self._processes.values() if process.status is None and process.pid)


def _start_program(channel: socket.socket, mark_base: int, scratch: Path) -> subprocess.Popen[bytes]:
    folder = str(Path(program.__file__).parent)
    arguments = [sys.executable, "-I", "-S", folder, str(channel.fileno()), str(mark_base), str(scratch)]
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(channel.fileno(),),
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
        )
    except OSError as error:
        # As where this user, or the host, has no process left.
        raise GuardLost(f"The guard process could not be started: {error.strerror}: {arguments!r}") from error


def _await_ready(popen: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.settimeout(_START_TIMEOUT)
    try:
        frames = wire.Frames().feed(channel.recv(64))
    except OSError:
        frames = []
    if frames != [[b"ready"]]:
        popen.kill()
        popen.wait()
        raise GuardLost(f"The guard process did not start: {popen.args!r}")


def _open_pipe() -> tuple[int, int]:
    try:
        return os.pipe()
    except OSError as error:
        raise LaunchError(f"this worker has no file left for its output: {error.strerror}") from error


def _adoption_error(step: bytes, code: int, pid: int) -> LaunchError:
    if step == b"deadline":
        return LaunchError("this worker could not renew its lease in time, so its guard starts nothing")
    return LaunchError(f"process {pid} could not be adopted by the guard: {os.strerror(code)}")
