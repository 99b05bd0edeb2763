"""Redirects: how far they are followed, what they make of a request, and what is not sent on to another host."""

from __future__ import annotations

import pytest

from pgcron_runner.execution.http.definition import read_definition
from pgcron_runner.execution.http.request import Request, first_request
from pgcron_runner.execution.http.urls import BadUrl, follow_url, parse_url
from pgcron_runner.model import Status
from tests.execution.http_runs import ENVIRON, TOKEN, Names, fails, http_task, run, succeeds
from tests.execution.tasks import text_of
from tests.support.http_server import Connection, HttpServer, redirect, reply, serving


async def countdown(connection: Connection) -> None:
    """`/3` leads to `/2`, and so on; `/0` is the place."""
    left = int(connection.request.target.strip("/"))
    await connection.send(redirect(f"/{left - 1}") if left else reply(body=b"here"))


async def test_redirects_are_followed_as_often_as_the_job_says() -> None:
    async with serving(countdown) as server:
        outcome = await succeeds(server.url("/5"))
        assert (text_of(outcome), outcome.result["url"]) == ("here", server.url("/0"))
        assert len(server.requests) == 6
        error = await fails(server.url("/6"))
        assert error == f"more than 5 redirects (args.follow), the last from {server.url('/1')} to /0"
        assert text_of(await succeeds(server.url("/7"), follow=7)) == "here"


async def test_a_loop_ends() -> None:
    async with serving(redirect("/again")) as server:
        assert "more than 5 redirects" in await fails(server.url())
    assert len(server.requests) == 6


async def test_follow_zero_makes_the_redirect_the_answer() -> None:
    async with serving(redirect("/there")) as server:
        outcome = await run(server.url(), follow=0)
        assert (outcome.status, outcome.error) == (Status.FAILED, "status 302 where 2xx was expected")
        assert outcome.reason == "the redirect was not followed: args.follow is 0"
        assert (text_of(outcome), outcome.result["headers"]["location"]) == ("over there", "/there")
        await succeeds(server.url(), follow=0, expect="3xx")
    assert len(server.requests) == 2


async def test_a_redirect_that_is_expected_by_its_number_is_not_followed() -> None:
    async with serving(redirect("/there", "301 Moved")) as server:
        await succeeds(server.url(), expect=301)
        assert "more than 5 redirects" in await fails(server.url(), expect="3xx")


async def test_a_redirect_to_nowhere_is_the_answer() -> None:
    async with serving(reply("302 Found", Location="")) as server:
        assert await fails(server.url()) == "status 302 where 2xx was expected"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("file:///etc/passwd", "it is of the scheme file, not http or https"),
        ("gopher://127.0.0.1/", "it is of the scheme gopher, not http or https"),
        ("http://[::1/", "it cannot be read"),
        ("http://127.0.0.1:99999/", "it cannot be read"),
        ("http://127.0.0.1\\.example.org/", "it has the character '\\\\' in it"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254 is link-local"),
        ("//[fe80::1]/", "fe80::1 is link-local"),
    ],
)
async def test_what_leads_astray_is_not_followed_and_named(location: str, words: str) -> None:
    async with serving(redirect(location)) as server:
        outcome = await run(server.url())
    assert (outcome.error or "").startswith(f"the redirect to {location} is not followed: it ")
    assert words in (outcome.error or "")
    assert outcome.result["status"] == 302
    assert len(server.requests) == 1


async def test_a_redirect_to_a_name_with_a_refused_address_is_not_followed() -> None:
    names = Names(inner_test=["169.254.169.254"])
    async with serving(redirect("http://inner.test/creds")) as server:
        error = await fails(server.url(), names=names)
    assert error.startswith("the redirect to http://inner.test/creds is refused: 169.254.169.254 is link-local")


