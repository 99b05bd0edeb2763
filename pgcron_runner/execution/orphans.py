"""Taking leave of orphans that nobody awaits: they come to a worker as the one whom orphans are brought to.

There are few: those that a guard left that was killed, and, where the worker is the first process of a container, all
that others started there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from pgcron_runner.execution.guard import table

_PAUSE = 5.0


def reap_orphans(loop: asyncio.AbstractEventLoop, *, spare: int) -> None:
    """From now on every child that has been dead for some seconds is nobody's; `spare` is one that is awaited."""
    _reap(loop, spare, frozenset())


def _reap(loop: asyncio.AbstractEventLoop, spare: int, before: frozenset[int]) -> None:
    dead = frozenset(pid for pid in table.own_children() if pid != spare and _has_ended(pid))
    for pid in dead & before:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    loop.call_later(_PAUSE, _reap, loop, spare, dead - before)


def _has_ended(pid: int) -> bool:
    # Without reaping: who started it may be about to ask how it ended.
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False
