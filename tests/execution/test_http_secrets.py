"""What an http job takes from its worker's environment is sent, and shown nowhere."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import asdict

import pytest

from pgcron_runner.execution.http.definition import read_definition
from pgcron_runner.execution.http.redaction import Redactor, Secrets
from pgcron_runner.execution.http.request import first_request
from pgcron_runner.model import Outcome
from tests.execution.http_runs import ENVIRON, TOKEN, fails, http_task, run, succeeds
from tests.execution.tasks import text_of
from tests.support.http_server import Connection, redirect, reply, serving

HEADERS = {"Authorization": "Bearer env:API_TOKEN", "X-Key": "env:API_TOKEN"}


def everything_of(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome), default=str)


async def test_a_value_of_the_environment_is_sent() -> None:
    async with serving(reply()) as server:
        await succeeds(server.url(), headers=HEADERS)
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["x-key"]) == (f"Bearer {TOKEN}", TOKEN)


async def test_a_server_that_echoes_it_does_not_bring_it_into_the_history() -> None:
    async def echo(connection: Connection) -> None:
        body = json.dumps({"you": TOKEN, "sent": [f"Bearer {TOKEN}"], "url": f"/?t={TOKEN}"}).encode()
        answer = reply("500 Oh", body, Content_Type="application/json", X_Request_Id=f"r-{TOKEN}", Location=f"/{TOKEN}")
        await connection.send(answer)

    async with serving(echo) as server:
        outcome = await run(server.url(), headers=HEADERS)
    assert TOKEN not in everything_of(outcome)
    assert outcome.result["json"] == {"you": "***", "sent": ["***"], "url": "/?t=***"}
    assert outcome.result["headers"]["x-request-id"] == "r-***"
    assert json.loads(text_of(outcome))["you"] == "***"


async def test_it_is_masked_where_the_network_has_cut_it_in_two() -> None:
    async def drip(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        for letter in f"<{TOKEN}><s3cr3t><s3cr3t-{TOKEN}>s3cr3t-":
            await connection.send(letter.encode())

    async with serving(drip) as server:
        outcome = await succeeds(server.url(), headers=HEADERS)
    assert text_of(outcome) == "<***><s3cr3t><s3cr3t-***>s3cr3t-"


async def test_it_is_masked_in_errors_and_urls_too() -> None:
    async with serving(redirect(f"gopher://x/{TOKEN}")) as server:
        assert (await fails(server.url(), headers=HEADERS)).startswith("the redirect to gopher://x/*** is not followed")
    async with serving(redirect(f"/{TOKEN}")) as server:
        assert TOKEN not in everything_of(await run(server.url(), headers=HEADERS))
    async with serving(f"HTTP/1.1 200 OK\r\n{TOKEN}\r\n\r\n".encode()) as server:
        error = await fails(server.url(), headers=HEADERS)
    assert "gave a malformed answer" in error
    assert TOKEN not in error


async def test_a_literal_authorization_is_masked_as_well() -> None:
    async with serving(reply(body=b"you are Basic dXNlcjpwdw==, or dXNlcjpwdw==")) as server:
        outcome = await succeeds(server.url(), headers={"authorization": "Basic dXNlcjpwdw=="})
    assert text_of(outcome) == "you are ***, or ***"


async def test_a_user_in_the_url_becomes_basic_authorization_and_is_shown_nowhere() -> None:
    pair = b64encode(b"us:er:p@55word").decode()

    async def echo(connection: Connection) -> None:
        told = f"{connection.request.headers['authorization']} p@55word {connection.request.target}".encode()
        await connection.send(reply("401 No", told))

    async with serving(echo) as server:
        url = server.url("/x").replace("http://", "http://us%3Aer:p%4055word@")
        outcome = await run(url)
    assert server.requests[0].headers["authorization"] == f"Basic {pair}"
    assert text_of(outcome) == "*** *** /x"
    assert outcome.result["url"] == server.url("/x")
    for secret in (pair, "p@55word", "p%4055word", "us%3Aer"):
        assert secret not in everything_of(outcome)


async def test_a_run_that_is_refused_by_its_server_shows_no_user() -> None:
    outcome = await run("http://user:pa55word@127.0.0.1:1/")
    assert outcome.error == "connection refused by 127.0.0.1:1"
    assert "pa55word" not in everything_of(outcome)


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"X-Key": "env:NOT_THERE"}, "'X-Key' asks for NOT_THERE, which this worker's environment has not"),
        ({"X-Key": "env:LINES"}, "'X-Key' asks for LINES, which holds more than one line"),
        ({"X-Key": "env:PGPASSWORD"}, "'X-Key' asks for PGPASSWORD, which is the worker's own"),
    ],
)
async def test_what_the_environment_does_not_have_is_not_launched(headers: dict[str, str], sentence: str) -> None:
    async with serving(reply()) as server:
        error = await fails(server.url(), headers=headers)
    assert error.startswith(f"launch failed: args.headers: {sentence}")
    assert server.requests == []


def test_no_value_is_in_what_a_request_looks_like_in_a_log() -> None:
    definition = read_definition("http://user:pa55word@127.0.0.1/", {"body": "bodytext"})
    request = first_request(definition, http_task(""), ENVIRON)
    assert not any(text in repr((definition.url, request)) for text in ("pa55word", "dXNlcjpwYTU1d29yZA", "bodytext"))


# ------------------------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize(
    ("secrets", "text", "shown"),
    [
        ([], "anything", "anything"),
        (["abcd"], "abcdabcd abc", "****** abc"),
        (["Bearer abcd"], "abcd Bearer abcd bcd", "*** *** bcd"),
        (['a"b\\c/d'], r"""a"b\c/d a\"b\\c/d a%22b%5Cc%2Fd""", "*** *** ***"),
        (["abcd", "abcdefgh"], "abcdefgh abcdef", "*** ***ef"),
        (["xyz", ""], "xyz", "xyz"),
        (["pässwort"], "das pässwort war pässwort", "das *** war ***"),
    ],
)
def test_secrets_are_masked_in_all_their_forms(secrets: list[str], text: str, shown: str) -> None:
    assert Secrets(secrets).hide(text) == shown


def pieces(redactor: Redactor, data: bytes, size: int) -> bytes:
    fed = b"".join(redactor.feed(data[start : start + size]) for start in range(0, len(data), size))
    return fed + redactor.end()


@pytest.mark.parametrize("size", range(1, 20))
@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        (["abcd", "abcdefgh"], "abcdefgabcdefghabcabcdabcdabcde"),
        (["abca", "cabc"], "abcabcabcacabcabc"),
        (["aaaa"], "aaaaaaaaaaa baaab"),
        (["Bearer abcd"], "Bearer abcBearer abcdBear"),
    ],
)
def test_a_stream_is_masked_like_the_whole(secrets: list[str], text: str, size: int) -> None:
    known = Secrets(secrets)
    assert pieces(known.stream(), text.encode(), size) == known.hide(text).encode()


def test_of_a_stream_no_more_is_held_back_than_may_be_a_secret() -> None:
    redactor = Secrets(["abcdefgh"]).stream()
    assert redactor.feed(b"xyz") == b"xyz"
    assert redactor.feed(b"abcx abc") == b"abcx "
    assert redactor.feed(b"defg") == b""
    assert redactor.feed(b"!") == b"abcdefg!"
    assert redactor.end() == b""
