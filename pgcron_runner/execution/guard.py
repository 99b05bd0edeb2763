"""The guard: a small process that launches and owns the commands of one worker and kills them when it fails.

It must not know pgcron_runner: it is run by its file path, isolated and without site-packages, so that it
starts in some 20 ms and needs the standard library only. (The worker imports it for the wire format and the
marks.)

    worker --- launch (with the pipe for the output), signal, kill, feed ---> guard
    worker <------------- ready, started or failed, exited, gone ------------ guard

A launch is answered by `failed`, or by `started`, then `exited` (the command itself has ended), then `gone`
(nothing that it left behind lives any more); an `exited` that tells of no leftovers stands for `gone` too.

How a process is known to be a command's, even one that called setsid, forked twice and cleared its
environment: the guard is a child subreaper, so every orphan becomes its child; and before each launch it sets
its own soft limit RLIMIT_LOCKS, which no kernel since 2.4.25 enforces, to a number of that launch. The limit
is inherited over fork, setsid and exec, anyone may read it in /proc/<pid>/limits, and nothing but `ulimit -x`
or a PAM login changes it. (An environment marker would be hidden by `env -i`, setproctitle and setuid
programs.) Parents and sessions do for the rest. macOS has no subreapers: there a process that left both its
parent and its session is not found.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque

_PR_SET_CHILD_SUBREAPER = 36
_RLIMIT_LOCKS = 10
_MARKS = 1 << 36  # of one guard: at a thousand launches a second they last for two years
_LINUX = sys.platform == "linux"
# Those the guard ignores and those Python does; an ignored signal would stay ignored in every command.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_RESET = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ)
_STOPS = (signal.SIGSTOP, signal.SIGTSTP)
_FD_SPACE = socket.CMSG_SPACE(64)
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_TICK = 0.25  # poll() does not count suspension, the deadline does: look this often while it matters
_FIRST_PAUSE, _LAST_PAUSE = 0.001, 0.25  # between two passes of killing
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


# The wire: a length, then a word and its fields, apart by NUL, which no path, argument or variable can hold.


def pack(*fields: bytes) -> bytes:
    """One frame; no field may hold a NUL byte."""
    body = b"\0".join(fields)
    return len(body).to_bytes(4, "big") + body


class Frames:
    """Cuts a stream of bytes back into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The fields of each frame that `data` completes."""
        self._buffer += data
        frames, start = [], 0
        while len(self._buffer) >= start + 4:
            end = start + 4 + int.from_bytes(self._buffer[start : start + 4], "big")
            if end > len(self._buffer):
                break
            frames.append(bytes(self._buffer[start + 4 : end]).split(b"\0"))
            start = end
        del self._buffer[:start]
        return frames


# What the operating system tells about processes.


def new_mark_base() -> int:
    """A number to count marks from; two guards of one host share it with a chance of 1 in 100 million."""
    return (int.from_bytes(os.urandom(4), "big") >> 5) * _MARKS


def mark_of(pid: int) -> int | None:
    """The mark that this process inherited, None where it has none or has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", "rb") as limits:
        for line in limits:
            if line.startswith(b"Max file locks"):
                soft = line.split()[3]
                return int(soft) if soft.isdigit() else None
    return None


def marked_processes(mark_base: int) -> list[int]:
    """Every process of this host, whoever its parent, that was launched by the guard with this base."""
    return [pid for pid in _read_table() if has_mark_of(pid, mark_base)]


def has_mark_of(pid: int, mark_base: int) -> bool:
    """Whether this process was launched by the guard with this base, or descends from one that was."""
    mark = mark_of(pid)
    return mark is not None and 0 <= mark - mark_base < _MARKS


def _read_table() -> dict[int, tuple[int, int]]:
    """Parent and process group of each living process."""
    if not _LINUX:
        return _ask_ps()
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
                # A process whose first thread has ended looks like a zombie too, but has threads left.
                if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
                    table[int(name)] = (int(fields[1]), int(fields[2]))
    return table


