"""`odd_worker.py WHAT …`: the worker's side of the guard in surroundings that no test can be in itself; prints JSON.

It runs as another user, in a namespace of its own, or as the first process of one, and needs the standard library only.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from pgcron_runner.clock import boottime
from pgcron_runner.execution import orphans
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, RetryPolicy, StopReason, Task
from tests.execution.escapes import ENV, ESCAPES, living


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 # no event tells of processes that are not ours
            await asyncio.sleep(0.01)


async def escapes(guard: Guard, marker: str) -> dict[str, object]:
    """Every way to hide, ended by kill_tree and then by the deadline."""
    marker = marker.removeprefix("=")  # or this very process would have it too
    by_kill = []
    for script in ESCAPES.values():
        process = await guard.launch(Command(("/bin/sh", "-c", script.format(marker)), ENV), OutputBuffer(100))
        await until(lambda: living(marker))
        by_kill.append(await process.kill_tree() and not living(marker))
    for script in ESCAPES.values():
        await guard.launch(Command(("/bin/sh", "-c", script.format(marker)), ENV), OutputBuffer(100))
    await until(lambda: len(living(marker)) >= len(ESCAPES))
    guard.feed(boottime())
    await until(lambda: not living(marker))
    return {"pid": os.getpid(), "uid": os.geteuid(), "killed": by_kill, "left": living(marker)}


async def stopped(guard: Guard, script: str) -> dict[str, object]:
    """A shell job that is stopped once it has printed something."""
    stop, live = Stop(), Live()
    running = asyncio.create_task(command(guard, script, "{}", stop, live))
    await until(lambda: live.output is not None and live.output.total_bytes)
    stop.request(StopReason.CANCEL)
    return await running


async def command(
    guard: Guard, script: str, args: str, stop: Stop | None = None, live: Live | None = None
) -> dict[str, object]:
    """A shell job."""
    task = Task(
        run_id=1,
        job_id=1,
        job_name="odd",
        kind=Kind.SHELL,
        command=script,
        args=json.loads(args),
        scheduled_for=datetime.now(UTC),
        attempt=1,
        exclusive=True,
        timeout=timedelta(hours=1),
        kill_grace=timedelta(seconds=0.2),
        retry=RetryPolicy(),
    )
    outcome = await run_shell(task, guard, stop or Stop(), live or Live())
    text = outcome.output.text if outcome.output is not None else ""
    return {"status": outcome.status, "error": outcome.error, "reason": outcome.reason, "text": text}


async def orphan(guard: Guard) -> dict[str, object]:
    """As the first process: somebody else's orphan is taken leave of, and what somebody awaits is left to him."""
    awaited = await asyncio.to_thread(subprocess.Popen, ["sleep", "0.1"])
    lost = int(await asyncio.to_thread(subprocess.check_output, ["sh", "-c", "sleep 0.1 >/dev/null & echo $!"]))
    process = await guard.launch(Command(("/bin/sh", "-c", "(sleep 0.3 &); exit 4"), ENV), OutputBuffer(100))
    code = awaited.wait()
    status = await process.wait()
    await until(lambda: not os.path.exists(f"/proc/{lost}"))
    return {"pid": os.getpid(), "awaited": code, "code": status.code}


DOINGS: dict[str, Callable[..., Awaitable[object]]] = {
    "escapes": escapes,
    "command": command,
    "stopped": stopped,
    "orphan": orphan,
}


async def main(what: str, *arguments: str) -> None:
    guard.attach()
    print(json.dumps(await DOINGS[what](guard, *arguments)))
    await guard.close()


if __name__ == "__main__":
    orphans._PAUSE = 0.5
    guard = Guard.start()
    asyncio.run(main(*sys.argv[1:]))
