"""Sees a launched command through to its end, asked for or not, and tells the story of it. It knows no kind of job."""

from __future__ import annotations

import asyncio
import math
import signal
from dataclasses import replace

from pgcron_runner.execution.commands import ExitStatus
from pgcron_runner.execution.output import storable
from pgcron_runner.execution.process import Process
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Output, Status, StopReason, Task

_DRAIN = 2.0
_LAST_BREATH = 0.1
_MB = 1 << 20
# So far above its memory limit it is growing too fast to be given a grace.
_FAR_ABOVE = 1.25
_LEFT_OVER = "left processes running in the background; they were killed"
_CUT_OFF = "killed by the guard: this worker could not renew its lease in time"


async def follow(process: Process, task: Task, stop: Stop) -> Outcome:
    """The outcome, once the command has ended, its output is complete, and nothing that it started lives any more.

    What it left in the background may hold the output for two seconds more and is then killed. A stop means TERM to its
    process group, then, after `task.kill_grace` or as soon as the stop is urgent, KILL to all that it started. To use
    more memory than `task.memory_limit_mb` is a reason to be stopped. If the asyncio task is cancelled, all is killed
    without waiting. Closes the process.
    """
    memory = _MemoryLimit(task, stop)
    process.on_excess = memory.exceeded
    try:
        outcome = await _follow(process, task.kill_grace.total_seconds(), stop.event, stop.now)
        return memory.told_in(outcome)
    finally:
        # Costs nothing when all is over; on cancellation it is all that is left to do.
        process.request_kill()
        process.close()


def failed(error: str, output: Output | None = None) -> Outcome:
    """A failure of our own making, or one that has no exit code."""
    return Outcome(Status.FAILED, error=storable(error), output=output)


class _MemoryLimit:
    """Stops a run that uses more than its limit, and remembers how much that was."""

    def __init__(self, task: Task, stop: Stop) -> None:
        self._limit_mb = task.memory_limit_mb or 0
        self._stop = stop
        self._peak = 0

    def exceeded(self, used: int) -> None:
        self._peak = max(self._peak, used)
        self._stop.request(StopReason.MEMORY, now=used >= self._limit_mb * _MB * _FAR_ABOVE)

    def told_in(self, outcome: Outcome) -> Outcome:
        if self._stop.reason is not StopReason.MEMORY or outcome.status is Status.SUCCEEDED:
            return outcome
        # Rounded up: the figure is to be more than the limit.
        used = math.ceil(self._peak / _MB)
        words = f"it used {used:,} MB of memory, more than its limit of {self._limit_mb:,} MB"
        return replace(outcome, reason="; ".join(filter(None, [words, outcome.reason])))


async def _follow(process: Process, grace: float, stop: asyncio.Event, stop_now: asyncio.Event) -> Outcome:
    await _first_of(process.exited, stop, stop_now)
    stopped = not process.exited.is_set()
    if stopped:
        await _terminate(process, grace, stop_now)
    else:
        await _first_of(process.gone, process.drained, stop, stop_now, seconds=_DRAIN)
    left_over = await _kill_leftovers(process)
    if process.gone.is_set():
        # All writers are dead, so the end of the output is there, unless a stranger was given the pipe.
        await _first_of(process.drained, seconds=_DRAIN)
    return _outcome_of(process, stopped=stopped, left_over=left_over and not stopped)


async def _kill_leftovers(process: Process) -> bool:
    """True if there were any."""
    # One that ends lets go of its output a moment before it is gone.
    await _first_of(process.gone, seconds=_LAST_BREATH)
    if process.gone.is_set() or process.survivors is not None:
        return False
    await process.kill_tree()
    return True


async def _terminate(process: Process, grace: float, stop_now: asyncio.Event) -> None:
    """TERM, and time for the whole tree: a shell dies of it at once, what it was running may tidy up."""
    if not stop_now.is_set():
        process.signal_group(signal.SIGTERM)
        await _first_of(process.gone, stop_now, seconds=grace)
    await process.kill_tree()


async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of them is set, or that long."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _outcome_of(process: Process, *, stopped: bool, left_over: bool) -> Outcome:
    output = process.output.render()
    if process.status is None:
        return failed(_why_no_status(process), output)
    code, error = _tell_end(process.status)
    if process.status.cut_off:
        # The worker did not say so itself: it was stopped or hung, and others may have the run by now.
        return Outcome(Status.LOST, exit_code=code, error=error, reason=_CUT_OFF, output=output)
    reason = None
    if process.survivors is not None:
        reason = storable(f"left processes that could not be killed and live on: {process.survivors}")
    elif left_over:
        reason = _LEFT_OVER
    if code == 0 and not stopped:
        return Outcome(Status.SUCCEEDED, exit_code=code, reason=reason, output=output)
    return Outcome(Status.FAILED, exit_code=code, error=error, reason=reason, output=output)


def _why_no_status(process: Process) -> str:
    if process.exited.is_set():
        return "its guard process ended, and so it was killed"
    if process.survivors is not None:
        return f"it could not be killed and lives on: {process.survivors}"
    return "it was killed, but its guard did not tell how it ended"


def _tell_end(status: ExitStatus) -> tuple[int, str]:
    """The exit code as shells give it, and the sentence for it."""
    if status.signal is None:
        code = status.code or 0
        return code, f"exited with code {code}"
    try:
        name = f"{signal.Signals(status.signal).name} (signal {status.signal})"
    except ValueError:  # real-time signals have no names of their own
        name = f"signal {status.signal}"
    return 128 + status.signal, f"killed by {name}"
