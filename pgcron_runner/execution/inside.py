"""What functions inside the worker say through `pgcron_runner.run`. It must not know how they are called."""

from __future__ import annotations

import copy
import json
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.result import storable_result
from pgcron_runner.execution.steps import next_run_of, parse_progress, without_settings
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import NextRun, Outcome, Task
from pgcron_runner.running import CONTEXT


class InsideRun:
    """The run of one function: see running.Context. Its methods are called in any thread.

    Within it `pgcron_runner.run` is this run: for the current asyncio task, and for what is given its context.
    """

    __slots__ = ("_live", "_lock", "_next_runs", "_result", "_stop", "_task", "_token")

    def __init__(self, task: Task, stop: Stop, live: Live) -> None:
        self._task = task
        self._stop = stop
        self._live = live
        self._lock = threading.Lock()
        self._next_runs: tuple[NextRun, ...] = ()
        self._result: Any = None

    def __enter__(self) -> Self:
        # Not a generator: small work in the worker is to be cheap.
        self._token = CONTEXT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        CONTEXT.reset(self._token)

    @property
    def id(self) -> int:
        return self._task.run_id

    @property
    def job(self) -> str:
        return self._task.job_name

    @property
    def attempt(self) -> int:
        return self._task.attempt

    @property
    def scheduled_for(self) -> datetime:
        return self._task.scheduled_for.astimezone(UTC)

    @property
    def args(self) -> dict[str, Any]:
        return copy.deepcopy(without_settings(self._task))

    @property
    def state(self) -> Any:
        return copy.deepcopy(self._task.state if self._live.state is None else self._live.state)

    def is_cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.reason is not None

    def merging(self) -> AbstractContextManager[object]:
        """One at a time."""
        return self._lock

    def progress(self, line: str) -> None:
        """For people, at once."""
        self._live.progress = parse_progress(line)

    def save(self, text: str) -> None:
        """For the next attempt or slice."""
        self._live.state = storable_result(json.loads(text))

    def run_after(self, text: str) -> None:
        """For when this run has succeeded."""
        with self._lock:
            self._next_runs += (next_run_of(json.loads(text), where="run.run_after()"),)

    def result(self, text: str) -> None:
        """For where the function returns nothing."""
        self._result = storable_result(json.loads(text))

    def finish(self, outcome: Outcome) -> Outcome:
        """The outcome with all that was said."""
        if outcome.result is None and self._result is not None:
            outcome = replace(outcome, result=self._result)
        if self._live.progress is None and self._live.state is None and not self._next_runs:
            return outcome
        said = {"progress": self._live.progress, "state": self._live.state, "next_runs": self._next_runs}
        return replace(outcome, **said)
