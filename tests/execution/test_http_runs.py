"""Http jobs against servers of every kind: what is sent, what is made of the answer, and that all of it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.http.runner import HttpRunner
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status
from tests.execution.http_runs import ENVIRON, fails, http_task, run, succeeds
from tests.execution.tasks import SCHEDULED_FOR, text_of
from tests.support.http_server import Connection, reply, serving
from tests.support.waiting import eventually_async

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1 << 20


# ------------------------------------------------------------------------------------------------ what is sent


async def test_a_request_says_who_asks_for_what_and_when() -> None:
    async with serving(reply()) as server:
        await succeeds(server.url("/hook?a=b%2Fc&d"), task={"job_name": "nächtlich 100%"})
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("GET", "/hook?a=b%2Fc&d", b"")
    assert request.headers["user-agent"].startswith("pgcron-runner/")
    assert request.headers["x-pgcron-job"] == "n%C3%A4chtlich 100%25"
    assert request.headers["x-pgcron-run-id"] == "77"
    assert request.headers["x-pgcron-attempt"] == "1"
    assert request.headers["x-pgcron-scheduled-for"] == "2026-03-01T18:00:00Z"
    assert request.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("args", "method", "kind", "body"),
    [
        ({"json": {"to": "é"}}, "POST", "application/json", '{"to": "é"}'.encode()),
        ({"json": None}, "POST", "application/json", b"null"),
        ({"body": "hallo ü"}, "POST", "text/plain; charset=utf-8", "hallo ü".encode()),
        ({"body": "x=1", "headers": {"content-type": "application/x-www-form-urlencoded"}}, "POST",
         "application/x-www-form-urlencoded", b"x=1"),
        ({"method": "put", "body": ""}, "PUT", "text/plain; charset=utf-8", b""),
        ({"method": "DELETE"}, "DELETE", None, b""),
    ],
)  # fmt: skip
async def test_a_body_is_sent_as_text_or_as_json(
    args: dict[str, Any], method: str, kind: str | None, body: bytes
) -> None:
    async with serving(reply()) as server:
        await succeeds(server.url(), **args)
    (request,) = server.requests
    assert (request.method, request.body) == (method, body)
    assert request.headers.get("content-type") == kind


async def test_a_large_body_is_sent_whole() -> None:
    async with serving(reply()) as server:
        await succeeds(server.url(), body="x" * (3 * MEGABYTE))
    assert server.requests[0].body == b"x" * (3 * MEGABYTE)


async def test_what_the_job_says_goes_before_what_is_usual() -> None:
    headers = {"User-Agent": "ours", "Idempotency-Key": "k", "Accept": "text/csv", "X-Empty": ""}
    async with serving(reply()) as server:
        await succeeds(server.url(), headers=headers)
    sent = server.requests[0].headers
    assert {name: sent[name.lower()] for name in headers} == headers


async def test_all_attempts_at_an_occurrence_carry_one_key_and_no_other_request_does() -> None:
    async with serving(reply()) as server:
        await succeeds(server.url())
        await succeeds(server.url(), task={"attempt": 2, "run_id": 78})
        await succeeds(server.url(), task={"scheduled_for": SCHEDULED_FOR + timedelta(seconds=1)})
        await succeeds(server.url(), task={"job_id": 6})
        # The same number elsewhere: a job of another installation that calls the same host.
        await succeeds(server.url("/other"))
        await succeeds(server.url(), body="x")
        await succeeds(server.url(), task={"job_name": "daily"})
    first, second, *others = [request.headers["idempotency-key"] for request in server.requests]
    assert first == second
    assert len({first, *others}) == 6
    assert first.startswith("pgcron-5-2026-03-01T18:00:00Z-")


async def test_nothing_is_sent_twice_when_the_connection_breaks() -> None:
    async with serving(b"") as server:
        error = await fails(server.url())
    assert f"127.0.0.1:{server.port} closed the connection without an answer; it may have acted" in error
    assert len(server.requests) == 1


async def test_cookies_and_connections_are_not_kept_for_the_next_run() -> None:
    async with serving(reply(Set_Cookie="session=1")) as server:
        await succeeds(server.url())
        await succeeds(server.url())
    assert server.opened == 2
    assert not any("cookie" in request.headers for request in server.requests)


# ------------------------------------------------------------------------------------------ what is made of it


@pytest.mark.parametrize(
    ("status", "expect", "error"),
    [
        (200, None, None),
        (204, None, None),
        (404, None, "status 404 where 2xx was expected"),
        (204, 200, "status 204 where 200 was expected"),
        (404, ["2xx", 404], None),
        (409, [200, "4XX"], None),
        (500, [200, 204, "3xx"], "status 500 where 3xx, 200 or 204 was expected"),
        (304, None, "status 304 where 2xx was expected"),
    ],
)  # fmt: skip
async def test_the_status_decides(status: int, expect: Any, error: str | None) -> None:
    args = {} if expect is None else {"expect": expect}
    async with serving(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode()) as server:
        outcome = await run(server.url(), **args)
    assert outcome.error == error
    assert outcome.status is (Status.SUCCEEDED if error is None else Status.FAILED)
    assert (outcome.result["status"], outcome.exit_code) == (status, None)


async def test_the_result_has_status_url_json_and_the_headers_that_matter() -> None:
    answer = reply(
        body=b'{"id": 7, "text": "a\\u0000\xc3\xa9"}',
        Content_Type="application/json; charset=utf-8",
        X_Request_Id="r-1",
        Retry_After="120",
        Set_Cookie="a=b",
    )
    async with serving(answer) as server:
        outcome = await succeeds(server.url("/x"))
    assert outcome.result == {
        "status": 200,
        "url": server.url("/x"),
        "headers": {
            "content-type": "application/json; charset=utf-8",
            "content-length": "30",
            "x-request-id": "r-1",
            "retry-after": "120",
        },
        "json": {"id": 7, "text": "a␀é"},
    }
    assert json.loads(text_of(outcome)) == {"id": 7, "text": "a\0é"}


@pytest.mark.parametrize(
    ("kind", "body", "parsed"),
    [
        ("application/problem+json", b"[1]", [1]),
        ("text/html", b"[1]", None),
        ("application/json", b"[1", None),
        ("application/json", b"[NaN]", None),
        ("application/json", b"[" * 50_000, None),
        ("application/json", b'"' + b"x" * 70_000 + b'"', None),
    ],
)
async def test_a_body_is_in_the_result_only_where_it_is_small_json(kind: str, body: bytes, parsed: Any) -> None:
    async with serving(reply(body=body, Content_Type=kind)) as server:
        outcome = await succeeds(server.url())
    assert outcome.result.get("json") == parsed


async def test_a_failed_run_keeps_the_page_that_says_why_head_and_tail() -> None:
    page = b"<h1>down</h1>" + b"." * (2 * MEGABYTE) + b"<!-- end -->"
    async with serving(reply("503 Service Unavailable", page)) as server:
        outcome = await run(server.url(), max_body_kb=4096)
    assert (outcome.status, outcome.error) == (Status.FAILED, "status 503 where 2xx was expected")
    assert outcome.output is not None
    assert (outcome.output.total_bytes, outcome.output.truncated) == (len(page), True)
    assert text_of(outcome).startswith("<h1>down")
    assert text_of(outcome).endswith("<!-- end -->")
    assert len(text_of(outcome)) < 66_000


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with serving(OK + b"\r\nall of it") as server:
        assert text_of(await succeeds(server.url())) == "all of it"


@pytest.mark.parametrize(("method", "status"), [("HEAD", "200 OK"), ("GET", "204 No Content"), ("GET", "304 Same")])
async def test_an_answer_without_a_body_is_whole(method: str, status: str) -> None:
    answer = f"HTTP/1.1 {status}\r\nContent-Length: 10\r\n\r\n".encode()

    async def keep_open(connection: Connection) -> None:
        await connection.send(answer)
        await connection.wait_closed()

    async with serving(keep_open) as server:
        outcome = await succeeds(server.url(), method=method, expect=["2xx", 304])
    assert text_of(outcome) == ""


async def test_another_protocol_is_not_read() -> None:
    async def upgrade(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
        await connection.wait_closed()

    async with serving(upgrade) as server:
        assert await fails(server.url()) == "status 101 where 2xx was expected"


async def test_what_came_so_far_can_be_seen_while_it_runs() -> None:
    first_half_seen = asyncio.Event()

    async def answer(connection: Connection) -> None:
        await connection.send(OK + b"Content-Length: 12\r\n\r\nhalf, ")
        await first_half_seen.wait()
        await connection.send(b"whole.")

    live, stop = Live(), Stop()
    async with serving(answer) as server:
        going = asyncio.ensure_future(HttpRunner(ENVIRON).run(http_task(server.url()), stop, live))

        async def shown() -> str:
            said = live.news()
            return "" if said is None or said.output is None else said.output.text

        assert await eventually_async(shown) == "half, "
        first_half_seen.set()
        assert text_of(await going) == "half, whole."


async def test_the_library_is_loaded_by_the_first_request_alone() -> None:
    script = """
import sys, pgcron_runner.execution.runners, pgcron_runner.cli.job_add
print("aiohttp" in sys.modules)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert printed == b"False\n"
