"""Killing what is doomed, pass after pass, until nothing of it lives: it may be forking all the while."""

from __future__ import annotations

import time

from .launches import Launch, Launches
from .table import LINUX, kill

_FIRST_PAUSE, _LAST_PAUSE = 0.001, 0.25  # between two passes


class Killer:
    """`all_are_doomed` while the deadline has passed: then also what belongs to no command dies."""

    def __init__(self, launches: Launches) -> None:
        self.all_are_doomed = False
        self._launches = launches
        self._doomed: set[Launch] = set()
        self._pause = _FIRST_PAUSE
        self._next_pass = 0.0
        self._struck: dict[int, bool] = {}  # in the last pass, and whether it could be

    def condemn(self, launch: Launch) -> None:
        """Kill this command and all that it started; nothing spares it any more."""
        self._doomed.add(launch)
        self._hurry()

    def condemn_all(self) -> None:
        """Kill every command, and every other descendant until `all_are_doomed` is taken back."""
        self.all_are_doomed = True
        self._doomed.update(self._launches)
        self._hurry()

    def seconds_to_next_pass(self) -> float | None:
        """None where nobody is to be killed."""
        return max(self._next_pass - time.monotonic(), 0.0) if self._has_work() else None

    def step(self) -> None:
        """A pass, if it is time for one."""
        if self._has_work() and time.monotonic() >= self._next_pass:
            self._strike()
            self._next_pass = time.monotonic() + self._pause

    def finish(self) -> None:
        """Kill all descendants until none is left that may be killed."""
        self.condemn_all()
        while True:
            self._launches.reap()
            if self._launches.childless and (LINUX or not self._launches):
                return
            self._strike()
            # sudo and the like are out of an ordinary user's reach: waiting for them would be for ever.
            if self._struck and not any(self._struck.values()):
                return
            time.sleep(self._pause)

    def _hurry(self) -> None:
        self._pause, self._next_pass = _FIRST_PAUSE, 0.0

    def _has_work(self) -> bool:
        if self._doomed:
            self._doomed.intersection_update(self._launches)
        if self.all_are_doomed:
            return bool(self._launches) or not self._launches.childless
        return bool(self._doomed)

    def _strike(self) -> None:
        before, self._struck = self._struck, {}
        # Orphans at once: one that forks and ends every few milliseconds is gone before a census is over.
        self._kill_doomed(self._launches.of_children())
        self._kill_doomed(self._launches.of_descendants())
        news = self._struck.keys() - before.keys()
        self._pause = _FIRST_PAUSE if news else min(self._pause * 2, _LAST_PAUSE)

    def _kill_doomed(self, owners: dict[int, Launch | None]) -> None:
        for pid, launch in owners.items():
            if self.all_are_doomed or launch in self._doomed:
                self._struck[pid] = kill(pid)
