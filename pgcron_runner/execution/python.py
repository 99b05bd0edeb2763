"""Python jobs: `package.module:function` with the job's `args` as keywords.

By default in a process of its own under the guard, which can be stopped and leaves nothing behind: a fork of a process
that has imported already what most need (zygote.py), or with `"isolation": "fresh"` an interpreter that was started for
it alone. With `"isolation": "thread"` in the worker itself: coroutine functions on its loop, others in threads. A
thread cannot be stopped from outside, nor can a coroutine that swallows its cancellation: such a run stays `running`,
and its job locked, until the function returns. And what ends a process (os._exit, a segmentation fault) ends the worker
there.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pgcron_runner.execution import child
from pgcron_runner.execution.accounts import BadAccountError
from pgcron_runner.execution.exits import Exited, contain_exits, in_job
from pgcron_runner.execution.inside import InsideRun
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import storable
from pgcron_runner.execution.processes import Command, Guard
from pgcron_runner.execution.result import MOST_BYTES, BadResultError, storable_result
from pgcron_runner.execution.shell import (
    BadCommandError,
    account_of,
    base_environment,
    build_environment,
    run_command,
    umask_of,
)
from pgcron_runner.execution.steps import BadStepError, StepFiles, step_files, without_settings
from pgcron_runner.execution.stop import Stop
from pgcron_runner.execution.warm import WarmStarts
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Outcome, Status, Task

log = get_logger(__name__)

_NOT_BEGUN = Outcome(Status.FAILED)
_NOTHING_RETURNED = Outcome(Status.SUCCEEDED)
# JSON of so many bytes may be a result of MOST_BYTES; with more it is not even read.
_MOST_REPORT_BYTES = MOST_BYTES + 65_536


@dataclass(frozen=True, slots=True)
class _Function:
    call: Callable[..., Any]
    is_coroutine_function: bool


class PythonRunner:
    """Runs Python jobs for one worker; its threads are as many as the worker has slots."""

    def __init__(self, guard: Guard, *, threads: int, preload: tuple[str, ...] = ()) -> None:
        self._guard = guard
        self._warm = WarmStarts(guard, zygote_environment(os.environ), preload)
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="pgcron-job")
        self._in_threads: set[Future[Any]] = set()
        self._functions: dict[str, _Function] = {}

    async def run(self, task: Task, stop: Stop, live: Live) -> Outcome:
        """Calls the function once; its JSON-able return value is the result, an exception the error."""
        isolation = task.args.get("isolation", "process")
        keywords = without_settings(task)
        match isolation:
            case "process" | "fresh":
                return await self._in_child(task, stop, live, fresh=isolation == "fresh")
            case "thread":
                with InsideRun(task, stop, live) as inside:
                    return inside.finish(await self._in_worker(task, keywords, stop))
            case _:
                words = f'args.isolation is {isolation!r}, not "process", "fresh" or "thread"'
                return Outcome(Status.FAILED, error=storable(f"launch failed: {words}"))

    def close(self) -> bool:
        """Gives up its threads and its zygote; False where a function has not returned and keeps the process alive."""
        self._warm.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not any(future.running() for future in list(self._in_threads))

    # ------------------------------------------------------------------------------------- in the worker

    async def _in_worker(self, task: Task, keywords: dict[str, Any], stop: Stop) -> Outcome:
        function = self._functions.get(task.command)
        if function is None:
            # Importing may take long, or never end.
            found = await self._in_thread(partial(_load, task.command), task, stop)
            if isinstance(found, Outcome):
                return found
            function = self._functions[task.command] = found
            if stop.reason is not None:
                return _NOT_BEGUN
        if function.is_coroutine_function:
            return await _on_the_loop(function.call, keywords, task, stop)
        outcome: Outcome = await self._in_thread(partial(_call, function.call, keywords), task, stop)
        return outcome

    async def _in_thread(self, work: Callable[[], Any], task: Task, stop: Stop) -> Any:
        """What `work` returns, which never raises; _NOT_BEGUN where a stop came before a thread was free."""
        future = self._threads.submit(copy_context().run, work)
        self._in_threads.add(future)
        future.add_done_callback(self._in_threads.discard)
        complaint = _Complaint(task, "a thread cannot be stopped")

        def heed() -> None:
            if not future.cancel():
                complaint.prepare()

        with stop.calls(heed):
            try:
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                if stop.reason is None or not future.cancelled():
                    raise
                return _NOT_BEGUN
            finally:
                complaint.drop()

    # --------------------------------------------------------------------------------------- in a child

    async def _in_child(self, task: Task, stop: Stop, live: Live, *, fresh: bool) -> Outcome:
        try:
            account = await account_of(task)
            with step_files(task, live, self._guard.scratch, owner=account.owner) as files:
                _write_request(files.folder, task.command)
                command = Command(
                    (sys.executable, "-P", "-u", child.__file__, str(files.folder)),
                    build_environment(task, os.environ, account) | files.environment,
                    task.working_dir,
                    umask=umask_of(task),
                    user=account.ids,
                )
                outcome = files.finish(await self._run_child(command, task, stop, live, fresh=fresh))
                return _with_report(outcome, _report(files))
        except (BadCommandError, BadAccountError, OSError) as error:
            return Outcome(Status.FAILED, error=storable(f"launch failed: {error}"))

    async def _run_child(self, command: Command, task: Task, stop: Stop, live: Live, *, fresh: bool) -> Outcome:
        if fresh:
            return await run_command(command, task, self._guard, stop, live)
        await self._warm.prepare(command, stop)
        return await run_command(command, task, self._warm, stop, live)


class _Complaint:
    """Says after the grace that a function goes on although it was asked to stop."""

    def __init__(self, task: Task, reason: str) -> None:
        self._task = task
        self._reason = reason
        self._timer: asyncio.TimerHandle | None = None

    def prepare(self) -> None:
        grace = self._task.kill_grace.total_seconds()
        self._timer = asyncio.get_running_loop().call_later(grace, self._tell)

    def drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        log.warning(
            "function_goes_on",
            job=self._task.job_name,
            run=self._task.run_id,
            consequence=f"{self._reason}: its run stays running, and its job locked, until it returns",
        )


async def _on_the_loop(function: Callable[..., Any], keywords: dict[str, Any], task: Task, stop: Stop) -> Outcome:
    contain_exits()
    complaint = _Complaint(task, "it has swallowed its cancellation")
    outcome = Outcome(Status.FAILED)
    try:
        with stop.cancels_this_task(complaint.prepare), in_job():
            outcome = _returned(await function(**keywords))
    except asyncio.CancelledError as error:
        own = asyncio.current_task()
        if own is None or own.cancelling():
            raise
        # Its own doing: nobody has cancelled this task.
        outcome = _raised(error)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        # The last two would end the loop, and the worker with it.
        outcome = _raised(error)
    finally:
        complaint.drop()
    if stop.reason is not None and outcome.status is Status.SUCCEEDED:
        return replace(outcome, status=Status.FAILED, reason="it swallowed its cancellation and returned")
    return outcome


def _load(target: str) -> _Function | Outcome:
    try:
        function = child.load(target)
        return _Function(function, _is_coroutine_function(function))
    except BaseException as error:
        return replace(_raised(error), status=Status.FAILED, reason=child.CANNOT_IMPORT)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _call(function: Callable[..., Any], keywords: dict[str, Any]) -> Outcome:
    try:
        returned = function(**keywords)
        return _returned(asyncio.run(_awaited(returned)) if hasattr(returned, "__await__") else returned)
    except BaseException as error:
        return _raised(error)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _returned(value: Any) -> Outcome:
    if value is None:
        return _NOTHING_RETURNED
    try:
        return Outcome(Status.SUCCEEDED, result=storable_result(value))
    except BadResultError as error:
        return Outcome(Status.FAILED, error=f"{child.CANNOT_KEEP}: {error}")


def _raised(error: BaseException) -> Outcome:
    code = None
    if isinstance(error, Exited):
        error = error.exit
    if isinstance(error, SystemExit):
        code = child.exit_code_of(error)
        if code == 0:
            return Outcome(Status.SUCCEEDED, exit_code=0)
    return Outcome(Status.FAILED, exit_code=code, error=storable(child.describe(error)))


def zygote_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a job finds that adds nothing, and how many threads libraries may start: none where forks are wanted."""
    threads = {name: environ[name] for name in environ if name.endswith("_NUM_THREADS")}
    return base_environment(environ) | threads


