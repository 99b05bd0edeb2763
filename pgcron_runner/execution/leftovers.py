"""What a guard left that died: its commands are no descendants of ours any more, but still carry its marks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

from pgcron_runner.execution.guard import table


def kill_marked(mark_base: int, *, seconds: float) -> None:
    """Kill all that the guard with this base has started, as often as it takes, for so long at most."""
    patience = time.monotonic() + seconds
    while (pids := table.marked_processes(mark_base)) and time.monotonic() < patience:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                _kill_if_marked(pid, mark_base)
        time.sleep(0.005)


def kill_groups(leaders: Iterable[int]) -> None:
    """All that is to be had where processes carry no marks."""
    for pid in leaders:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _kill_if_marked(pid: int, mark_base: int) -> None:
    # Others reap these, so the number may change hands between the look and the signal; a pidfd does not.
    if sys.platform == "linux":
        handle = os.pidfd_open(pid)
        try:
            if table.launch_of(pid, mark_base) is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
