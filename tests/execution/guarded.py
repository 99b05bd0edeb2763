"""What the tests of the guard share: commands for it, and waiting."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, ExitStatus, Guard, Process
from tests.execution.escapes import ENV
from tests.support.waiting import eventually_async

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


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
