"""Bounds for what others have written and we run: expressions that mask, templates. It knows nothing of either."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class TookTooLong(Exception):
    """it took too long"""


@contextmanager
def limited(seconds: float, *, memory: int | None = None) -> Iterator[None]:
    """Raises TookTooLong within the block after so much time of the processor, MemoryError after so many more bytes.

    Only the main thread can be interrupted; in others nothing is bounded. A regular expression is interrupted as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))
        with _memory_limited(memory):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise TookTooLong("it took too long")


@contextmanager
def _memory_limited(memory: int | None) -> Iterator[None]:
    size = _address_space()
    if memory is None or size is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = size + memory if soft == resource.RLIM_INFINITY else min(size + memory, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Bytes that this process has now; None where there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return None
