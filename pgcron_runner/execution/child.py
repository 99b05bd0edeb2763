"""The program that a Python job runs in: calls one function and writes down what it returned or raised.

`python -P child.py FOLDER`, where FOLDER has `request.json`: the target (`package.module:function`), its keywords and
the worker's `sys.path`. It writes `report.json` there: `result`; or `error` and, where the function was never called,
`reason`. Exit code 0: returned; 1: raised; another: given to sys.exit(). Imports little, since every run pays for it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import FrameType, TracebackType

CANNOT_IMPORT = "launch failed: the function cannot be imported"
CANNOT_KEEP = "the function returned what cannot be kept"
_PID = os.getpid()
_OWN_FOLDER = os.path.dirname(__file__) + os.sep
_TRACEBACK_LINES = 20
_MOST_CHARACTERS = 16_384
_IMPORT_MACHINERY = ("<frozen importlib", importlib.__file__)


class NoFunctionError(Exception):
    """The command does not name a function."""


class Terminated(BaseException):
    """The run is being stopped (SIGTERM); there is some time to tidy up."""

    def __init__(self) -> None:
        super().__init__("the run was stopped (SIGTERM)")


def load(target: str) -> Callable[..., Any]:
    """The function that `package.module:function` names. Raises NoFunctionError, or what importing it raises."""
    module_name, _, path = target.strip().partition(":")
    if not module_name or not path:
        raise NoFunctionError(f"{target!r} does not name a function, as myapp.reports:send_daily does")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise NoFunctionError(f"{target!r} is not a function")
    function: Callable[..., Any] = found
    return function


def describe(error: BaseException) -> str:
    """The exception in one line, and the end of its traceback, from where it has left our own code."""
    import traceback

    error.__traceback__ = _behind_own_code(error.__traceback__)
    try:
        headline = f"{type(error).__name__}: {error}"
    except Exception:  # an exception of the job's may fail even at this
        headline = f"{type(error).__name__} (its message cannot be shown)"
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    if error.__traceback__ is None and error.__cause__ is None and error.__context__ is None:
        return headline[:_MOST_CHARACTERS]
    tail = "\n".join(lines[-_TRACEBACK_LINES:])
    return f"{headline[:_MOST_CHARACTERS]}\n{tail[-_MOST_CHARACTERS:]}"


def exit_code_of(error: SystemExit) -> int | None:
    """The exit code that `sys.exit(...)` asks for, 0 only where it was 0 or nothing; None where it was a text."""
    code = error.code
    if code is None or code == 0:
        return 0
    return (code & 0xFF or 1) if isinstance(code, int) else None


def main(folder: str) -> int:
    """Runs the job that the folder's request describes; returns the exit code."""
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    sys.path[:] = _search_path(request["path"])
    del sys.argv[1:]
    signal.signal(signal.SIGTERM, _terminate)
    code, report = _attempt(request["target"], request["keywords"])
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file)
    return code


def _attempt(target: str, keywords: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    reason: str | None = CANNOT_IMPORT
    try:
        function = load(target)
        reason = None
        returned = function(**keywords)
        if hasattr(returned, "__await__"):
            returned = _awaited(returned)
    except SystemExit as error:
        code = exit_code_of(error)
        if code == 0 and reason is None:
            return 0, {"result": None}
        return code or 1, {"error": _print_and_describe(error), "reason": reason}
    except BaseException as error:
        return 1, {"error": _print_and_describe(error), "reason": reason}
    try:
        json.dumps(returned, allow_nan=False)
    except Exception as error:
        return 1, {"error": f"{CANNOT_KEEP}: JSON cannot hold it: {error}"}
    return 0, {"result": returned}


def _awaited(awaitable: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancel, cancelled = task.cancel, False

        def terminate(signum: int, frame: FrameType | None) -> None:
            nonlocal cancelled
            if asyncio.current_task(loop) is not None:
                _terminate(signum, frame)
            # The loop is asleep: what is to be stopped is where the task waits.
            cancelled = True
            signal.signal(signum, _terminate)
            loop.call_soon_threadsafe(cancel)

        signal.signal(signal.SIGTERM, terminate)
        try:
            return await awaitable
        except asyncio.CancelledError as error:
            if cancelled:
                raise Terminated().with_traceback(error.__traceback__) from None
            raise

    return asyncio.run(wait())


def _print_and_describe(error: BaseException) -> str:
    import traceback

    text = describe(error)
    traceback.print_exception(error)
    return text


def _behind_own_code(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the job's: behind our last frame in it, and behind the import we asked for."""
    begin = trace
    while trace is not None:
        if trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
            begin = trace.tb_next
        trace = trace.tb_next
    while begin is not None and begin.tb_frame.f_code.co_filename.startswith(_IMPORT_MACHINERY):
        begin = begin.tb_next
    return begin


def _search_path(workers: Iterable[str]) -> list[str]:
    """What `python -m` would find, with the job's own PYTHONPATH, and all that the worker can import."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys([os.getcwd(), *filter(None, own), *workers, *sys.path]))


def _terminate(signum: int, frame: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_DFL)
    if os.getpid() != _PID:
        # A fork of the job's own: it has no report to write.
        os.kill(os.getpid(), signum)
    raise Terminated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