async def test_a_location_that_is_no_text_is_refused() -> None:
    async with serving(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /\xff\r\n\r\n") as server:
        assert "is not followed: it has the character" in await fails(server.url())


@pytest.mark.parametrize(
    ("method", "status", "then", "keeps_body"),
    [
        ("POST", "301 Moved", "GET", False),
        ("POST", "302 Found", "GET", False),
        ("POST", "303 See Other", "GET", False),
        ("PUT", "303 See Other", "GET", False),
        ("PUT", "302 Found", "PUT", True),
        ("POST", "307 Temporary", "POST", True),
        ("POST", "308 Permanent", "POST", True),
        ("HEAD", "303 See Other", "HEAD", True),
    ],
)
async def test_what_a_redirect_makes_of_the_method(method: str, status: str, then: str, keeps_body: bool) -> None:
    async def answer(connection: Connection) -> None:
        leads = f"HTTP/1.1 {status}\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n".encode()
        await connection.send(leads if connection.request.target == "/" else reply())

    args = {} if method == "HEAD" else {"body": "text"}
    async with serving(answer) as server:
        await succeeds(server.url(), method=method, **args)
    first, second = server.requests
    assert (first.method, second.method) == (method, then)
    assert second.body == (first.body if keeps_body else b"")
    assert second.headers.get("content-type") == (first.headers.get("content-type") if keeps_body else None)
    assert second.headers["idempotency-key"] == first.headers["idempotency-key"]


async def test_credentials_go_to_no_other_host() -> None:
    headers = {
        "Authorization": "Bearer env:API_TOKEN",
        "Cookie": "session=c00kie",
        "X-Custom": "env:API_TOKEN",
        "X-Api-Key": "literal",
        "X-Plain": "plain",
        "Host": "pretended.example",
    }

    async with serving(reply(body=b"there")) as other:

        async def lead_there(connection: Connection) -> None:
            await connection.send(redirect(other.url("/there", host="localhost"), "307 Over"))

        async with serving(lead_there) as server:
            outcome = await succeeds(server.url(), headers=headers, body="x")
    given, passed_on = server.requests[0].headers, other.requests[0].headers
    assert given["authorization"] == f"Bearer {TOKEN}"
    assert given["x-custom"] == TOKEN
    assert given["host"] == "pretended.example"
    assert set(passed_on) & {name.lower() for name in headers} == {"x-plain", "host"}
    assert passed_on["host"] == f"localhost:{other.port}"
    assert outcome.reason == (
        f"Authorization, Cookie, X-Custom, X-Api-Key, Host not sent on to http://localhost:{other.port}"
    )


async def test_credentials_stay_with_redirects_on_their_own_host() -> None:
    async with serving(countdown) as server:
        await succeeds(server.url("/1"), headers={"Authorization": "Bearer env:API_TOKEN"})
    assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {TOKEN}"] * 2


async def test_a_cookie_is_not_kept_from_one_redirect_to_the_next() -> None:
    async def answer(connection: Connection) -> None:
        leads = reply("302 Found", Location="/there", Set_Cookie="session=1; Path=/")
        await connection.send(leads if connection.request.target == "/" else reply())

    # A host with a name: those of addresses are not kept by anybody.
    names = Names(api_test=["127.0.0.1"])
    async with serving(answer) as server:
        await succeeds(server.url(host="api.test"), names=names)
    assert ["cookie" in request.headers for request in server.requests] == [False, False]


async def test_credentials_do_not_come_back_with_the_way_back() -> None:
    async def there_and_back(connection: Connection) -> None:
        target = connection.request.target
        await connection.send(redirect(other.url()) if target == "/" else reply())

    async def back(connection: Connection) -> None:
        await connection.send(redirect(server.url("/end")))

    other: HttpServer
    server: HttpServer
    async with serving(back) as other, serving(there_and_back) as server:
        await succeeds(server.url(), headers={"Authorization": "Bearer env:API_TOKEN"})
    assert ["authorization" in request.headers for request in server.requests] == [True, False]


def request_to(url: str) -> Request:
    args = {"headers": {"Authorization": "Bearer env:API_TOKEN"}}
    return first_request(read_definition(url, args), http_task(url), ENVIRON)


@pytest.mark.parametrize(
    ("start", "location", "stays"),
    [
        ("https://a.test/x", "/y", True),
        ("https://a.test/x", "https://A.TEST:443/y", True),
        ("https://a.test/x", "https://a.test.:443/y", False),
        ("https://a.test/x", "https://b.test/", False),
        ("https://a.test/x", "https://a.test:8443/", False),
        ("https://a.test/x", "http://a.test/", False),
        ("https://a.test/x", "http://a.test:443/", False),
        ("http://a.test/x", "https://a.test/", False),
        ("https://a.test/x", "https://sub.a.test/", False),
        ("https://a.test/x", "//a.test/y", True),
        ("https://a.test/x", "https://a.test@b.test/", False),
    ],
)
def test_another_host_is_another_scheme_name_or_port(start: str, location: str, stays: bool) -> None:
    request = request_to(start)
    following = request.redirected(302, follow_url(request.url, location))
    assert any(header.name == "Authorization" for header in following.headers) == stays


def test_a_user_in_a_location_is_not_made_use_of() -> None:
    followed = follow_url(parse_url("https://a.test/x"), "https://user:pw@b.test/y#z")
    assert (followed.text, followed.user, followed.password) == ("https://b.test/y", None, None)
    with pytest.raises(BadUrl):
        follow_url(parse_url("https://a.test/x"), "mailto:a@b.test")
