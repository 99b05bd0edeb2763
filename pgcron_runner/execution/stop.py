"""The one way in which a run is stopped from outside. It knows no kind of command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pgcron_runner.model import StopReason


class Stop:
    """Asked for by cancel, timeout, drain or a lost lease; obeyed by whatever executes the run.

    `event`: stop in an orderly way (TERM, grace, KILL). `now`: skip the grace.
    """

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._urgent = False
        # Made when somebody asks for them: most runs of a busy worker never do.
        self._event: asyncio.Event | None = None
        self._now: asyncio.Event | None = None
        self._heed: Callable[[], object] | None = None

    @property
    def event(self) -> asyncio.Event:
        """Set once a stop was asked for."""
        if self._event is None:
            self._event = _event(is_set=self.reason is not None)
        return self._event

    @property
    def now(self) -> asyncio.Event:
        """Set once a stop without grace was asked for."""
        if self._now is None:
            self._now = _event(is_set=self._urgent)
        return self._now

    def request(self, reason: StopReason, *, now: bool = False) -> None:
        """The first reason stays; a later request can only make it faster."""
        if now:
            self._urgent = True
            if self._now is not None:
                self._now.set()
        if self.reason is not None:
            return
        self.reason = reason
        if self._event is not None:
            self._event.set()
        if self._heed is not None:
            self._heed()

    @contextmanager
    def calls(self, heed: Callable[[], object]) -> Iterator[None]:
        """Within it a stop calls `heed`, once; where one was asked for before, at the entrance."""
        assert self._heed is None, "a run listens for its stop in one place at a time"
        self._heed = heed
        try:
            if self.reason is not None:
                heed()
            yield
        finally:
            self._heed = None

    @contextmanager
    def cancels_this_task(self, then: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Within it a stop cancels the current task, and calls `then`; the cancellation ends here, and only its own.

        The caller has seen that nothing was asked for yet, and looks at `reason` again afterwards: a body that
        swallowed its cancellation ends like one that did not. A cancellation from elsewhere goes through.
        """
        task = asyncio.current_task()
        assert task is not None
        assert self.reason is None, "a run that is to be stopped is not begun"
        cancelled = False

        def cancel() -> None:
            nonlocal cancelled
            cancelled = task.cancel()
            then()

        try:
            with self.calls(cancel):
                yield
        except asyncio.CancelledError:
            if not cancelled or task.uncancel() > 0:
                raise
        except BaseException:
            if cancelled:
                task.uncancel()
            raise
        else:
            if cancelled:
                task.uncancel()

    async def is_requested_within(self, seconds: float) -> bool:
        """Waits that long, or until a stop is asked for; whether it was."""
        return await _is_set_within(self.event, seconds)

    async def is_urgent_within(self, seconds: float) -> bool:
        """The same for a stop without grace."""
        return await _is_set_within(self.now, seconds)


def _event(*, is_set: bool) -> asyncio.Event:
    event = asyncio.Event()
    if is_set:
        event.set()
    return event


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
