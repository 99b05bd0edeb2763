"""Servers that would never end: a run on them is over as soon as it is stopped, and says how far it had come."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execute import Execute
from pgcron_runner.execution.http.lookups import Lookups
from pgcron_runner.execution.http.runner import HttpRunner
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, Status, StopReason
from tests.execution.http_runs import ENVIRON, black_hole, http_task, some_output
from tests.execution.tasks import running, text_of
from tests.support.http_server import Answer, Connection, redirect, reply, serving
from tests.support.waiting import eventually_async

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1 << 20


Reached = Callable[[], bool]
Ending = tuple[str, Reached]


@asynccontextmanager
async def _answering(answer: Answer, *, requests: int = 1, reads_bodies: bool = True) -> AsyncIterator[Ending]:
    """Where it is asked for the `requests`th time, it has come to where it will stay."""
    async with serving(answer, reads_bodies=reads_bodies) as server:
        yield server.url(), lambda: len(server.requests) >= requests
        await server.all_closed()


def _drip_body(live: Live) -> AbstractAsyncContextManager[Ending]:
    async def answer(connection: Connection) -> None:
        await connection.send(OK + b"\r\n")
        await connection.send_for_ever(b"x", pause=0.01)

    return _once_kept(answer, live)


def _endless_chunk_extension(live: Live) -> AbstractAsyncContextManager[Ending]:
    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED + b"1\r\nx\r\n1;")
        await connection.send_for_ever(b"e" * 1000, pause=0.01)

    return _once_kept(answer, live)


@asynccontextmanager
async def _once_kept(answer: Answer, live: Live) -> AsyncIterator[Ending]:
    async with _answering(answer) as (url, _):
        yield url, lambda: live.output is not None and live.output.total_bytes > 0


def _drip_headers(_: Live) -> AbstractAsyncContextManager[Ending]:
    async def answer(connection: Connection) -> None:
        await connection.send(OK)
        await connection.send_for_ever(b"X", pause=0.01)

    return _answering(answer)


def _silence(_: Live) -> AbstractAsyncContextManager[Ending]:
    return _answering(Connection.wait_closed)


def _interim_answers(_: Live) -> AbstractAsyncContextManager[Ending]:
    async def answer(connection: Connection) -> None:
        await connection.send_for_ever(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100, pause=0.01)

    return _answering(answer)


def _slow_redirects(_: Live) -> AbstractAsyncContextManager[Ending]:
    async def answer(connection: Connection) -> None:
        await connection.send(redirect("/x") if connection.request.target == "/" else b"")
        await connection.wait_closed()

    return _answering(answer, requests=2)


@asynccontextmanager
async def _unread_request(_: Live) -> AsyncIterator[Ending]:
    over = asyncio.Event()

    async def answer(connection: Connection) -> None:
        await over.wait()
        await connection.wait_closed()

    async with _answering(answer, reads_bodies=False) as ending:
        yield ending
        over.set()


@asynccontextmanager
async def _silent_tls(_: Live) -> AsyncIterator[Ending]:
    async with serving(Connection.wait_closed) as server:
        yield server.url().replace("http:", "https:"), lambda: server.opened > 0
        await server.all_closed()


@asynccontextmanager
async def _black_hole(_: Live) -> AsyncIterator[Ending]:
    with black_hole() as (port, callers):
        before = callers()
        yield f"http://[::1]:{port}/", lambda: callers() > before


@asynccontextmanager
async def _no_name_server(_: Live) -> AsyncIterator[Ending]:
    yield "http://never.test/", lambda: _Hanging.asked


class _Hanging(Lookups):
    asked = False

    async def find(self, host: str) -> list[str]:
        type(self).asked = True
        await asyncio.Event().wait()
        raise AssertionError


NEVER = [
    (_drip_body, "the body was coming from http://127.0.0.1:"),
    (_drip_headers, "it was waiting for the answer of http://127.0.0.1:"),
    (_silence, "it was waiting for the answer of http://127.0.0.1:"),
    (_interim_answers, "it was waiting for the answer of http://127.0.0.1:"),
    (_endless_chunk_extension, "the body was coming from http://127.0.0.1:"),
    (_slow_redirects, "it was waiting for the answer of http://127.0.0.1:"),
    (_unread_request, "it was waiting for the answer of http://127.0.0.1:"),
    (_silent_tls, "it was connecting to https://127.0.0.1:"),
    (_black_hole, "it was connecting to http://[::1]:"),
    (_no_name_server, "it was looking up the name of http://never.test/"),
]


@pytest.mark.parametrize(("never_ends", "where"), NEVER, ids=[case.__name__[1:] for case, _ in NEVER])
async def test_a_stop_ends_it_wherever_it_is(never_ends: Any, where: str) -> None:
    recorded = asyncio.Event()
    live = Live()
    execute = Execute({Kind.HTTP: _with(live, _Hanging())}, recorded.set)
    args = {"body": "x" * (20 * MEGABYTE)} if never_ends is _unread_request else {}
    async with never_ends(live) as (url, reached):
        execute.start([http_task(url, args)])

        async def there() -> bool:
            return bool(reached())

        await eventually_async(there, message=where)
        execute.stop([77], StopReason.TIMEOUT)
        async with asyncio.timeout(20):
            await recorded.wait()
    outcome = execute.unrecorded[77].outcome
    assert outcome.status is Status.TIMED_OUT
    assert (outcome.reason or "").startswith(f"it took longer than its timeout of 1:00:00; {where}")
    assert outcome.error is None


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_connection_that_its_server_never_reads_is_not_left_behind() -> None:
    over = asyncio.Event()

    async def answer(_: Connection) -> None:
        await over.wait()

    stop = Stop()
    task_args = {"body": "x" * (20 * MEGABYTE)}
    async with serving(answer, reads_bodies=False) as server:
        before = len(os.listdir("/proc/self/fd"))
        async with running(HttpRunner(ENVIRON).run, http_task(server.url(), task_args), stop) as going:
            await _stuck(server.port)
            stop.request(StopReason.CANCEL)
            await going

        async def only_the_server_has_one() -> bool:
            return len(os.listdir("/proc/self/fd")) == before + 1

        await eventually_async(only_the_server_has_one)
        over.set()


async def _stuck(port: int) -> None:
    """Until what is sent to the port has stood still for a while, with more to be sent."""
    seen: list[int] = []

    async def stands_still() -> bool:
        seen.append(_waiting_to_be_sent(port))
        return seen[-1] > 0 and len(seen) > 30 and len(set(seen[-30:])) == 1

    await eventually_async(stands_still, 30, message="the other side has stopped reading")


def _waiting_to_be_sent(port: int) -> int:
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return sum(int(line[4][:8], 16) for line in lines if line[2].endswith(f":{port:04X}"))


async def test_one_deadline_holds_for_all_of_it() -> None:
    recorded = asyncio.Event()
    execute = Execute({Kind.HTTP: HttpRunner(ENVIRON).run}, recorded.set)
    async with _drip_body(Live()) as (url, _):
        execute.start([http_task(url, timeout=timedelta(seconds=0.3))])
        async with asyncio.timeout(20):
            await recorded.wait()
    assert execute.unrecorded[77].outcome.status is Status.TIMED_OUT


async def test_a_stop_tells_how_far_it_had_come() -> None:
    live = Live()

    async def answer(connection: Connection) -> None:
        await connection.send(OK + b"\r\n" + b"x" * 10)
        await connection.wait_closed()

    async with serving(answer) as server:
        stop = Stop()
        async with running(_with(live), http_task(server.url()), stop) as going:
            await some_output(live)
            stop.request(StopReason.DRAIN)
            outcome = await going
        await server.all_closed()
    assert (outcome.status, outcome.error) == (Status.FAILED, None)
    assert outcome.reason == f"the body was coming from {server.url()}, 10 bytes so far"
    assert (text_of(outcome), outcome.result["status"]) == ("x" * 10, 200)


async def test_an_answer_that_had_come_before_the_stop_stays() -> None:
    stop = Stop()

    async def answer(connection: Connection) -> None:
        await connection.send(reply(body=b"done"))

    async with serving(answer) as server:
        outcome = await HttpRunner(ENVIRON).run(http_task(server.url()), stop, Live())
        stop.request(StopReason.TIMEOUT)
    assert outcome.status is Status.SUCCEEDED


async def test_a_lookup_gives_its_place_back_though_nobody_waits_for_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    real = socket.getaddrinfo

    def resolver(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.test":
            answered.wait()
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    lookups = Lookups(most=1)
    assert await lookups.find("a.test") == ["127.0.0.1"]
    slow = asyncio.ensure_future(lookups.find("slow.test"))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(lookups.find("b.test"))
    slow.cancel()
    await asyncio.wait([slow])
    assert not waiting.done()
    answered.set()
    async with asyncio.timeout(20):
        assert await waiting == ["127.0.0.1"]


async def test_lookups_that_hang_hold_up_neither_the_run_nor_the_end_of_the_process() -> None:
    """The system's resolver blocks its thread for as long as the name servers are silent."""
    script = """
import asyncio, socket, threading
from pgcron_runner.execution.http.lookups import Lookups
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
async def main():
    lookups = Lookups(most=2)
    for _ in range(3):
        try:
            async with asyncio.timeout(0.05):
                await lookups.find("x")
        except TimeoutError:
            print("given up")
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    async with asyncio.timeout(30):
        printed, _ = await process.communicate()
    assert (printed, process.returncode) == (b"given up\n" * 3, 0)


def _with(live: Live, lookups: Lookups | None = None) -> Any:
    """A runner whose output so far the test can see."""

    async def run_watched(task: Any, stop: Stop, _: Live) -> Outcome:
        return await HttpRunner(ENVIRON, lookups).run(task, stop, live)

    return run_watched
