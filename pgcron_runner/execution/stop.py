"""The one way in which a run is stopped from outside. It knows no kind of command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pgcron_runner.model import StopReason


class Stop:
    """Asked for by cancel, timeout, drain or a lost lease; obeyed by whatever executes the run.

    `event`: stop in an orderly way (TERM, grace, KILL). `now`: skip the grace.
    """

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.event = asyncio.Event()
        self.now = asyncio.Event()
        self._cancelling: asyncio.Task[object] | None = None

    def request(self, reason: StopReason, *, now: bool = False) -> None:
        """The first reason stays; a later request can only make it faster."""
        if now:
            self.now.set()
        if self.reason is not None:
            return
        self.reason = reason
        self.event.set()
        if self._cancelling is not None:
            self._cancelling.cancel()

    @contextmanager
    def cancels_this_task(self) -> Iterator[None]:
        """Within it a stop cancels the current task; the cancellation ends here, and only its own.

        The caller has seen that nothing was asked for yet, and looks at `reason` again afterwards. A cancellation
        from elsewhere goes through.
        """
        task = asyncio.current_task()
        assert task is not None
        assert self.reason is None, "a run that is to be stopped is not begun"
        self._cancelling = task
        try:
            yield
        except asyncio.CancelledError:
            if self.reason is None or task.uncancel() > 0:
                raise
        finally:
            self._cancelling = None
