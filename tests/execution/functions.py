"""What Python jobs of the tests call. Nothing here is called by a test itself."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

NOT_A_FUNCTION = 42


def echo(**keywords: Any) -> dict[str, Any]:
    return keywords


async def echo_async(**keywords: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return keywords


def nothing() -> None:
    print("printed")


def returns_a_coroutine() -> Coroutine[Any, Any, dict[str, Any]]:
    return echo_async(a=1)


class Callable:
    """An object that is called like a coroutine function."""

    async def __call__(self, value: int) -> int:
        return value + 1

    def method(self, value: int) -> int:
        return value * 2


adder = Callable()
partly = functools.partial(echo, b=2)


def where() -> dict[str, Any]:
    return {"pid": os.getpid(), "thread": threading.current_thread().name, "folder": os.getcwd()}


async def where_async() -> dict[str, Any]:
    return where()


def values(which: str) -> Any:
    loop: list[Any] = []
    loop.append(loop)
    found: dict[str, Any] = {
        "set": {1},
        "nan": float("nan"),
        "loop": loop,
        "big": "x" * 2_000_000,
        "nul": {"a\0": "b\0"},
        "surrogate": "\ud800",
        "emoji": "🎉",
        "tuple": (1, 2),
        "keys": {1: "one"},
        "huge": 10**5000,
    }
    return found[which]


async def values_async(which: str) -> Any:
    return values(which)


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def fails(how: str) -> None:
    match how:
        case "odd":
            raise OddError
        case "text":
            raise ValueError("no \0 stock \ud800 🎉")
        case "deep":
            recurse(50)
        case "exit text":
            sys.exit("out of stock")
        case "exit 3":
            sys.exit(3)
        case "exit 256":
            sys.exit(256)
        case "exit 0":
            sys.exit()
        case "interrupt":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit
        case "cancelled":
            raise asyncio.CancelledError
        case "base":
            raise BaseException("the root of it")
        case "long":
            raise ValueError("x" * 1_000_000)


def recurse(depth: int) -> None:
    if depth == 0:
        raise ValueError("deep down")
    recurse_too(depth - 1)


def recurse_too(depth: int) -> None:
    recurse(depth)


async def fails_async(how: str) -> None:
    await asyncio.sleep(0)
    fails(how)


async def fails_in_a_task(how: str) -> None:
    await asyncio.gather(fails_async(how), asyncio.sleep(5))


async def fails_in_a_group(how: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_async(how))
        group.create_task(asyncio.sleep(5))


async def fails_behind_its_back(how: str) -> str:
    task = asyncio.create_task(fails_async(how))
    await asyncio.wait({task})
    return type(task.exception()).__name__


async def uses_tasks() -> list[int]:
    async def one(number: int) -> int:
        await asyncio.sleep(0)
        return number

    unstarted = asyncio.create_task(one(9))
    unstarted.cancel()
    return await asyncio.gather(*(one(number) for number in range(3)))


def os_exit(code: int) -> None:
    print("going")
    os._exit(code)


def execs() -> None:
    os.execv("/bin/true", ["/bin/true"])


def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def changes_its_surroundings(folder: str) -> None:
    os.environ["PGCRON_TEST_LEAK"] = "x"
    os.chdir(folder)
    os.umask(0o777)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.path.clear()


def environment() -> dict[str, str]:
    return dict(os.environ)


def command_line() -> list[str]:
    return sys.argv[1:]


def search_path() -> list[str]:
    return sys.path


def import_and_call(module: str) -> Any:
    return __import__(module).answer()


# Stopping. Each makes a file when it is up; the tests wait for it.


def up(path: str) -> None:
    Path(path).touch()


def sleeps(path: str) -> None:
    up(path)
    time.sleep(600)


def spins(path: str) -> None:
    up(path)
    while True:
        pass


def tidies_up(path: str) -> None:
    try:
        sleeps(path)
    finally:
        print("tidied")


def is_deaf(path: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeps(path)


async def sleeps_async(path: str) -> None:
    try:
        up(path)
        await asyncio.sleep(600)
    finally:
        Path(path).with_suffix(".tidied").touch()
        print("tidied")


async def swallows(path: str) -> str:
    try:
        up(path)
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        return "half done"
    return "done"


async def returns_when_async(path: str, gate: str) -> str:
    up(path)
    is_open = Path(gate).exists
    while not is_open():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
    return "returned"


async def swallows_and_fails(path: str) -> None:
    try:
        up(path)
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        raise ValueError("while tidying up") from None


async def uses_timeouts(path: str) -> str:
    up(path)
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(600)
    except TimeoutError:
        return "in time"
    return "never"


def returns_when(path: str, gate: str) -> str:
    up(path)
    while not Path(gate).exists():
        time.sleep(0.005)
    return "returned"


def prints_and_waits(path: str, gate: str) -> None:
    print("before")
    returns_when(path, gate)
