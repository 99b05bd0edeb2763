"""The commands that were started and are not over, and whose of them a process is."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator

from . import cgroups
from .table import LINUX, group_exists, launch_of, own_children, read_table


class Launch:
    """A command from its start until nothing of it lives."""

    __slots__ = ("cgroup", "cut_off", "memory_limit", "number", "pid", "reported", "status")

    def __init__(self, number: int, pid: int, memory_limit: int, cgroup: str | None) -> None:
        self.number = number
        self.pid = pid
        self.memory_limit = memory_limit  # in bytes; 0: none
        self.cgroup = cgroup  # its folder, where it has one of its own
        self.status: int | None = None  # as Popen.returncode: minus the signal, once it has ended
        self.cut_off = False
        self.reported = False


Event = tuple[bytes | int, ...]


class Launches:
    """Those of one guard, by their numbers and by the processes that lead them."""

    def __init__(self, mark_base: int) -> None:
        self.childless = True
        self._mark_base = mark_base
        self._launches: dict[int, Launch] = {}
        self._by_pid: dict[int, Launch] = {}
        self._over: list[Launch] = []
        self._limited = 0

    def __iter__(self) -> Iterator[Launch]:
        return iter(self._launches.values())

    def __len__(self) -> int:
        return len(self._launches)

    @property
    def some_left_something(self) -> bool:
        """Whether a command has ended, but not all that it left behind: no signal tells when that does."""
        return bool(self._over)

    @property
    def some_are_limited(self) -> bool:
        """Whether a command has a memory limit."""
        return self._limited > 0

    def add(self, number: int, pid: int, *, memory_limit: int = 0, cgroup: str | None = None) -> None:
        """A command was started, or adopted."""
        self._launches[number] = self._by_pid[pid] = Launch(number, pid, memory_limit, cgroup)
        self._limited += memory_limit > 0

    def get(self, number: int) -> Launch | None:
        """The command with this number, unless it is over."""
        return self._launches.get(number)

    def leads(self, pid: int) -> bool:
        """Whether a command that has not ended has this process."""
        return (launch := self._by_pid.get(pid)) is not None and launch.status is None

    # The end.

    def reap(self) -> list[Event]:
        """Take leave of all children that have ended; what the worker is to be told: `exited` and `gone`."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if self.leads(ended[0]):
                    launch = self._by_pid[ended[0]]
                    launch.status = os.waitstatus_to_exitcode(ended[1])
                    self._over.append(launch)
            self.childless = False
        except ChildProcessError:
            self.childless = True
        return self._settle() if self._over else []

    def _settle(self) -> list[Event]:
        events: list[Event] = []
        alive = self._with_leftovers()
        for launch in self._over:
            if not launch.reported:
                if launch.cgroup is not None and cgroups.was_out_of_memory(launch.cgroup):
                    events.append((b"memory", launch.number, cgroups.hard_limit(launch.memory_limit)))
                events.append((b"exited", launch.number, launch.status or 0, launch.cut_off, launch in alive))
                launch.reported = True
            elif launch not in alive:
                events.append((b"gone", launch.number))
            if launch not in alive:
                self._forget(launch)
        self._over = [launch for launch in self._over if launch in alive]
        return events

    def _forget(self, launch: Launch) -> None:
        del self._launches[launch.number]
        self._limited -= launch.memory_limit > 0
        if launch.cgroup is not None:
            cgroups.remove(launch.cgroup)
        if self._by_pid[launch.pid] is launch:
            del self._by_pid[launch.pid]

    # Whose is a process?

    def _with_leftovers(self) -> set[Launch | None]:
        """The commands that orphans are left of. All of a command's are orphans once it has itself ended."""
        if not LINUX:
            return {launch for launch in self._over if group_exists(launch.pid)}
        if self.childless:
            return set()
        return set(self.of_children().values())

    def of_children(self) -> dict[int, Launch | None]:
        """The children of the guard, and whose each is."""
        return {pid: self._owner(pid) for pid in own_children()}

    def of_descendants(self) -> dict[int, Launch | None]:
        """Every living descendant, parents first, and whose it is."""
        table = read_table()
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in table.items():
            children.setdefault(parent, []).append(pid)
        found = {pid: self._owner(pid) for pid in children.get(os.getpid(), ())}
        if not LINUX:
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

    def _owner(self, pid: int) -> Launch | None:
        """The command that this child of the guard belongs to."""
        if self.leads(pid):
            return self._by_pid[pid]
        number = launch_of(pid, self._mark_base)
        if number is not None:
            return self._launches.get(number)
        with contextlib.suppress(ProcessLookupError):
            if (launch := self._by_pid.get(os.getsid(pid))) is not None:
                return launch
        # An orphan that no sign is left on: while only one command is there it cannot be another's.
        return next(iter(self._launches.values())) if len(self._launches) == 1 else None
