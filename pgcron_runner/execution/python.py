"""Python jobs: `package.module:function` with the job's `args` as keywords.

By default in a process of its own under the guard, which can be stopped and leaves nothing behind. With
`"isolation": "thread"` in the worker itself: coroutine functions on its loop, others in threads. A thread cannot be
stopped from outside: such a run stays `running`, and its job locked, until the function returns.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pgcron_runner.execution import child
from pgcron_runner.execution.output import storable
from pgcron_runner.execution.processes import Command, Guard
from pgcron_runner.execution.shell import BadCommandError, build_environment, run_command
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Status, Task

_TRACEBACK_LINES = 20
_ISOLATION = "isolation"


class PythonRunner:
    """Runs Python jobs for one worker; its threads are as many as the worker has slots."""

    def __init__(self, guard: Guard, *, threads: int) -> None:
        self._guard = guard
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="pgcron-job")

    async def run(self, task: Task, stop: Stop) -> Outcome:
        """Calls the function once; its JSON-able return value is the result, an exception the error."""
        isolation = task.args.get(_ISOLATION, "process")
        keywords = {name: value for name, value in task.args.items() if name != _ISOLATION}
        match isolation:
            case "process":
                return await self._in_child(task, keywords, stop)
            case "thread":
                return await self._in_worker(task, keywords, stop)
            case _:
                return Outcome(
                    Status.FAILED, error=f'launch failed: args.isolation is {isolation!r}, not "process" or "thread"'
                )

    def close(self) -> bool:
        """Gives up the threads; False where some function has not returned and keeps the process alive."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not any(thread.is_alive() for thread in self._threads._threads)

    async def _in_worker(self, task: Task, keywords: dict[str, Any], stop: Stop) -> Outcome:
        try:
            function = load(task.command)
        except Exception as error:
            return Outcome(
                Status.FAILED, error=describe(error), reason="launch failed: the function cannot be imported"
            )
        outcome = Outcome(Status.FAILED, error="stopped")
        try:
            if inspect.iscoroutinefunction(function):
                with stop.cancels_this_task():
                    outcome = _succeeded(await function(**keywords))
            else:
                call = partial(function, **keywords)
                outcome = _succeeded(await asyncio.get_running_loop().run_in_executor(self._threads, call))
        except Exception as error:
            return Outcome(Status.FAILED, error=describe(error))
        return outcome

    async def _in_child(self, task: Task, keywords: dict[str, Any], stop: Stop) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="pgcron-") as folder:
            results = Path(folder) / "result.json"
            try:
                environment = build_environment(task, os.environ) | self._child_environment(keywords, results)
            except BadCommandError as error:
                return Outcome(Status.FAILED, error=str(error))
            command = Command((sys.executable, "-m", child.__name__, task.command), environment, task.working_dir)
            outcome = await run_command(command, task, self._guard, stop.event, stop.now)
            return _with_report(outcome, results)

    @staticmethod
    def _child_environment(keywords: Mapping[str, Any], results: Path) -> dict[str, str]:
        # The child imports what the worker could import, also where the worker was started with a path of its own.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        return {"PGCRON_ARGS": json.dumps(keywords), "PGCRON_RESULT": str(results), "PYTHONPATH": path}


@lru_cache(maxsize=1024)
def load(target: str) -> Callable[..., Any]:
    """The function that `package.module:function` names. Raises InvalidInput, or what importing it raises."""
    return child.load(target)


def describe(error: BaseException) -> str:
    """The exception and the end of its traceback, as storable text."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return storable("\n".join([f"{type(error).__name__}: {error}", *lines[-_TRACEBACK_LINES:]]))


def _succeeded(returned: Any) -> Outcome:
    try:
        json.dumps(returned, allow_nan=False)
    except (TypeError, ValueError) as error:
        return Outcome(Status.FAILED, error=f"the function returned what JSON cannot hold: {storable(str(error))}")
    return Outcome(Status.SUCCEEDED, result=returned)


def _with_report(outcome: Outcome, results: Path) -> Outcome:
    """The child's own word on how it went, where it could still give one."""
    try:
        report = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return outcome
    return Outcome(
        outcome.status,
        exit_code=outcome.exit_code,
        error=report.get("error") or outcome.error,
        reason=outcome.reason,
        result=report.get("result"),
        output=outcome.output,
    )
