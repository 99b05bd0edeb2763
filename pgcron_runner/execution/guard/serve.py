"""The guard's loop: it obeys the worker, watches the deadline, and tells how commands end."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import socket

from . import cgroups
from .killing import Killer
from .launches import Launches
from .memory import MemoryWatch
from .orders import Order
from .spawn import RESET, spawn
from .table import adopt_orphans, boottime, set_mark
from .wire import Channel

_UNHEEDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_STOPS = (signal.SIGSTOP, signal.SIGTSTP)
_TICK = 0.25  # poll() does not count suspension, the deadline does: look this often while it matters


def main(fd: int, mark_base: int, scratch: str) -> None:
    """Be the guard of the worker at the other end of this socket. In a session of its own already.

    `scratch` is the folder of what its runs keep on disk: gone with the last of them, however the worker ends.
    """
    _heed_no_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    adopt_orphans()
    guard = _Guard(Channel(socket.socket(fileno=fd)), mark_base)
    try:
        guard.serve()
    finally:
        guard.kill_everything()
        _remove(scratch)


class _Guard:
    """One loop without threads: it may change its own folder and limits around a launch."""

    def __init__(self, channel: Channel, mark_base: int) -> None:
        self._channel = channel
        self._mark_base = mark_base
        self._launches = Launches(mark_base)
        self._killer = Killer(self._launches)
        self._memory = MemoryWatch(self._launches)
        self._cgroups = cgroups.find()
        self._deadline = math.inf
        self._folder = os.open(".", os.O_RDONLY)
        self._wakeup = _wake_on_sigchld()

    def serve(self) -> None:
        """Work until the worker closes its end or dies."""
        self._channel.tell(b"ready")
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        while self._channel.connected:
            self._channel.flush()
            poller.register(self._channel.socket, select.POLLIN | (select.POLLOUT * self._channel.has_to_write))
            for fd, _ in poller.poll(self._timeout()):
                if fd == self._wakeup:
                    os.read(fd, 4096)
                else:
                    for frame in self._channel.receive():
                        self._obey(frame)
            for event in (*self._launches.reap(), *self._memory.step()):
                self._channel.tell(*event)
            self._watch_deadline()
            self._killer.step()

    def kill_everything(self) -> None:
        """Kill all descendants until none is left that may be killed."""
        self._killer.finish()

    def _timeout(self) -> float | None:
        """How long to sleep, in milliseconds."""
        seconds = [_TICK] if self._launches.some_left_something else []
        if self._launches and not self._killer.all_are_doomed and self._deadline < math.inf:
            seconds += [_TICK, max(self._deadline - boottime(), 0.0)]
        for pause in (self._killer.seconds_to_next_pass(), self._memory.seconds_to_next_look()):
            if pause is not None:
                seconds.append(pause)
        # Rounded up: a fraction too early would spin.
        return int(min(seconds) * 1000) + 1 if seconds else None

    def _watch_deadline(self) -> None:
        if not self._killer.all_are_doomed and self._deadline <= boottime():
            for launch in self._launches:
                launch.cut_off = launch.status is None
            # A later deadline lets new commands start, but spares none of these.
            self._killer.condemn_all()

    def _obey(self, frame: list[bytes]) -> None:
        match frame:
            case [b"feed", deadline]:
                self._feed(float(deadline))
            case [b"launch", *fields]:
                self._launch(Order.parse(fields))
            case [b"adopt", number, pid, memory_limit]:
                self._adopt(int(number), int(pid), int(memory_limit))
            case [b"signal", number, signum]:
                self._signal(int(number), int(signum))
            case [b"kill", number]:
                if (launch := self._launches.get(int(number))) is not None:
                    self._killer.condemn(launch)

    def _feed(self, deadline: float) -> None:
        self._deadline = deadline
        if deadline > boottime():
            self._killer.all_are_doomed = False
        # So that the worker knows that this guard is at work.
        self._channel.tell(b"fed")

    def _launch(self, order: Order) -> None:
        output = self._channel.take_fd()
        try:
            if self._deadline <= boottime():
                self._channel.tell(b"failed", order.number, b"deadline", 0)
            else:
                self._start(order, output)
        finally:
            os.close(output)

    def _start(self, order: Order, output: int) -> None:
        step = b"folder"
        cgroup = self._make_cgroup(order.number, order.memory_limit)
        try:
            if order.folder:
                os.chdir(order.folder)
            step = b"program"
            set_mark(self._mark_base + order.number)
            pid = self._spawn(order, output, cgroup)
        except OSError as error:
            if cgroup is not None:
                cgroups.remove(cgroup)
            self._channel.tell(b"failed", order.number, step, error.errno or 0)
            return
        finally:
            # A worker that kills by marks is not to take the guard for the command.
            set_mark(self._mark_base)
            if order.folder:
                os.fchdir(self._folder)
        self._launches.add(order.number, pid, memory_limit=order.memory_limit, cgroup=cgroup)
        self._channel.tell(b"started", order.number, pid)

    def _make_cgroup(self, number: int, memory_limit: int) -> str | None:
        return self._cgroups.make(number, memory_limit) if self._cgroups is not None and memory_limit else None

    def _spawn(self, order: Order, output: int, cgroup: str | None) -> int:
        if cgroup is None:
            return spawn(order, output)
        procs = cgroups.open_procs(cgroup)
        try:
            return spawn(order, output, procs)
        finally:
            os.close(procs)

    def _adopt(self, number: int, pid: int, memory_limit: int) -> None:
        code = _why_not_ours(pid, leads=self._launches.leads(pid))
        if self._deadline <= boottime():
            self._channel.tell(b"failed", number, b"deadline", 0)
        elif code:
            self._channel.tell(b"failed", number, b"adopt", code)
        else:
            cgroup = self._make_cgroup(number, memory_limit)
            if cgroup is not None:
                cgroups.move(pid, cgroup)
            self._launches.add(number, pid, memory_limit=memory_limit, cgroup=cgroup)
            self._channel.tell(b"started", number, pid)

    def _signal(self, number: int, signum: int) -> None:
        launch = self._launches.get(number)
        # Once the leader is reaped its number may name a stranger's group.
        if launch is not None and launch.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(launch.pid, signum)
                if signum not in _STOPS:
                    # A stopped process would sleep through it.
                    os.killpg(launch.pid, signal.SIGCONT)


def _why_not_ours(pid: int, *, leads: bool) -> int:
    """The error that keeps us from adopting this process; 0 for a child that leads no command yet."""
    if leads:
        return errno.EEXIST
    try:
        # Looked at and not reaped: should it be dead already, the loop hears of it like of any other.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError as error:
        return error.errno or errno.ECHILD
    return 0


def _remove(folder: str) -> None:
    # Only here: what it loads would make the guard larger while it lives.
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _heed_no_signals() -> None:
    """Ctrl-C, a terminal that hangs up and `kill` on the group are for the worker to answer.

    Handled by nothing, and not ignored, nor what was ignored when the worker was started: that stays so in commands.
    """
    inherited = [signum for signum in signal.valid_signals() if signal.getsignal(signum) is signal.SIG_IGN]
    for signum in {*_UNHEEDED, *inherited} - {*RESET}:
        signal.signal(signum, lambda *_: None)


def _wake_on_sigchld() -> int:
    """A file that turns readable when a child ends: poll() alone would miss one that ends just before it."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading
