"""Http runs for tests: one call is one run, on names that lead where the test says."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.http.lookups import Lookups
from pgcron_runner.execution.http.runner import HttpRunner
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, Status, Task
from tests.execution.tasks import some_task
from tests.support.waiting import eventually_async

TOKEN = "s3cr3t-1"
ENVIRON = {"API_TOKEN": TOKEN, "PGPASSWORD": "never", "LINES": "a\nb"}


class Names(Lookups):
    """A resolver for which each name has the addresses of the test; it counts what it is asked."""

    def __init__(self, **addresses: list[str]) -> None:
        super().__init__()
        self._names = {name.replace("_", "."): found for name, found in addresses.items()}
        self.asked: list[str] = []

    async def find(self, host: str) -> list[str]:
        self.asked.append(host)
        if host not in self._names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._names[host]


def http_task(url: str, args: Mapping[str, Any] | None = None, **changes: Any) -> Task:
    return some_task(url, kind=Kind.HTTP, args=dict(args or {}), **changes)


async def run(
    url: str,
    *,
    names: Lookups | None = None,
    live: Live | None = None,
    task: Mapping[str, Any] | None = None,
    **args: Any,
) -> Outcome:
    """One run to its end; `args` are the job's, `task` what else is to be known of it."""
    runner = HttpRunner(ENVIRON, names)
    async with asyncio.timeout(30):
        return await runner.run(http_task(url, args, **task or {}), Stop(), live or Live())


async def fails(url: str, **options: Any) -> str:
    """The error of a run that must fail."""
    outcome = await run(url, **options)
    assert outcome.status is Status.FAILED, outcome
    assert outcome.error is not None
    return outcome.error


async def succeeds(url: str, **options: Any) -> Outcome:
    outcome = await run(url, **options)
    assert outcome.status is Status.SUCCEEDED, outcome
    return outcome


async def some_output(live: Live) -> None:
    """Until the first byte of a body is kept."""

    async def kept() -> bool:
        return live.output is not None and live.output.total_bytes > 0

    await eventually_async(kept, message="some of the body has come")


@contextmanager
def black_hole(port: int = 0) -> Iterator[tuple[int, Callable[[], int]]]:
    """A port of ::1 that answers no call: who listens there has no room for one more. And how many are calling now."""
    if sys.platform != "linux":
        pytest.skip("elsewhere a full queue refuses")
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_INET6))
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("::1", port))
        listener.listen(0)
        address = listener.getsockname()
        while _connects(address, opened):
            pass
        yield address[1], lambda: _calling(address[1])


def _connects(address: tuple[Any, ...], opened: ExitStack) -> bool:
    caller = opened.enter_context(socket.socket(socket.AF_INET6))
    caller.settimeout(0.2)
    try:
        caller.connect(address)
    except TimeoutError:
        return False
    return True


def _calling(port: int) -> int:
    """How many calls to the port have no answer yet (SYN_SENT, 02)."""
    calls = (line.split() for line in Path("/proc/net/tcp6").read_text().splitlines())
    return sum(call[2].endswith(f":{port:04X}") and call[3] == "02" for call in calls)