def _ask_ps() -> dict[int, tuple[int, int]]:
    with os.popen("exec /bin/ps -A -o pid=,ppid=,pgid=,state=") as ps:  # noqa: S605 # a constant
        rows = [line.split() for line in ps]
    return {int(pid): (int(ppid), int(pgid)) for pid, ppid, pgid, state in rows if state[0] != "Z"}


def _own_children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as children:
            return [int(pid) for pid in children.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid, (ppid, _) in _read_table().items() if ppid == me]


def _boottime() -> float:
    # As in clock.py, which cannot be imported here.
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def _find_program(program: bytes, search_path: bytes) -> bytes:
    """`program` as the command's own PATH has it, not as the guard's has."""
    if b"/" in program:
        return program
    found = [os.path.join(folder or b".", program) for folder in search_path.split(b":")]
    found = [path for path in found if os.path.isfile(path)]
    runnable = [path for path in found if os.access(path, os.X_OK)]
    if not runnable:
        code = errno.EACCES if found else errno.ENOENT
        raise OSError(code, os.strerror(code))
    return runnable[0]


def _spawn(argv: list[bytes], env: dict[bytes, bytes], output: int) -> int:
    """Start a program in a session of its own; every other file of the guard closes on exec."""
    return os.posix_spawn(
        _find_program(argv[0], env.get(b"PATH", os.defpath.encode())),
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)],
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


def _kill(pid: int) -> bool:
    """False where this user may not kill it."""
    # The number was read a moment ago: a stranger has it only if the host used up all others since.
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


class _Launch:
    """A command from its start until nothing of it lives."""

    __slots__ = ("cut_off", "number", "pid", "reported", "status")

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.status: int | None = None  # as Popen.returncode: minus the signal, once it has ended
        self.cut_off = False
        self.reported = False


