"""Killing without the guard: what it left when it died, and who it is that outlives SIGKILL.

Commands are no descendants of the worker, but they carry marks.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from pgcron_runner.execution.guard import table

_PAUSE = 0.001


def kill_all(mark_base: int, *, seconds: float) -> None:
    """Kill all that the dead guard with this base has started, as often as it takes, for so long at most."""
    _kill(range(mark_base + 1, mark_base + table.MARKS), os.getpid(), seconds)


def kill_one(mark: int, guard_pid: int, *, seconds: float) -> str | None:
    """The same for one command of a living guard. In words who lives on all the same; None where nobody does."""
    survivors = ", ".join(filter(None, map(_describe, _kill(range(mark, mark + 1), guard_pid, seconds))))
    if survivors or os.path.exists("/proc/1"):
        return survivors or None
    return "perhaps a process of another user, which is hidden from this worker"


def kill_groups(leaders: Iterable[int]) -> None:
    """All that is to be had where processes carry no marks."""
    for pid in leaders:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _kill(marks: range, parent: int, seconds: float) -> list[int]:
    """Those that are left in the end. `parent` is whose children their orphans become."""
    patience = time.monotonic() + seconds
    while True:
        # Orphans at once: one that forks and ends every few milliseconds is gone before the table is read.
        orphans = [pid for pid in table.children_of(parent) if _kill_if_marked(pid, marks) and not _reap(pid)]
        living = [pid for pid in table.read_table() if _kill_if_marked(pid, marks)]
        if not (orphans or living) or time.monotonic() > patience:
            return living
        time.sleep(_PAUSE)


def _reap(pid: int) -> bool:
    """Whether it has ended; one that is another's to take leave of counts as such."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    return True


def _has_mark(pid: int, marks: range) -> bool:
    mark = table.mark_of(pid)
    # Looking for None in it would take a range all of its numbers.
    return mark is not None and mark in marks


def _describe(pid: int) -> str | None:
    """`sleep (process 4711 of root)`; None if it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        name = (folder / "comm").read_text(errors="replace").strip()
        uid = folder.stat().st_uid
        stat = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None
    waits = ", which waits for a disk or a network" if stat.rpartition(")")[2].split()[0] == "D" else ""
    return f"{name} (process {pid} of {_user_name(uid)}{waits})"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _kill_if_marked(pid: int, marks: range) -> bool:
    """Whether it is one of those; perhaps one that may not be killed."""
    if sys.platform != "linux" or not _has_mark(pid, marks):
        return False
    with contextlib.suppress(OSError):
        # Others reap these, so the number may change hands between the look and the signal; a pidfd does not.
        handle = os.pidfd_open(pid)
        try:
            if _has_mark(pid, marks):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    return True
