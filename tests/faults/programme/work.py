"""What the Python jobs of the programme do: they write the same marks as `mark.c`."""

from __future__ import annotations

import os
import time

from pgcron_runner import run


def child(seconds: float) -> None:
    """In a process of its own."""
    _mark(seconds)


def inside(seconds: float) -> None:
    """In a thread of the worker, which nobody can end from outside."""
    _mark(seconds)


def _mark(seconds: float) -> None:
    fd = os.open(os.environ["TRUTH"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        until = _boottime() + seconds
        _say(fd, "begin")
        while (left := until - _boottime()) > 0:
            time.sleep(min(left, 0.05))
            _say(fd, "alive")
        _say(fd, "end")
    finally:
        os.close(fd)


def _say(fd: int, word: str) -> None:
    os.write(fd, f"{word} {run.id} {_boottime():.6f} 0 {run.job}\n".encode())


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
