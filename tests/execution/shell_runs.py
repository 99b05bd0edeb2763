"""Runs of shell jobs for the tests: the task, the worker's own environment, and the outcome."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime, timedelta, timezone
from typing import Any

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, RetryPolicy, StopReason, Task
from tests.execution.escapes import living
from tests.execution.guarded import eventually

WORKERS_OWN = {
    **os.environ,
    "HOME": "/home/worker",
    "LC_TIME": "C",
    "PGPASSWORD": "s3cr3t",
    "PGCRON_DSN": "postgresql://u:s3cr3t@h/d",
    "DATABASE_URL": "postgresql://u:s3cr3t@h/d",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t",
    "TOKEN": "t0ken",
}


def task(command: str, **changes: Any) -> Task:
    """A claimed run of a shell job."""
    values: dict[str, Any] = {
        "run_id": 77,
        "job_id": 5,
        "job_name": "nightly",
        "kind": Kind.SHELL,
        "command": command,
        "args": {},
        "scheduled_for": datetime(2026, 3, 1, 19, 0, tzinfo=timezone(timedelta(hours=1))),
        "attempt": 2,
        "exclusive": True,
        "timeout": timedelta(hours=1),
        "kill_grace": timedelta(seconds=10),
        "retry": RetryPolicy(),
    }
    return Task(**(values | changes))


async def run(guard: Guard, command: str, *, stop: Stop | None = None, **changes: Any) -> Outcome:
    """Run it to its end."""
    return await run_shell(task(command, **changes), guard, stop or Stop(), Live(), environ=WORKERS_OWN)


def text(outcome: Outcome) -> str:
    """What was printed."""
    assert outcome.output is not None
    return outcome.output.text


async def stop_when_up(
    guard: Guard, marker: str, command: str, *, grace: float, now: bool = False, wait: float = 0.0
) -> tuple[Outcome, float]:
    """The outcome, and the seconds from the stop to the end."""
    stop = Stop()
    running = asyncio.create_task(run(guard, command.format(marker), stop=stop, kill_grace=timedelta(seconds=grace)))
    await eventually(lambda: living(marker))
    await asyncio.sleep(wait)
    started = time.monotonic()
    stop.request(StopReason.CANCEL, now=now)
    return await running, time.monotonic() - started
