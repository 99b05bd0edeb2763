"""Ctrl-C and its kin for commands that have something to take down: one interrupt, and peace while that is done."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Interrupts:
    """The first Ctrl-C, TERM or HUP raises KeyboardInterrupt in the block; after `hold`, only at its end.

    For commands that end with the block: further ones disturb neither the clearing up nor the way out.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._heard = False
        self._held = False
        self._cancel: Callable[[], object] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As `asyncio.run`; an interrupt cancels the coroutine, once, and is raised when that is through."""
        try:
            return asyncio.run(self._cancellable(coroutine))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def hold(self) -> None:
        """From now on things are taken down. Also after others have changed the handlers."""
        self._held = True
        self._install()

    def __enter__(self) -> Self:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.getsignal(number) for number in numbers}
        self._install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if error is None:
                raise KeyboardInterrupt

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._on_interrupt if number == signal.SIGINT else _as_interrupt)

    async def _cancellable(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await coroutine
        finally:
            self._cancel = None

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        first, self._heard = not self._heard, True
        if self._held or not first:
            return
        if self._cancel is None:
            raise KeyboardInterrupt
        self._cancel()


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    # Raised anew, since an event loop may have a handler of its own for Ctrl-C.
    signal.raise_signal(signal.SIGINT)
