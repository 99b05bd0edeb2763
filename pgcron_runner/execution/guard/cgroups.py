"""A cgroup for each command with a memory limit, where the host has delegated cgroup v2 to the worker.

The limit itself is watched by `memory`, which lets a command tidy up; this is the net below it, in the kernel, for what
grows faster than one can watch. Without delegation (systemd: `Delegate=yes`) there is none, and nothing fails.
"""

from __future__ import annotations

import contextlib
import os

ROOT = "/sys/fs/cgroup"
_LEAF = "pgcron-worker"
# A command that is stopped for its memory may need some for tidying up.
_HARD_LIMIT = 1.25


class Cgroups:
    """The cgroups below `folder`, one a command."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def make(self, number: int, memory_limit: int) -> str | None:
        """A new cgroup for a command with this limit; None where the kernel does not let us."""
        folder = os.path.join(self._folder, f"pgcron-{os.getpid()}-{number}")
        try:
            os.mkdir(folder)
            _write(folder, "memory.max", hard_limit(memory_limit))
        except OSError:
            remove(folder)
            return None
        # Nothing useful is left of a command once the kernel has killed a part of it. Not every kernel knows both.
        for name, value in (("memory.oom.group", 1), ("memory.swap.max", 0)):
            with contextlib.suppress(OSError):
                _write(folder, name, value)
        return folder


def find(own: str | None = None) -> Cgroups | None:
    """Where this guard may make cgroups with a memory limit; None where it may not. `own`: the folder of its cgroup."""
    own = own or _own_folder()
    if own is None:
        return None
    for base in (own, os.path.dirname(own)):
        if _is_delegated(base):
            return Cgroups(base) if _enable_memory(base, inside=base == own) else None
    return None


def hard_limit(memory_limit: int) -> int:
    """The bytes at which the kernel kills a command with this limit."""
    return int(memory_limit * _HARD_LIMIT)


def open_procs(folder: str) -> int:
    """The file that a process writes 0 to in order to move into this cgroup."""
    return os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY)


def move(pid: int, folder: str) -> None:
    """Put a process that has not begun its work into a cgroup, if the kernel lets us."""
    with contextlib.suppress(OSError):
        _write(folder, "cgroup.procs", pid)


def was_out_of_memory(folder: str) -> bool:
    """Whether the kernel has killed in it for its memory."""
    with contextlib.suppress(OSError, ValueError):
        return any(int(value) > 0 for name, value in _read_pairs(folder, "memory.events") if name == "oom_kill")
    return False


def remove(folder: str) -> None:
    """Once nothing lives in it."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _own_folder() -> str | None:
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as lines:
        for line in lines:
            if line.startswith("0::/"):
                return os.path.normpath(ROOT + line[3:].rstrip("\n"))
    return None


def _is_delegated(folder: str) -> bool:
    # That root may write there does not mean that nobody else administers it; systemd says so in this attribute.
    try:
        return os.getxattr(folder, "user.delegate") == b"1"
    except (OSError, AttributeError):
        return False


def _enable_memory(base: str, *, inside: bool) -> bool:
    """Let cgroups below `base` have memory limits; then no process may be in it itself (`inside`)."""
    try:
        if "memory" not in _read(base, "cgroup.controllers").split():
            return False
        if inside:
            leaf = os.path.join(base, _LEAF)
            os.makedirs(leaf, exist_ok=True)
            for pid in (os.getppid(), os.getpid()):
                _write(leaf, "cgroup.procs", pid)
        _write(base, "cgroup.subtree_control", "+memory")
    except OSError:
        return False
    return True


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read()


def _read_pairs(folder: str, name: str) -> list[list[str]]:
    return [line.split() for line in _read(folder, name).splitlines()]


def _write(folder: str, name: str, value: int | str) -> None:
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(value))
