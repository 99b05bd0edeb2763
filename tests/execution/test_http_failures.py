"""Answers without measure, broken ones, and none at all: each ends as a failed run that says what was wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.http import connections
from pgcron_runner.execution.http.lookups import Lookups
from pgcron_runner.execution.live import Live
from pgcron_runner.model import Status
from tests.execution.http_runs import Names, black_hole, fails, run, some_output, succeeds
from tests.execution.tasks import text_of
from tests.support.http_server import Connection, reply, serving

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1 << 20


async def test_of_an_endless_body_no_more_than_the_cap_is_read_and_the_status_decides() -> None:
    async def ten_gigabytes(connection: Connection) -> None:
        await connection.send(OK + b"Content-Length: 10737418240\r\n\r\n")
        await connection.send_for_ever(b"x" * 65_536)

    async with serving(ten_gigabytes) as server:
        outcome = await succeeds(server.url())
        assert outcome.reason == "the body was cut after 1,048,576 bytes"
        assert outcome.output is not None
        assert outcome.output.total_bytes == MEGABYTE
        await server.all_closed()
        # What fits into the buffers between the two, no more.
        assert server.sent < 32 * MEGABYTE
        outcome = await run(server.url(), max_body_kb=1, expect=204, task={"output_limit_kb": 1})
    assert (outcome.error, outcome.reason) == (
        "status 200 where 204 was expected",
        "the body was cut after 1,024 bytes",
    )


async def test_a_body_that_ends_at_the_cap_is_whole() -> None:
    async with serving(reply(body=b"x" * 1024)) as server:
        outcome = await succeeds(server.url(), max_body_kb=1, task={"output_limit_kb": 1})
    assert outcome.reason is None


async def test_all_that_the_output_has_room_for_is_read() -> None:
    async with serving(reply(body=b"x" * (2 * MEGABYTE))) as server:
        outcome = await succeeds(server.url(), max_body_kb=1, task={"output_limit_kb": 4096})
    assert (outcome.reason, len(text_of(outcome))) == (None, 2 * MEGABYTE)


async def test_a_small_body_that_would_unpack_to_gigabytes_is_kept_as_it_came() -> None:
    bomb = gzip.compress(b"\0" * (64 * MEGABYTE))
    async with serving(reply(body=bomb, Content_Encoding="gzip")) as server:
        outcome = await succeeds(server.url())
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert outcome.reason == "the body came with the encoding gzip, unasked for, and is kept so"
    assert outcome.output is not None
    assert outcome.output.total_bytes == len(bomb)


_MEASURE = """
import asyncio, json, resource, sys
from tests.execution.http_runs import run
import pgcron_runner.execution.http.client
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcome = asyncio.run(run(sys.argv[1], **json.loads(sys.argv[2])))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([outcome.output.total_bytes, after - before]))
"""


async def test_memory_does_not_grow_with_what_is_read() -> None:
    async def flood(connection: Connection) -> None:
        await connection.send(OK + b"Content-Length: 10737418240\r\n\r\n")
        await connection.send_for_ever(b"x" * 262_144)

    async with serving(flood) as server:
        args = json.dumps({"max_body_kb": 200 * 1024})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _MEASURE, server.url(), args,
            cwd=Path(__file__).parents[2], stdout=subprocess.PIPE,
        )  # fmt: skip
        printed, _ = await process.communicate()
    received, grown_kb = json.loads(printed)
    assert received == 200 * MEGABYTE
    assert grown_kb < 40 * 1024 * (1 if sys.platform == "linux" else 1024)


@pytest.mark.parametrize(
    ("head", "flaw"),
    [
        (b"X-Long: " + b"y" * 40_000 + b"\r\n", "a header is too large"),
        (b"X: y\r\n" * 300, "Too many headers"),
        (b"Content-Length: -5\r\n", "Content-Length"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding"),
    ],
)  # fmt: skip
async def test_headers_without_measure_are_a_malformed_answer(head: bytes, flaw: str) -> None:
    async with serving(OK + head + b"\r\n") as server:
        error = await fails(server.url())
    assert f"127.0.0.1:{server.port} gave a malformed answer (" in error
    assert flaw in error


# --------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 O", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "gave a malformed answer (Bad status line"),
        (CHUNKED + b"3\r\nabc\r\nzz\r\n", "gave a malformed answer ("),
    ],
)
async def test_no_answer_or_a_broken_one_is_a_failed_run_that_says_so(answer: bytes, words: str) -> None:
    async with serving(answer) as server:
        outcome = await run(server.url())
    assert (outcome.status, outcome.exit_code, outcome.result) == (Status.FAILED, None, None)
    assert words in (outcome.error or "")


@pytest.mark.parametrize(
    ("head", "rest", "words"),
    [
        (CHUNKED, b"3\r\nabc\r\nzz\r\n", ""),
        (CHUNKED, b"3\r\nabc\r\n8\r\nde", "Not enough data"),
        (CHUNKED, b"3\r\nabc\r\n", "Not enough data"),
        (OK + b"Content-Length: 10\r\n\r\n", b"abc", "Not enough data"),
    ],
)
async def test_a_body_that_breaks_off_fails_a_run_with_a_good_status(head: bytes, rest: bytes, words: str) -> None:
    headers_seen = asyncio.Event()
    live = Live()

    async def answer(connection: Connection) -> None:
        await connection.send(head + (b"1\r\n>\r\n" if head is CHUNKED else b">"))
        await headers_seen.wait()
        await connection.send(rest)

    async with serving(answer) as server:
        going = asyncio.ensure_future(run(server.url(), live=live))
        await some_output(live)
        headers_seen.set()
        outcome = await going
    assert outcome.status is Status.FAILED
    assert f"the body of the answer of 127.0.0.1:{server.port} broke off or is malformed: {words}" in (
        outcome.error or ""
    )
    assert outcome.result["status"] == 200
    assert text_of(outcome).startswith(">")


async def test_the_status_is_told_first_where_the_body_breaks_off_as_well() -> None:
    async with serving(b"HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nabc") as server:
        outcome = await run(server.url())
    assert outcome.error == "status 500 where 2xx was expected"
    assert "broke off" in (outcome.reason or "")


async def test_a_connection_that_is_reset_is_told_as_such() -> None:
    async def reset(connection: Connection) -> None:
        linger = b"\1\0\0\0\0\0\0\0"
        connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.writer.transport.abort()

    async with serving(reset) as server:
        error = await fails(server.url())
    assert error.startswith(f"the connection to 127.0.0.1:{server.port} broke before an answer came: Connection reset")


async def test_a_port_where_nobody_listens_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await fails(f"http://127.0.0.1:{port}/") == f"connection refused by 127.0.0.1:{port}"
    names = Names(both_test=["127.0.0.1", "127.0.0.2"])
    assert "both.test" in await fails(f"http://both.test:{port}/", names=names)


@pytest.mark.parametrize("name", ["nothing.invalid", "a..b", "x" * 64 + ".org", "münchen.invalid"])
async def test_a_name_that_nobody_has_is_told_as_such(name: str) -> None:
    assert (await fails(f"http://{name}/")).startswith("name not found: ")


async def test_a_name_server_that_does_not_answer_is_not_a_missing_name() -> None:
    class Silent(Lookups):
        async def find(self, host: str) -> list[str]:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    error = await fails("http://api.test/", names=Silent())
    assert error == "the name api.test could not be looked up: Temporary failure in name resolution"


async def test_a_black_hole_of_an_address_does_not_keep_it_from_the_next() -> None:
    async with serving(reply(body=b"v4")) as server:
        with black_hole(server.port):
            names = Names(dual_test=["::1", "127.0.0.1"])
            outcome = await succeeds(server.url(host="dual.test"), names=names)
    assert text_of(outcome) == "v4"
    assert server.requests[0].headers["host"] == f"dual.test:{server.port}"


async def test_an_address_of_ipv6_is_called_like_any_other() -> None:
    async with serving(reply(body=b"v6"), host="::1") as server:
        assert text_of(await succeeds(server.url(host="[::1]"))) == "v6"


async def test_a_fault_of_ours_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> Any:
        raise LookupError("a header was s3cr3t-1")

    monkeypatch.setattr(connections, "_Resolver", fault)
    with pytest.raises(Exception, match=r"LookupError.*\*\*\*") as raised:
        await run("http://127.0.0.1:1/", headers={"X-Key": "env:API_TOKEN"})
    assert "s3cr3t" not in str(raised.value)
