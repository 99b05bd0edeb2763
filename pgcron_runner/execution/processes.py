"""The worker's side of its guard: commands are launched, read, signalled and awaited here, on asyncio.

It must not know jobs and runs.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass

from pgcron_runner.errors import GuardLost, PgcronError
from pgcron_runner.execution import guard as program
from pgcron_runner.execution.output import OutputBuffer

_START_TIMEOUT = 10.0
_KILL_TIMEOUT = 2.0
_CLOSE_TIMEOUT = 10.0
_READ_SIZE = 65536
# The channel is full, or too many files are on their way: the guard will take them.
_SEND_LATER = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)
# A command that prints without end gets 1 MiB per pause, some 100 MB/s, and the loop the rest of its time.
_BURST, _BREATH = 1 << 20, 0.01


class LaunchError(PgcronError):
    """The command could not be started."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its whole environment. The umask is the worker's, the folder too where `cwd` is None."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a command ended: its exit code, or the signal. `cut_off`: it ran when the deadline passed."""

    code: int | None
    signal: int | None = None
    cut_off: bool = False


class Process:
    """A launched command. Close it when done: until then its pipe is open and is being read.

    `exited` is set when the command itself has ended, `drained` when nobody holds its output any more, `gone`
    when nothing that it started lives any more. If the guard is lost, `wait` raises.
    """

    def __init__(self, guard: Guard, number: int, reading: int, output: OutputBuffer) -> None:
        self.pid = 0
        self.output = output
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()
        self.gone = asyncio.Event()
        self.status: ExitStatus | None = None
        self._guard = guard
        self._number = number
        self._reading = reading
        self._loop = asyncio.get_running_loop()
        self._burst = 0
        self._breath: asyncio.TimerHandle | None = None

    async def wait(self) -> ExitStatus:
        """How the command itself ended; what it left behind may still live."""
        await self.exited.wait()
        if self.status is None:
            raise GuardLost
        return self.status

    def signal_group(self, signum: int) -> None:
        """Signal the command's process group, and wake what is stopped in it."""
        self._guard.send(b"signal", self._number, signum)

    async def kill_tree(self) -> bool:
        """SIGKILL for all that the command started, wherever it hid; False if some outlives two seconds."""
        self.request_kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.gone.wait(), _KILL_TIMEOUT)
        return self.gone.is_set()

    def request_kill(self) -> None:
        """As `kill_tree`, without waiting."""
        if not self.gone.is_set():
            self._guard.send(b"kill", self._number)

    def end(self, code: int, *, cut_off: bool) -> None:
        """For the guard: the command has ended with this `returncode`."""
        self.status = ExitStatus(None, -code, cut_off) if code < 0 else ExitStatus(code, None, cut_off)
        self.exited.set()

    def close(self) -> None:
        """Read no more. What the command still prints makes it fail with a broken pipe."""
        if self._reading >= 0:
            self._stop_reading()
            os.close(self._reading)
            self._reading = -1
        self.drained.set()

    def start_reading(self) -> None:
        """For the guard: what is printed from now on goes to `output`."""
        self._burst = 0
        self._loop.add_reader(self._reading, self._read)

    def _stop_reading(self) -> None:
        self._loop.remove_reader(self._reading)
        if self._breath is not None:
            self._breath.cancel()
            self._breath = None

    def _read(self) -> None:
        try:
            data = os.read(self._reading, _READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self.output.append(data)
        self._burst += len(data)
        if self._burst >= _BURST:
            self._stop_reading()
            self._breath = self._loop.call_later(_BREATH, self.start_reading)


class Guard:
    """The guard process of this worker, and the only way to start commands.

    `lost` is set when it ended without being told to: its commands are dead by then, and no other can start.
    """

    def __init__(self, popen: subprocess.Popen[bytes], channel: socket.socket, mark_base: int) -> None:
        self.lost = asyncio.Event()
        self._popen = popen
        self._channel = channel
        self._mark_base = mark_base
        self._frames = program.Frames()
        self._numbers = itertools.count(1)
        self._outgoing: deque[tuple[bytes, int | None]] = deque()
        self._answers: dict[int, asyncio.Future[tuple[bytes, int]]] = {}
        self._processes: dict[int, Process] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._silent = asyncio.Event()
        self._burial: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    def start(cls) -> Guard:
        """Start the guard and wait until it is ready. For before there are threads, loops and connections."""
        mark_base = program.new_mark_base()
        ours, theirs = socket.socketpair()
        with theirs:
            popen = _start_program(theirs, mark_base)
        guard = cls(popen, ours, mark_base)
        guard._await_ready()
        return guard

    @property
    def pid(self) -> int:
        return self._popen.pid

    def attach(self) -> None:
        """Serve this guard from the running loop; `launch` and `close` do it by themselves."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop and self._burial is None:
            self._loop = loop
            loop.add_reader(self._channel, self._receive)
            self._flush()

    def feed(self, deadline: float) -> None:
        """Let commands live until `deadline` (on `clock.boottime`), or longer if fed again. Never blocks.

        Until the first feed there is no deadline; after one has passed nothing is launched until a later one.
        """
        self.send(b"feed", repr(deadline).encode())

    async def launch(self, command: Command, output: OutputBuffer) -> Process:
        """Start a command; what it prints goes to `output`. LaunchError says in words why it could not be."""
        self.attach()
        if self._burial is not None:
            raise GuardLost
        number = next(self._numbers)
        frame = _launch_frame(number, command)
        reading, writing = _open_pipe()
        process = self._processes[number] = Process(self, number, reading, output)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        process.start_reading()
        self._post(frame, writing)
        try:
            outcome, value = await answer
            if outcome != b"started":
                raise _launch_error(outcome, value, command)
        except BaseException:
            # Perhaps cancelled between the request and the answer: the command may well have started.
            process.request_kill()
            process.close()
            raise
        process.pid = value
        return process

    def send(self, word: bytes, *fields: bytes | int) -> None:
        """Post a message of guard.py's; for Process. A lost guard needs none."""
        self._post(program.pack(word, *(b"%d" % f if isinstance(f, int) else f for f in fields)))

    async def close(self) -> None:
        """Kill what still runs, end the guard and wait for it."""
        self.attach()
        self._closing = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        try:
            await asyncio.wait_for(self._silent.wait(), _CLOSE_TIMEOUT)
        except TimeoutError:
            self._popen.kill()
            await self._silent.wait()
        if self._burial is not None:
            await self._burial
        self._channel.close()

    def _await_ready(self) -> None:
        self._channel.settimeout(_START_TIMEOUT)
        try:
            frames = self._frames.feed(self._channel.recv(_READ_SIZE))
        except OSError:
            frames = []
        if frames != [[b"ready"]]:
            self._channel.close()
            self._popen.kill()
            self._popen.wait()
            raise GuardLost(f"The guard process did not start: {self._popen.args!r}")
        self._channel.setblocking(False)

    # Sending: never blocks, so that a guard that is stopped cannot stop the worker.

    def _post(self, frame: bytes, fd: int | None = None) -> None:
        if self._burial is not None:
            return
        self._outgoing.append((frame, fd))
        if len(self._outgoing) == 1:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                self._send_first()
        except OSError as error:
            if error.errno not in _SEND_LATER:
                self._drop_outgoing()
            elif self._loop is not None:
                self._loop.add_writer(self._channel, self._flush)
                return
        if self._loop is not None:
            self._loop.remove_writer(self._channel)

    def _send_first(self) -> None:
        frame, fd = self._outgoing[0]
        # The file travels with the first byte.
        files = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        sent = self._channel.sendmsg([frame], files)
        if fd is not None:
            os.close(fd)
        if sent < len(frame):
            self._outgoing[0] = (frame[sent:], None)
        else:
            self._outgoing.popleft()

    def _drop_outgoing(self) -> None:
        for _, fd in self._outgoing:
            if fd is not None:
                os.close(fd)
        self._outgoing.clear()

    # Receiving.

    def _receive(self) -> None:
        try:
            data = self._channel.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        for frame in self._frames.feed(data):
            self._hear(frame)
        if not data:
            self._bury()

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
            case [b"gone", number]:
                self._processes.pop(int(number)).gone.set()

    def _answer(self, number: int, outcome: bytes, value: int) -> None:
        answer = self._answers.pop(number)
        if not answer.done():
            answer.set_result((outcome, value))

    # The end.

    def _bury(self) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._drop_outgoing()
        self._burial = self._loop.create_task(self._clean_up())
        self._silent.set()

    async def _clean_up(self) -> None:
        await asyncio.to_thread(self._kill_leftovers)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(GuardLost())
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
            _kill_marked(self._mark_base)
        else:
            _kill_groups([process.pid for process in self._processes.values() if process.status is None])


def _start_program(channel: socket.socket, mark_base: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", program.__file__, str(channel.fileno()), str(mark_base)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(channel.fileno(),),
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
    )


def _open_pipe() -> tuple[int, int]:
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise LaunchError(f"this worker has no file left for its output: {error.strerror}") from error
    os.set_blocking(reading, False)
    return reading, writing


def _launch_frame(number: int, command: Command) -> bytes:
    variables = [f"{name}={value}" for name, value in command.env.items()]
    if wrong := [name for name in command.env if "=" in name or not name]:
        raise LaunchError(f"{wrong[0]!r} cannot be the name of an environment variable")
    texts = [command.cwd or "", str(len(command.argv)), *command.argv, *variables]
    if any("\0" in text for text in texts):
        raise LaunchError("the command or its environment contains a NUL character")
    try:
        # Not os.fsencode: what a command is must not depend on the worker's locale.
        fields = [text.encode("utf-8", "surrogateescape") for text in texts]
    except UnicodeEncodeError as error:
        raise LaunchError("the command or its environment contains half a surrogate pair") from error
    return program.pack(b"launch", b"%d" % number, *fields)


def _launch_error(step: bytes, code: int, command: Command) -> LaunchError:
    name = command.argv[0]
    match step, code:
        case b"deadline", _:
            return LaunchError("this worker could not renew its lease in time, so its guard starts nothing")
        case b"folder", errno.ENOENT:
            return LaunchError(f"the folder {command.cwd} does not exist")
        case b"folder", _:
            return LaunchError(f"the folder {command.cwd} cannot be entered: {os.strerror(code)}")
        case _, errno.ENOENT:
            return LaunchError(f"{name} (or the interpreter it asks for) was not found")
        case _, errno.EACCES:
            return LaunchError(f"{name} may not be executed by this user, or is not executable")
        case _, errno.ENOEXEC:
            return LaunchError(f"{name} is not a program; a script needs a first line like #!/bin/sh")
        case _, errno.E2BIG:
            size = sum(len(text.encode("utf-8", "replace")) for text in command.argv)
            return LaunchError(
                f"the command ({size:,} bytes) or its environment is longer than the operating system takes"
                " (Linux: 131,071 bytes in one piece); put it into a file"
            )
    return LaunchError(f"{name} could not be started: {os.strerror(code)}")


def _kill_marked(mark_base: int) -> None:
    """Kill what a guard left that died: no longer our descendants, but they still carry its marks."""
    patience = time.monotonic() + _KILL_TIMEOUT
    while (pids := program.marked_processes(mark_base)) and time.monotonic() < patience:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                _kill_if_marked(pid, mark_base)
        time.sleep(0.005)


def _kill_if_marked(pid: int, mark_base: int) -> None:
    # Others reap these, so the number may change hands between the look and the signal; a pidfd does not.
    if sys.platform == "linux":
        handle = os.pidfd_open(pid)
        try:
            if program.has_mark_of(pid, mark_base):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _kill_groups(leaders: list[int]) -> None:
    for pid in leaders:
        # 0 would be our own group: the answer to that launch had not come yet.
        if pid != 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