def _write_request(folder: Path, target: str) -> None:
    # The child imports what the worker can import, also where the worker was started with a path of its own.
    path = [entry or os.getcwd() for entry in sys.path]
    (folder / "request.json").write_text(json.dumps({"target": target, "path": path}), encoding="utf-8")


def _with_report(outcome: Outcome, report: dict[str, Any]) -> Outcome:
    """The child's own word on how it went, where it could still give one."""
    error = report.get("error")
    if error is not None:
        status = Status.FAILED if outcome.status is Status.SUCCEEDED else outcome.status
        return replace(outcome, status=status, error=storable(error), reason=report.get("reason") or outcome.reason)
    if "result" in report:
        returned = _returned(report["result"])
        if returned.status is Status.FAILED and outcome.status is Status.SUCCEEDED:
            return replace(outcome, status=Status.FAILED, error=returned.error)
        # What it returns counts for more than what it has put down on its way.
        return outcome if returned.result is None else replace(outcome, result=returned.result)
    if outcome.status is Status.SUCCEEDED:
        return replace(outcome, status=Status.FAILED, error="the process ended before the function had returned")
    return outcome


def _report(files: StepFiles) -> dict[str, Any]:
    try:
        report = json.loads(files.read("report.json", most_bytes=_MOST_REPORT_BYTES) or "")
    except BadStepError:
        return {"error": f"{child.CANNOT_KEEP}: it is larger than {MOST_BYTES:,} bytes"}
    except (OSError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}
