"""What the tests of the guard share: commands for it, ways to hide from it, and who is still alive."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, ExitStatus, Guard, Process
from tests.support.waiting import eventually_async

ENV = {"PATH": os.environ["PATH"]}
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")
# Each leaves a process with the marker as an argument, in a way that hides it from the one before.
ESCAPES = {
    "child": "sleep 300 {0} & wait",
    "ignores TERM": "trap '' TERM; sleep 300 {0}; sleep 300 {0}; sleep 300 {0}",
    "orphan": "(sleep 300 {0} &) ; sleep 300",
    "session": "setsid sleep 300 {0} & wait",
    "daemon": "(setsid sh -c '(sleep 300 {0} &)' &) ; sleep 300",
    "daemon without environment": "(env -i setsid /bin/sh -c '(/bin/sleep 300 {0} &)' &) ; sleep 300",
    "stopped": "sleep 300 {0} & sleep 0.1; kill -STOP $! $$",
}


def living(marker: str) -> list[int]:
    """The processes with this among their arguments, but for those that have ended and wait to be reaped."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _has(entry, marker)]


def _has(entry: Path, marker: str) -> bool:
    try:
        return marker.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def exists(pid: int) -> bool:
    """Whether this process is there and has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def eventually(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait until it holds; no event tells of processes that are not ours."""

    async def check() -> object:
        return condition()

    await eventually_async(check, seconds)


async def launch(guard: Guard, script: str, output: OutputBuffer | None = None) -> Process:
    """Start a shell script."""
    return await guard.launch(Command(("/bin/sh", "-c", script), ENV), output or OutputBuffer(10_000))


async def run(guard: Guard, command: Command) -> tuple[ExitStatus, str]:
    """Start a command, and wait for its end and all that it prints."""
    process = await guard.launch(command, OutputBuffer(100_000))
    status = await process.wait()
    await process.drained.wait()
    return status, process.output.render().text
