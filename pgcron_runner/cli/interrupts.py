"""Ctrl-C and its kin for commands that have something to take down: one interrupt, and peace while that is done."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Ctrl-C, TERM and HUP raise KeyboardInterrupt; from `hold` on, at the end of the block.

    For commands that end after it: once one was heard, no other disturbs the way out.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._noted = False

    def hold(self) -> None:
        """From now on an interrupt is only noted."""
        signal.signal(signal.SIGINT, self._note)

    def __enter__(self) -> Self:
        self._handle(signal.SIGINT, signal.default_int_handler)
        self._handle(signal.SIGTERM, _as_interrupt)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            self._handle(signal.SIGHUP, _as_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._noted or isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if error is None:
                raise KeyboardInterrupt

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], object]) -> None:
        self._before[number] = signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
