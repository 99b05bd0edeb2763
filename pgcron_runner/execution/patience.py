"""Notices a guard that does not answer: one that is stopped or hung kills nobody when it must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Patience:
    """Calls `give_up` when answers are owed and nothing at all was heard for so many seconds.

    However much is asked and answered, the clock is looked at once in all that time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, give_up: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._give_up = give_up
        self._owed = 0
        self._silent_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def asked(self) -> None:
        """One more answer is owed."""
        if self._owed == 0:
            self._silent_since = self._loop.time()
        self._owed += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def heard(self, answers: int) -> None:
        """Something came, with so many answers in it."""
        # What was asked before there was a loop to wait in is answered too.
        self._owed = max(self._owed - answers, 0)
        self._silent_since = self._loop.time()

    def end(self) -> None:
        """Nothing is owed any more."""
        self._owed = 0
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._owed == 0:
            return
        left = self._silent_since + self._seconds - self._loop.time()
        if left <= 0:
            self._give_up()
        else:
            self._timer = self._loop.call_later(left, self._look)
