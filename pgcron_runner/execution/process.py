"""One launched command: its output is read, its end awaited, and it is signalled, all through the guard."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from pgcron_runner.errors import GuardLost
from pgcron_runner.execution.commands import ExitStatus
from pgcron_runner.execution.output import OutputBuffer

_KILL_TIMEOUT = 2.0
_READ_SIZE = 65536
# A command that prints without end gets 1 MiB per pause, some 100 MB/s, and the loop the rest of its time.
_BURST, _BREATH = 1 << 20, 0.01


class Process:
    """A launched command. Close it when done: until then its pipe is open and is being read.

    `exited` is set when the command itself has ended, `drained` when nobody holds its output any more, `gone`
    when nothing that it started lives any more. If the guard is lost, `wait` raises. `on_excess` is called with the
    bytes in use, beside those `inherited`, whenever it is seen to use more memory than its limit. `survivors`: who
    could not be killed, in words.
    """

    def __init__(
        self,
        number: int,
        kill_without_guard: Callable[[int], str | None],
        reading: int,
        output: OutputBuffer,
        send: Callable[..., None],
    ) -> None:
        """`reading` is the end of a pipe, which this closes; `send` posts a frame to the guard."""
        self.pid = 0
        self.inherited = 0
        self.survivors: str | None = None
        self._number = number
        self._kill_without_guard = kill_without_guard
        self.output = output
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()
        self.gone = asyncio.Event()
        self.status: ExitStatus | None = None
        self.on_excess: Callable[[int], None] | None = None
        self._send = send
        self._reading = reading
        self._loop = asyncio.get_running_loop()
        self._burst = 0
        self._breath: asyncio.TimerHandle | None = None
        os.set_blocking(reading, False)
        self._start_reading()

    async def wait(self) -> ExitStatus:
        """How the command itself ended; what it left behind may still live."""
        await self.exited.wait()
        if self.status is None:
            raise GuardLost
        return self.status

    def signal_group(self, signum: int) -> None:
        """Signal the command's process group, and wake what is stopped in it."""
        self._send(b"signal", self._number, signum)

    async def kill_tree(self) -> bool:
        """SIGKILL for all that the command started, wherever it hid; False if some lives on: see `survivors`.

        Waits for two seconds, and for one more to kill without the guard, which may be stopped.
        """
        self.request_kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.gone.wait(), _KILL_TIMEOUT)
        if not self.gone.is_set():
            self.survivors = await asyncio.to_thread(self._kill_without_guard, self._number)
        return self.survivors is None

    def request_kill(self) -> None:
        """As `kill_tree`, without waiting."""
        if not self.gone.is_set():
            self._send(b"kill", self._number)

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

    def _start_reading(self) -> None:
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
            self._breath = self._loop.call_later(_BREATH, self._start_reading)
