"""What the operating system tells about processes: parents, groups, and the marks of their launches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import sys
import time

LINUX = sys.platform == "linux"
MARKS = 1 << 36  # of one guard: at a thousand launches a second they last for two years
_RLIMIT_LOCKS = 10
_PR_SET_CHILD_SUBREAPER = 36
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """As in clock.py, which cannot be imported here."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def new_mark_base() -> int:
    """A number to count marks from; two guards of one host share it with a chance of 1 in 100 million."""
    return (int.from_bytes(os.urandom(4), "big") >> 5) * MARKS


def set_mark(mark: int) -> None:
    """Mark this process and all that it starts from now on."""
    # Where the hard limit was lowered, or the system has no such limit, parents and sessions must do.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (mark, _hard_limit()))


@functools.cache
def _hard_limit() -> int:
    return resource.getrlimit(_RLIMIT_LOCKS)[1]


def mark_of(pid: int) -> int | None:
    """The mark that this process inherited, None where it has none or has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", "rb") as limits:
        for line in limits:
            if line.startswith(b"Max file locks"):
                soft = line.split()[3]
                return int(soft) if soft.isdigit() else None
    return None


def launch_of(pid: int, mark_base: int) -> int | None:
    """The number of the launch that this process descends from, if the guard with this base launched it."""
    mark = mark_of(pid)
    return mark - mark_base if mark is not None and 0 <= mark - mark_base < MARKS else None


def read_table() -> dict[int, tuple[int, int]]:
    """Parent and process group of each living process."""
    if not LINUX:
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


def own_children() -> list[int]:
    """The children of this process, also those that have ended and wait to be reaped."""
    return children_of(os.getpid())


def children_of(pid: int) -> list[int]:
    """The same for any process that starts its children from its first thread, as orphans are brought to."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:
            return [int(child) for child in children.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [child for child, (parent, _) in read_table().items() if parent == pid]


def adopt_orphans() -> None:
    """From now on orphans below this process become its children, and not those of the first process of all."""
    if LINUX and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot become a child subreaper: {os.strerror(code)}")


def descendants(pid: int) -> list[int]:
    """The children of a process and theirs, without reading of every process of the host; some may be missed."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as children:
                    found += [int(child) for child in children.read().split()]
    return found[1:]


def group_exists(group: int) -> bool:
    """Whether any process is in this group."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True


def kill(pid: int) -> bool:
    """SIGKILL; False where this user may not kill it."""
    # The number was read a moment ago: a stranger has it only if the host used up all others since.
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True
