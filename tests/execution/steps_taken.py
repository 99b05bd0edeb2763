"""What the tests of `pgcron_runner.run` call, each in a process of its own, in a thread or on the worker's loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pgcron_runner import run


def tells(**keywords: Any) -> dict[str, Any]:
    return {
        "id": run.id,
        "job": run.job,
        "attempt": run.attempt,
        "scheduled_for": run.scheduled_for.isoformat(),
        "args": run.args,
        "state": run.state,
        "cancelled": run.cancelled,
    }


async def tells_async(**keywords: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return tells()


def says_all() -> None:
    run.progress(10, "begun")
    run.save({"cursor": 1})
    run.save(cursor=40, table="users")
    run.progress(40, "copied\nusers")
    run.run_after("10s")
    run.run_after(1.5, job="report", args={"day": "2027-01-31"})
    run.result({"rows": 17})


async def says_all_async() -> None:
    await asyncio.create_task(_says_all_in_a_task())


async def _says_all_in_a_task() -> None:
    says_all()


def returns_and_says() -> str:
    run.result("said")
    return "returned"


def saves(what: str) -> Any:
    match what:
        case "set":
            run.save({1})
        case "none":
            run.save(None)
        case "both":
            run.save({}, cursor=1)
        case "nan":
            run.save(cursor=float("nan"))
        case "big":
            run.save("x" * 2_000_000)
        case "to a list":
            run.save([1])
            run.save(cursor=1)
        case "delay":
            run.run_after("ten minutes ago")
        case "unit":
            run.run_after("10")
        case "negative":
            run.run_after(-1)
        case "nothing":
            run.save({})
    return run.state


def changes_its_copy(day: str) -> Any:
    run.state["cursor"] = 2
    run.args["day"] = "tomorrow"
    return [run.state, run.args]


def saves_and_is_killed() -> None:
    run.progress(50, "half")
    run.save(cursor=50)
    os.kill(os.getpid(), signal.SIGKILL)


def saves_and_waits(path: str, gate: str) -> None:
    run.progress(50, "half")
    run.save(cursor=50)
    Path(path).touch()
    while not Path(gate).exists():
        time.sleep(0.005)


def progresses(times: int) -> None:
    for number in range(times):
        run.progress(100 * number / times, f"{number} rows")
    run.progress(100, "done")


def and_a_shell() -> None:
    append = 'echo "{}" >> "$PGCRON_PROGRESS"'
    run.progress(10, "a long text that the next is to be written over")
    subprocess.run(["/bin/sh", "-c", append.format("20 shell")], check=True)
    run.progress(30, "again")
    subprocess.run(["/bin/sh", "-c", 'printf "40 without an end" >> "$PGCRON_PROGRESS"'], check=True)
    run.progress(50, "last")


def starts_a_script() -> None:
    code = "from pgcron_runner import run; run.save(**run.state, script=run.id); run.progress(70)"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def looks_until_cancelled(path: str) -> str:
    assert not run.cancelled
    Path(path).touch()
    while not run.cancelled:
        time.sleep(0.005)
    run.save(cursor="where it was")
    return "in order"


def looks_in_a_thread_until_cancelled(path: str) -> str:
    answers = []
    thread = threading.Thread(target=lambda: answers.append(looks_until_cancelled(path)))
    thread.start()
    thread.join()
    return answers[0]


def tidies_up_and_looks(path: str) -> None:
    try:
        Path(path).touch()
        time.sleep(600)
    finally:
        print(f"cancelled: {run.cancelled}")


async def tidies_up_and_looks_async(path: str) -> None:
    assert not run.cancelled
    try:
        Path(path).touch()  # noqa: ASYNC240 # a local file
        await asyncio.sleep(600)
    finally:
        run.save(cancelled=run.cancelled)