class _Guard:
    """One loop without threads: it may change its own folder and limits around a launch."""

    def __init__(self, worker: socket.socket, mark_base: int) -> None:
        self._worker = worker
        self._mark_base = mark_base
        self._frames = Frames()
        self._fds: deque[int] = deque()
        self._outgoing = bytearray()
        self._launches: dict[int, _Launch] = {}
        self._by_pid: dict[int, _Launch] = {}
        self._over: list[_Launch] = []
        self._dying: set[_Launch] = set()
        self._deadline = math.inf
        self._expired = False
        self._childless = True
        self._connected = True
        self._pause = _FIRST_PAUSE
        self._next_pass = 0.0
        self._struck: dict[int, bool] = {}  # in the last pass, and whether it could be
        self._folder = os.open(".", os.O_RDONLY)
        self._wakeup = _wake_on_sigchld()

    def serve(self) -> None:
        """Work until the worker closes its end or dies."""
        self._tell(b"ready")
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        while self._connected:
            # A worker that is stopped reads nothing: writing to it must never hold the guard up.
            self._flush()
            poller.register(self._worker, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
            for fd, _ in poller.poll(self._timeout()):
                if fd == self._wakeup:
                    os.read(fd, 4096)
                else:
                    self._receive()
            self._reap()
            self._watch_deadline()
            self._kill_some()

    def kill_everything(self) -> None:
        """Kill all descendants until none is left that may be killed."""
        self._expired = True
        self._hurry()
        while True:
            self._reap()
            if self._childless and (_LINUX or not self._launches):
                return
            self._strike()
            # sudo and the like are out of an ordinary user's reach: waiting for them would be for ever.
            if self._struck and not any(self._struck.values()):
                return
            time.sleep(self._pause)

    def _timeout(self) -> float | None:
        """How long to sleep, in milliseconds."""
        seconds = [_TICK] if self._over else []
        if self._launches and not self._expired and self._deadline < math.inf:
            seconds += [_TICK, max(self._deadline - _boottime(), 0.0)]
        if self._must_kill():
            seconds.append(max(self._next_pass - time.monotonic(), 0.0))
        # Rounded up: a fraction too early would spin.
        return int(min(seconds) * 1000) + 1 if seconds else None

    # Talking with the worker.

    def _receive(self) -> None:
        try:
            data, ancillary, flags, _ = self._worker.recvmsg(65536, _FD_SPACE, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return
        except ConnectionError:
            data, ancillary, flags = b"", [], 0
        self._connected = bool(data)
        for _, _, fds in ancillary:
            self._fds.extend(array.array("i", fds))
        if flags & socket.MSG_CTRUNC:
            # Which launch a pipe belongs to is known by their order only.
            raise RuntimeError("a pipe was lost on its way to the guard: all commands are killed")
        for frame in self._frames.feed(data):
            self._obey(frame)

    def _obey(self, frame: list[bytes]) -> None:
        match frame:
            case [b"feed", deadline]:
                self._deadline = float(deadline)
                self._expired = self._expired and self._deadline <= _boottime()
            case [b"launch", number, folder, count, *rest]:
                self._launch(int(number), folder, rest[: int(count)], rest[int(count) :])
            case [b"signal", number, signum]:
                self._signal(int(number), int(signum))
            case [b"kill", number]:
                self._condemn(int(number))

    def _tell(self, *fields: bytes | int) -> None:
        self._outgoing += pack(*(b"%d" % field if isinstance(field, int) else field for field in fields))

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._worker.send(self._outgoing)]
        except BlockingIOError:
            return
        except ConnectionError:
            self._connected = False

    # Launching.

    def _launch(self, number: int, folder: bytes, argv: list[bytes], env: list[bytes]) -> None:
        output = self._fds.popleft()
        os.set_inheritable(output, False)
        try:
            if self._deadline <= _boottime():
                self._tell(b"failed", number, b"deadline", 0)
            else:
                self._start(number, folder, argv, env, output)
        finally:
            os.close(output)

    def _start(self, number: int, folder: bytes, argv: list[bytes], env: list[bytes], output: int) -> None:
        step = b"folder"
        try:
            if folder:
                os.chdir(folder)
            step = b"program"
            self._set_mark(number)
            pid = _spawn(argv, dict(_split(item) for item in env), output)
        except OSError as error:
            self._tell(b"failed", number, step, error.errno or 0)
            return
        finally:
            if folder:
                os.fchdir(self._folder)
        self._launches[number] = self._by_pid[pid] = _Launch(number, pid)
        self._tell(b"started", number, pid)

    def _set_mark(self, number: int) -> None:
        # Where the hard limit was lowered, or the system has no such limit, parents and sessions must do.
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(_RLIMIT_LOCKS)[1]
            resource.setrlimit(_RLIMIT_LOCKS, (self._mark_base + number, hard))

    # Ending.

    def _signal(self, number: int, signum: int) -> None:
        launch = self._launches.get(number)
        # Once the leader is reaped its number may name a stranger's group.
        if launch is not None and launch.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(launch.pid, signum)
                if signum not in _STOPS:
                    # A stopped process would sleep through it.
                    os.killpg(launch.pid, signal.SIGCONT)

    def _condemn(self, number: int) -> None:
        if (launch := self._launches.get(number)) is not None:
            self._dying.add(launch)
            self._hurry()

    def _watch_deadline(self) -> None:
        if not self._expired and self._deadline <= _boottime():
            self._expired = True
            for launch in self._launches.values():
                launch.cut_off = launch.status is None
                # A later deadline lets new commands start, but spares none of these.
                self._dying.add(launch)
            self._hurry()

    def _hurry(self) -> None:
        self._pause, self._next_pass = _FIRST_PAUSE, 0.0

    def _must_kill(self) -> bool:
        return bool(self._dying) or (self._expired and (bool(self._launches) or not self._childless))

    def _kill_some(self) -> None:
        if self._must_kill() and time.monotonic() >= self._next_pass:
            self._strike()
            self._next_pass = time.monotonic() + self._pause

    def _strike(self) -> None:
        """One pass over the doomed; there is another until they are gone, for they may be forking."""
        before, self._struck = self._struck, {}
        # Orphans at once: one that forks and ends every few milliseconds is gone before a census is over.
        self._kill_doomed({pid: self._owner(pid) for pid in _own_children()})
        self._kill_doomed(self._census())
        news = self._struck.keys() - before.keys()
        self._pause = _FIRST_PAUSE if news else min(self._pause * 2, _LAST_PAUSE)

    def _kill_doomed(self, owners: dict[int, _Launch | None]) -> None:
        for pid, launch in owners.items():
            if self._expired or launch in self._dying:
                self._struck[pid] = _kill(pid)

    def _reap(self) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                launch = self._by_pid.get(ended[0])
                if launch is not None and launch.status is None:
                    launch.status = os.waitstatus_to_exitcode(ended[1])
                    self._over.append(launch)
            self._childless = False
        except ChildProcessError:
            self._childless = True
        if self._over:
            self._settle()

    def _settle(self) -> None:
        """Tell of the commands that have ended, and when nothing that they left behind lives any more."""
        alive = self._with_leftovers()
        for launch in self._over:
            if not launch.reported:
                self._tell(b"exited", launch.number, launch.status or 0, launch.cut_off, launch in alive)
                launch.reported = True
            elif launch not in alive:
                self._tell(b"gone", launch.number)
            if launch not in alive:
                self._forget(launch)
        self._over = [launch for launch in self._over if launch in alive]

    def _forget(self, launch: _Launch) -> None:
        del self._launches[launch.number]
        self._dying.discard(launch)
        if self._by_pid[launch.pid] is launch:
            del self._by_pid[launch.pid]

    # Whose is a process?

    def _with_leftovers(self) -> set[_Launch | None]:
        """The commands that orphans are left of. All of a command's are orphans once it has itself ended."""
        if not _LINUX:
            return {launch for launch in self._over if _group_exists(launch.pid)}
        if self._childless:
            return set()
        return {self._owner(pid) for pid in _own_children()}

    def _census(self) -> dict[int, _Launch | None]:
        """Every living descendant, parents first, and whose it is."""
        table = _read_table()
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in table.items():
            children.setdefault(parent, []).append(pid)
        found = {pid: self._owner(pid) for pid in children.get(os.getpid(), ())}
        if not _LINUX:
            # Orphans are no children of ours there, but may still be in their command's group.
            found |= {pid: self._by_pid[group] for pid, (_, group) in table.items() if group in self._by_pid}
        queue = deque(found)
        while queue:
            parent = queue.popleft()
            for pid in children.get(parent, ()):
                if pid not in found:
                    found[pid] = found[parent]
                    queue.append(pid)
        return found

    def _owner(self, pid: int) -> _Launch | None:
        """The command that this child of the guard belongs to."""
        launch = self._by_pid.get(pid)
        if launch is not None and launch.status is None:
            return launch
        mark = mark_of(pid)
        if mark is not None and 0 <= mark - self._mark_base < _MARKS:
            return self._launches.get(mark - self._mark_base)
        with contextlib.suppress(ProcessLookupError):
            if (launch := self._by_pid.get(os.getsid(pid))) is not None:
                return launch
        # An orphan that no sign is left on: while only one command is there it cannot be another's.
        return next(iter(self._launches.values())) if len(self._launches) == 1 else None


def _split(variable: bytes) -> tuple[bytes, bytes]:
    name, _, value = variable.partition(b"=")
    return name, value


def _group_exists(group: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True


def _wake_on_sigchld() -> int:
    """A file that turns readable when a child ends: poll() alone would miss one that ends just before it."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _adopt_orphans() -> None:
    if _LINUX and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot become a child subreaper: {os.strerror(code)}")


def main(fd: int, mark_base: int) -> None:
    """Be the guard of the worker at the other end of this socket. In a session of its own already."""
    worker = socket.socket(fileno=fd)
    worker.setblocking(False)
    worker.set_inheritable(False)
    # Ctrl-C, a terminal that hangs up and `kill` on the group are for the worker to answer.
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _adopt_orphans()
    guard = _Guard(worker, mark_base)
    try:
        guard.serve()
    finally:
        guard.kill_everything()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
