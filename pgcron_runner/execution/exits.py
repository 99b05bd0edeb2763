"""SystemExit and KeyboardInterrupt of a job's own tasks: anywhere else they end the event loop, and the worker with it.

It must not know what a job is, beyond that it runs within `in_job`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pgcron_runner.errors import PgcronError

_IN_JOB: ContextVar[bool] = ContextVar("pgcron_in_job", default=False)


class Exited(PgcronError):
    """A task of the job's raised SystemExit or KeyboardInterrupt: `exit`."""

    def __init__(self, exit_: BaseException) -> None:
        super().__init__(f"{type(exit_).__name__}: {exit_}")
        self.exit = exit_


@contextmanager
def in_job() -> Iterator[None]:
    """Tasks that are made within it, and by those, are a job's own."""
    token = _IN_JOB.set(True)
    try:
        yield
    finally:
        _IN_JOB.reset(token)


def contain_exits() -> None:
    """From now on exits of a job's own tasks on the running loop are errors that nobody else hears of."""
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_make_task)


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(_Contained(coroutine) if _IN_JOB.get() else coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """The same coroutine, but an exit comes out of it as an Exited."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, error[-1] if isinstance(error[-1], BaseException) else error[0])

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    @staticmethod
    def _step(step: Callable[[Any], Any], value: Any) -> Any:
        try:
            return step(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise Exited(error) from error
