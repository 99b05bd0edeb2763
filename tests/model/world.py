"""True time, and an event loop for each simulated process. asyncio's own tasks run on it, and no real time passes."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

Callback = Callable[..., object]
# Of a process, at one moment.
_MOST_STEPS = 20_000


class World:
    """What happens, in the order of true time (seconds). All chance comes from `rng`."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.story: list[tuple[float, str]] = []
        self.due: deque[Callback] = deque()
        self._heap: list[tuple[float, int, Callback, tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, callback: Callback, *args: Any) -> None:
        """Calls it at that time, or now where that is past."""
        self._count += 1
        heapq.heappush(self._heap, (time if time > self.now else self.now, self._count, callback, args))

    def after(self, seconds: float, callback: Callback, *args: Any) -> None:
        """Calls it so many seconds from now."""
        self.at(self.now + seconds, callback, *args)

    def run(self, until: float) -> None:
        """Lets time pass. What is `due` is done before anything later."""
        heap, due = self._heap, self.due
        while heap and heap[0][0] <= until:
            self.now, _, callback, args = heapq.heappop(heap)
            callback(*args)
            while due:
                due.popleft()()
        self.now = until

    def say(self, text: str) -> None:
        """A line of the story."""
        self.story.append((self.now, text))


class Host:
    """A machine with clocks of its own: they run at `rate`, and the monotonic one stops while it is suspended."""

    def __init__(self, world: World, name: str, *, rate: float = 1.0, booted: float = 1000.0) -> None:
        self.world, self.name, self.rate, self.booted = world, name, rate, booted
        self.is_suspended = False
        self.slept = 0.0
        self.suspended_at = self.resumed_at = 0.0
        self._waiting: list[tuple[Callback, tuple[Any, ...]]] = []

    def boottime(self) -> float:
        """CLOCK_BOOTTIME: what leases are counted on."""
        return self.booted + self.world.now * self.rate

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC: what timers are counted on."""
        awake = (self.suspended_at if self.is_suspended else self.world.now) - self.slept
        return self.booted + awake * self.rate

    def suspend(self) -> None:
        """Nothing on it goes on, and nothing that happens to it is noticed."""
        self.is_suspended, self.suspended_at = True, self.world.now

    def resume(self) -> None:
        """It goes on as if nothing had happened."""
        self.is_suspended, self.resumed_at = False, self.world.now
        self.slept += self.world.now - self.suspended_at
        waiting, self._waiting = self._waiting, []
        for callback, args in waiting:
            callback(*args)

    def when_awake(self, callback: Callback, *args: Any) -> None:
        """Now, or as soon as it is resumed."""
        if self.is_suspended:
            self._waiting.append((callback, args))
        else:
            callback(*args)


class Handle:
    """What asyncio expects of the handle of a call, at once or at a time."""

    __slots__ = ("_when", "args", "callback")

    def __init__(self, callback: Callback, args: tuple[Any, ...], when: float = 0.0) -> None:
        self._when, self.args = when, args
        self.callback: Callback | None = callback

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None


class Process:
    """A process on a host, as an event loop: it can be stopped (SIGSTOP), go on, be told to end, and be killed."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.world, self.name = host, host.world, name
        self.is_stopped = self.is_dead = False
        self._ready: deque[Handle] = deque()
        self._is_due = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._handlers: dict[int, tuple[Callback, tuple[Any, ...]]] = {}

    # What happens to it.

    def stop(self) -> None:
        self.is_stopped = True

    def cont(self) -> None:
        self.is_stopped = False
        self._make_due()

    def signal(self, number: int) -> None:
        """Where it has a handler."""
        if number in self._handlers:
            callback, args = self._handlers[number]
            self.call_soon(callback, *args)

    def kill(self) -> None:
        """Its code goes on nowhere, not even in a `finally`."""
        self.is_dead = True
        self._ready.clear()
        outside = events._get_running_loop()
        events._set_running_loop(cast("asyncio.AbstractEventLoop", self))
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        events._set_running_loop(outside)
        self._tasks.clear()

    def _make_due(self) -> None:
        if self._ready and not self._is_due and not (self.is_stopped or self.is_dead):
            self._is_due = True
            self.world.due.append(self._run)

    def _run(self) -> None:
        self._is_due = False
        if self.is_stopped or self.is_dead:
            return
        if self.host.is_suspended:
            self._is_due = True
            self.host.when_awake(self._run)
            return
        ready, steps = self._ready, 0
        events._set_running_loop(cast("asyncio.AbstractEventLoop", self))
        try:
            while ready:
                handle = ready.popleft()
                if handle.callback is not None:
                    handle.callback(*handle.args)
                if (steps := steps + 1) > _MOST_STEPS:
                    raise AssertionError(f"{self.name} does not come to rest at {self.world.now:.3f}")
        finally:
            events._set_running_loop(None)

    def _ring(self, timer: Handle) -> None:
        if timer.callback is None or self.is_dead:
            return
        # The clock of timers stands still while the host is suspended.
        left = timer.when() - self.time()
        if self.host.is_suspended:
            self.host.when_awake(self._ring, timer)
        elif left > 0:
            self._set(timer, left)
        else:
            self._ready.append(timer)
            self._make_due()

    def _set(self, timer: Handle, seconds: float) -> None:
        # A clock has steps: no timer rings before it has moved on.
        self.world.after(max(seconds / self.host.rate, 1e-6), self._ring, timer)

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.host.monotonic()

    def call_soon(self, callback: Callback, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(callback, args)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._is_due:
                self._make_due()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callback, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(self, when: float, callback: Callback, *args: Any, context: Any = None) -> Any:
        timer = Handle(callback, args, when)
        self._set(timer, when - self.time())
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: Any = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=cast("asyncio.AbstractEventLoop", self), name=name)
        self._tasks.append(task)
        return task

    def add_signal_handler(self, sig: int, callback: Callback, *args: Any) -> None:
        self._handlers[sig] = (callback, args)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            raise AssertionError(context.get("message")) from context.get("exception")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def _close(coroutine: Any) -> None:
    """Until it has stopped awaiting things on its way out: it is as dead as its process."""
    for _ in range(20):
        with suppress(Exception):
            coroutine.close()
            return
