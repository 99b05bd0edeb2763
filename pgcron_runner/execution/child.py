"""The program that a Python job runs in: calls one function and writes down what it returned or raised.

`python -m pgcron_runner.execution.child package.module:function`, with PGCRON_ARGS (a JSON object of keywords) and
PGCRON_RESULT (the file to write to) in its environment. Exit code 0: returned; 1: raised.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgcron_runner.errors import InvalidInput

_TRACEBACK_LINES = 20


def load(target: str) -> Callable[..., Any]:
    """The function that `package.module:function` names. Raises InvalidInput, or what importing it raises."""
    module_name, _, path = target.strip().partition(":")
    if not module_name or not path:
        raise InvalidInput("command", target, "does not name a function", example="myapp.reports:send_daily")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise InvalidInput("command", target, "is not a function", example="myapp.reports:send_daily")
    function: Callable[..., Any] = found
    return function


def main() -> int:
    """Runs the job that the command line and environment describe; returns the exit code."""
    report: dict[str, Any] = {}
    try:
        returned = _call(load(sys.argv[1]), json.loads(os.environ.get("PGCRON_ARGS", "{}")))
        report["result"] = json.loads(json.dumps(returned, allow_nan=False))
        code = 0
    except Exception as error:
        traceback.print_exc()
        lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
        text = "\n".join([f"{type(error).__name__}: {error}", *lines[-_TRACEBACK_LINES:]])
        # Escapes what the database could not hold, in the way of all kept output.
        report["error"] = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "␀")
        code = 1
    Path(os.environ["PGCRON_RESULT"]).write_text(json.dumps(report), encoding="utf-8")
    return code


def _call(function: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return asyncio.run(function(**keywords))
    return function(**keywords)


if __name__ == "__main__":
    sys.exit(main())
