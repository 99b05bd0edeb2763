"""The one loop that all duties run in: step, sleep until it is time or somebody wakes it, step again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from pgcron_runner.database import DatabaseError
from pgcron_runner.errors import DatabaseRefused, DatabaseUnavailable
from pgcron_runner.logs import get_logger

log = get_logger(__name__)

Step = Callable[[], Awaitable[float | None]]
"""Does one round; returns the seconds to sleep, None for the loop's own interval."""

_LONGEST_PAUSE = 30.0


class Loop:
    """Runs a step again and again. One that fails is logged with its consequence and tried again, later each time."""

    def __init__(self, name: str, step: Step, *, interval: float, delay: float = 0.0) -> None:
        self.name = name
        self._step = step
        self._interval = interval
        self._delay = delay
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Ends the present or next sleep at once."""
        self._awake.set()

    async def run(self) -> None:
        """Until cancelled. `delay` staggers the first step, so that not all workers do the same at the same time."""
        await self._sleep(self._delay)
        failures = 0
        while True:
            self._awake.clear()
            try:
                pause = await self._step()
                failures = 0
            except (DatabaseUnavailable, DatabaseRefused):
                # Said once by the session, which also waits with growing pauses when it is used next.
                pause = 0.05
            except DatabaseError as error:
                failures += 1
                pause = min(0.5 * 2 ** min(failures, 10), _LONGEST_PAUSE)
                log.warning(
                    "step_failed", loop=self.name, error=str(error).strip(), consequence=f"tried again in {pause:g} s"
                )
            except Exception:
                failures += 1
                pause = min(0.5 * 2 ** min(failures, 10), _LONGEST_PAUSE)
                log.exception("step_failed", loop=self.name, consequence=f"tried again in {pause:g} s")
            if pause is None:
                # A little jitter keeps the workers from marching in step.
                pause = self._interval * random.uniform(0.9, 1.0)  # noqa: S311 - no secret
            await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass
