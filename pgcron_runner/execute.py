"""Execute: runs claimed tasks, each to one outcome, and keeps the list of what is in this worker's hands."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import storable
from pgcron_runner.execution.stop import Stop
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Finished, Kind, Outcome, Status, StopReason, Task
from pgcron_runner.store.runs import LockedJob

log = get_logger(__name__)

Runner = Callable[[Task, Stop, Live], Awaitable[Outcome]]
"""Runs one task; ends in time when it is asked to stop; never raises for what the job does."""


@dataclass(frozen=True, slots=True)
class _Going:
    """A run that goes on. `due_at`: when its timeout is over, on the loop's clock."""

    task: Task
    stop: Stop
    live: Live
    due_at: float


class Execute:
    """The duty: what is running, and what has ended and is not recorded yet. Both are in hand: leased and locked.

    `on_finished` is called after each end, with the outcome already in `unrecorded`.
    """

    def __init__(self, runners: Mapping[Kind, Runner], on_finished: Callable[[], None]) -> None:
        self._runners = runners
        self._on_finished = on_finished
        self._running: dict[int, _Going] = {}
        self._asyncio_tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.unrecorded: dict[int, Finished] = {}
        self._written: set[int] = set()

    @property
    def running(self) -> int:
        """How many slots are taken."""
        return len(self._running)

    @property
    def running_ids(self) -> frozenset[int]:
        """Runs that go on."""
        return frozenset(self._running)

    @property
    def run_ids(self) -> list[int]:
        """All runs in hand."""
        return [*self._running, *self.unrecorded]

    @property
    def tasks(self) -> list[Task]:
        """The same, with what their jobs say."""
        going = [going.task for going in self._running.values()]
        return going + [finished.task for finished in self.unrecorded.values()]

    def locked_jobs(self) -> list[LockedJob]:
        """The job locks that the runs in hand call for, one for each run."""
        return [LockedJob(task.job_id, task.exclusive) for task in self.tasks]

    def start(self, tasks: Iterable[Task]) -> None:
        """Starts claimed runs; never waits."""
        now, earliest = asyncio.get_running_loop().time(), math.inf
        for task in tasks:
            going = _Going(task, Stop(), Live(), now + task.timeout.total_seconds())
            earliest = min(earliest, going.due_at)
            self._running[task.run_id] = going
            running = asyncio.create_task(self._run(going), name=f"run {task.run_id}")
            self._asyncio_tasks.add(running)
            running.add_done_callback(self._asyncio_tasks.discard)
        self._set_timer(earliest)

    def live(self) -> dict[int, Live]:
        """What each running run has said so far."""
        return {run_id: going.live for run_id, going in self._running.items()}

    def stop(self, run_ids: Iterable[int], reason: StopReason, *, now: bool = False) -> None:
        """Asks running runs to end; those that have ended already stay as they are."""
        for run_id in run_ids:
            if (going := self._running.get(run_id)) is not None:
                going.stop.request(reason, now=now)

    def stop_all(self, reason: StopReason, *, now: bool = False) -> None:
        """Asks everything that is running to end."""
        self.stop(list(self._running), reason, now=now)

    def written(self, batch: Iterable[Finished]) -> None:
        """The states of these are written, or were found to be somebody else's; their locks are still in hand."""
        self._written.update(finished.task.run_id for finished in batch)

    def to_write(self, batch: Iterable[Finished]) -> list[Finished]:
        """Those of a batch whose end is still to be written."""
        return [f for f in batch if not f.outcome.recorded and f.task.run_id not in self._written]

    @property
    def unwritten(self) -> list[int]:
        """Runs in hand whose end is not written."""
        return [*self._running, *(finished.task.run_id for finished in self.to_write(self.unrecorded.values()))]

    def recorded(self, run_ids: Iterable[int]) -> None:
        """These ends are written, or were found to be somebody else's: they are no longer in hand."""
        for run_id in run_ids:
            self.unrecorded.pop(run_id, None)
            self._written.discard(run_id)

    async def wait_until_idle(self) -> None:
        """Until nothing is running any more; what has ended may still be unrecorded."""
        while self._asyncio_tasks:
            await asyncio.wait(list(self._asyncio_tasks))

    async def _run(self, going: _Going) -> None:
        task = going.task
        outcome = Outcome(Status.FAILED, reason="the worker was torn down")
        try:
            outcome = await self._outcome(task, going.stop, going.live)
        finally:
            del self._running[task.run_id]
            self.unrecorded[task.run_id] = Finished(task, outcome)
            self._on_finished()

    async def _outcome(self, task: Task, stop: Stop, live: Live) -> Outcome:
        if stop.reason is not None:
            return _stopped(Outcome(Status.FAILED), stop.reason, task)
        try:
            outcome = await self._runners[task.kind](task, stop, live)
        except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            if _is_torn_down(error):
                raise
            # A fault of ours in one kind must not take the worker down.
            log.exception(
                "execution_failed", job=task.job_name, run=task.run_id, consequence="the run is recorded as failed"
            )
            outcome = Outcome(Status.FAILED, error=storable(f"pgcron-runner itself failed: {error!r}"))
        return outcome if stop.reason is None else _stopped(outcome, stop.reason, task)

    def _set_timer(self, at: float) -> None:
        """One for all runs, at the earliest: a timer of its own for each was a tenth of the work of a busy worker."""
        if at < math.inf and (self._timer is None or at < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(at, self._stop_the_late)

    def _stop_the_late(self) -> None:
        now, self._timer = asyncio.get_running_loop().time(), None
        going = list(self._running.values())
        for late in going:
            if late.due_at <= now:
                late.stop.request(StopReason.TIMEOUT)
        self._set_timer(min((going.due_at for going in going if going.due_at > now), default=math.inf))


def _is_torn_down(error: BaseException) -> bool:
    """Whether the whole worker is being cancelled, and not just something inside the runner."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


_REASONS = {
    StopReason.CANCEL: "cancelled on request",
    StopReason.TIMEOUT: "it took longer than its timeout",
    StopReason.DRAIN: "its worker was stopped",
    StopReason.LEASE: "its worker could not renew the lease",
    StopReason.MEMORY: "out of memory",
}


def _stopped(outcome: Outcome, reason: StopReason, task: Task) -> Outcome:
    """The outcome of a run that was asked to stop; one that had succeeded before it heard of it stays so."""
    if outcome.status is Status.SUCCEEDED:
        return outcome
    words = _REASONS[reason]
    if reason is StopReason.TIMEOUT:
        words = f"{words} of {task.timeout}"
    if outcome.reason:
        # Who measured the memory has put it better.
        words = outcome.reason if reason is StopReason.MEMORY else f"{words}; {outcome.reason}"
    return replace(outcome, status=reason.status, reason=words)
