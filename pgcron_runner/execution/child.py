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
    from types import FrameType

CANNOT_IMPORT = "launch failed: the function cannot be imported"
_TRACEBACK_LINES = 20
_MOST_CHARACTERS = 16_384
_IMPORT_MACHINERY = "<frozen importlib"


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

    _skip_own_frames(error)
    try:
        headline = f"{type(error).__name__}: {error}"
    except Exception:  # an exception of the job's may fail even at this
        headline = f"{type(error).__name__} (its message cannot be shown)"
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    tail = "\n".join(lines[-_TRACEBACK_LINES:])
    return f"{headline[:_MOST_CHARACTERS]}\n{tail[-_MOST_CHARACTERS:]}"


def exit_code_of(error: SystemExit) -> int | None:
    """The code of `sys.exit(...)` as the shell would see it; None where it was given a text."""
    code = error.code
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else None


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
            returned = awaited(returned)
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
        return 1, {"error": f"the function returned what JSON cannot hold: {describe(error)}"}
    return 0, {"result": returned}


def awaited(awaitable: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def _print_and_describe(error: BaseException) -> str:
    import traceback

    text = describe(error)
    traceback.print_exception(error)
    return text


def _skip_own_frames(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and _is_own(trace.tb_frame):
        trace = trace.tb_next
    if trace is not None:
        error.__traceback__ = trace


def _is_own(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return path.startswith((_OWN_FOLDER, _IMPORT_MACHINERY)) or path == importlib.__file__


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


_PID = os.getpid()
_OWN_FOLDER = os.path.dirname(__file__) + os.sep

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
