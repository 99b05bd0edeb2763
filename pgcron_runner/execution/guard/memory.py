"""The memory of commands that have a limit: of the whole tree, looked at several times a second."""

from __future__ import annotations

import contextlib
import time

from .launches import Event, Launch, Launches
from .table import descendants

_RELAXED, _TENSE = 0.25, 0.1  # seconds from look to look, while less than half of the limit is used, and after that
_SHARE = 20  # a look may take as much of the guard's time as one in so many
_KIB = 1024


class MemoryWatch:
    """Tells of each look that finds a command above its limit."""

    def __init__(self, launches: Launches) -> None:
        self._launches = launches
        self._next_look = 0.0

    def seconds_to_next_look(self) -> float | None:
        """None where no command has a limit."""
        if not self._launches.some_are_limited:
            return None
        return max(self._next_look - time.monotonic(), 0.0)

    def step(self) -> list[Event]:
        """A look, if it is time for one: `memory` with the bytes in use, for each that uses too much."""
        began = time.monotonic()
        if not self._launches.some_are_limited or began < self._next_look:
            return []
        events: list[Event] = []
        pause = _RELAXED
        for launch, pids in self._processes().items():
            used = used_by(pids, launch.memory_limit)
            if used > launch.memory_limit:
                events.append((b"memory", launch.number, used))
            if used > launch.memory_limit // 2:
                pause = _TENSE
        now = time.monotonic()
        self._next_look = now + max(pause, (now - began) * _SHARE)
        return events

    def _processes(self) -> dict[Launch, list[int]]:
        """Those of the commands that have a limit."""
        found: dict[Launch, list[int]] = {}
        for pid, launch in self._launches.of_children().items():
            if launch is not None and launch.memory_limit:
                found.setdefault(launch, []).extend((pid, *descendants(pid)))
        return found


def used_by(pids: list[int], limit: int) -> int:
    """The bytes that these processes use, in memory and swapped out; exact only where it is more than `limit`.

    What they share, as forked processes do, counts once. But to ask for that takes the kernel 16 ms a GB (measured),
    and not to ask can only make it more: so it is asked for only where it decides.
    """
    resident = sum(_resident(pid) for pid in pids)
    if resident <= limit or len(pids) == 1:
        return resident
    return sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):  # it has ended
        return _sum_of(f"/proc/{pid}/status", b"VmRSS:", b"VmSwap:")
    return 0


def _proportional(pid: int) -> int:
    try:
        return _sum_of(f"/proc/{pid}/smaps_rollup", b"Pss:", b"SwapPss:")
    except OSError:  # it has ended, or is a program of another user
        return _resident(pid)


def _sum_of(path: str, *names: bytes) -> int:
    with open(path, "rb") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(names)) * _KIB
