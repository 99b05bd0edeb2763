"""The program that a Python job runs in: calls one function and writes down what it returned or raised.

`python -P child.py FOLDER`, where FOLDER has `request.json`: the target (`package.module:function`) and the worker's
`sys.path`; and, where there are any, the function's keywords in `args.json`. It writes `report.json` there: `result`;
or `error` and, where the function was never called, `reason`. Exit code 0: returned; 1: raised; another: given to
sys.exit(). Imports little, since every run pays for it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

TYPE_CHECKING = False  # typing's own takes 5 ms to import
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import FrameType, TracebackType
    from typing import Any

CANNOT_IMPORT = "launch failed: the function cannot be imported"
CANNOT_KEEP = "the function returned what cannot be kept"
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


class Interruption:
    """What SIGTERM does: it raises Terminated where the job is, or cancels the coroutine that it waits for.

    Once the job has looked at `run.cancelled` (running.py), which sets `interrupts` to False, it is only remembered.
    """

    def __init__(self) -> None:
        self.received = False
        self.interrupts = True
        self.cancel: Callable[[], bool] | None = None
        self._pid = os.getpid()

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        again, self.received = self.received, True
        if os.getpid() != self._pid or (again and self.interrupts):
            # A fork of the job's own has no report to write. And who is told twice is to end at once.
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        elif not (self.cancel is not None and self.cancel()) and self.interrupts:
            # Here, and in no function of ours below: the traceback ends with what the job was doing.
            raise Terminated


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
    request = _read(folder, "request.json")
    sys.path[:] = _search_path(request["path"])
    del sys.argv[1:]
    interruption = Interruption()
    signal.signal(signal.SIGTERM, interruption)
    code, report = _attempt(request["target"], _read(folder, "args.json"), interruption)
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file)
    return code


def _read(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            content: dict[str, Any] = json.load(file)
            return content
    except FileNotFoundError:
        return {}


def _attempt(target: str, keywords: dict[str, Any], interruption: Interruption) -> tuple[int, dict[str, Any]]:
    reason: str | None = CANNOT_IMPORT
    try:
        function = load(target)
        reason = None
        returned = function(**keywords)
        if hasattr(returned, "__await__"):
            returned = _awaited(returned, interruption)
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


def _awaited(awaitable: Awaitable[Any], interruption: Interruption) -> Any:
    import asyncio

    async def wait() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancelled = False

        def cancel() -> bool:
            nonlocal cancelled
            if interruption.interrupts and asyncio.current_task(loop) is not None:
                return False
            # The loop is asleep: what is to be stopped is where the task waits.
            cancelled = True
            loop.call_soon_threadsafe(task.cancel)
            return True

        interruption.cancel = cancel
        try:
            return await awaitable
        except asyncio.CancelledError as error:
            if cancelled:
                raise Terminated().with_traceback(error.__traceback__) from None
            raise
        finally:
            interruption.cancel = None

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
