"""What an http job may say, and what it is told where it says something else."""

from __future__ import annotations

from typing import Any

import pytest

from pgcron_runner.errors import InvalidInput
from pgcron_runner.execution.http.definition import Definition, Text, read_definition
from pgcron_runner.execution.http.urls import BadUrl, parse_url, shown
from tests.execution.http_runs import fails

URL = "https://api.example.org/x"


def read(**args: Any) -> Definition:
    return read_definition(URL, args)


def test_what_is_not_said_is_the_usual() -> None:
    definition = read()
    assert (definition.method, definition.headers, definition.body) == ("GET", (), None)
    assert (definition.follow, definition.verify, definition.ca_file, definition.proxy) == (5, True, None, None)
    assert [status for status in (199, 200, 204, 299, 300, 404) if definition.expect.allows(status)] == [200, 204, 299]


def test_a_value_may_come_from_the_environment_alone_or_behind_a_scheme() -> None:
    headers = {"A": "env:X_1", "B": "Bearer env:X_1", "C": "see env:here and there", "D": " kept ", "E": "environ:X"}
    assert dict(read(headers=headers | {"C": "a b env:X"}).headers) == {
        "A": Text("", "X_1"),
        "B": Text("Bearer ", "X_1"),
        "C": Text("a b env:X"),
        "D": Text("kept"),
        "E": Text("environ:X"),
    }
    with pytest.raises(InvalidInput, match="does not name a variable after env:"):
        read(headers=headers)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"header": {}}, "args: 'header' is no setting of an http job; the nearest is 'headers'."),
        ({"timeout": 3}, "args: 'timeout' is no setting of an http job; there are method, headers, body, json,"),
        ({"method": "G ET"}, "args.method: 'G ET' is not the name of a method. For example: {\"method\": \"PUT\"}"),
        ({"method": "connect"}, "args.method: 'connect' is not the name of a method"),
        ({"method": 1}, "args.method: 1 is not the name of a method"),
        ({"headers": ["A: b"]}, "args.headers: 'list' is not an object of texts"),
        ({"headers": {"A": 1}}, "args.headers: 'A' has a value that is not a text"),
        ({"headers": {"A B": "c"}}, "args.headers: 'A B' is not the name of a header"),
        ({"headers": {"A": "x\r\nB: y"}}, "args.headers: 'A' has a line break or another control character in"),
        ({"headers": {"content-length": "3"}}, "args.headers: 'content-length' is not for a job to set"),
        ({"headers": {"Accept": "a", "ACCEPT": "b"}}, "args.headers: 'ACCEPT' is there twice"),
        ({"headers": {"A": "env:"}}, "args.headers: 'A' has a value that does not name a variable after env:"),
        ({"headers": {"A": "Bearer env:MY-KEY"}}, "args.headers: 'A' has a value that does not name a variable"),
        ({"headers": {"A": "env:PGCRON_DSN"}}, "args.headers: 'A' asks for PGCRON_DSN, which is the worker's own"),
        ({"body": "a", "json": 1}, "args.body: 'body' and 'json' are both there; one of them must go"),
        ({"body": {"a": 1}}, "args.body: 'dict' is not a text; what is to be sent as JSON goes into json"),
        ({"expect": 2}, "args.expect: 2 is neither a status from 200 to 599 nor a class such as 2xx"),
        ({"expect": ["2xx", "ok"]}, "args.expect: 'ok' is neither a status"),
        ({"expect": []}, "args.expect: [] is neither a status"),
        ({"expect": True}, "args.expect: True is neither a status"),
        ({"expect": "1xx"}, "args.expect: '1xx' is neither a status"),
        ({"follow": -1}, "args.follow: -1 is not a whole number from 0 to 20"),
        ({"follow": True}, "args.follow: True is not a whole number"),
        ({"verify": "no"}, "args.verify: 'no' is neither true nor false"),
        ({"ca_file": "ca.pem"}, "args.ca_file: 'ca.pem' is not a whole path"),
        ({"ca_file": "/ca.pem", "verify": False}, "args.ca_file: '/ca.pem' means nothing where verify is false"),
        ({"proxy": "socks5://h"}, "args.proxy: 'socks5://h' is of the scheme socks5, not http or https"),
        ({"proxy": "http://u:pw@169.254.1.1/"}, "args.proxy: 'http://169.254.1.1/' leads to an address"),
        ({"max_body_kb": 0}, "args.max_body_kb: 0 is not a whole number from 1 to"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_would_be_right(args: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read(**args)
    assert sentence in str(raised.value)
    assert "For example: {" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://example.org/", "is of the scheme ftp, not http or https"),
        ("example.org/x", "names no scheme"),
        ("", "names no scheme"),
        ("//example.org/x", "names no scheme"),
        ("localhost:8080/x", "is of the scheme localhost, not http or https"),
        ("http:///x", "names no host"),
        ("http://:80/", "names no host"),
        ("http://a:0/", "names port 0"),
        ("http://a:b/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://a/x y", "has a blank in it"),
        ("http://a/\n", "has the character '\\n' in it"),
        ("http://a\\b/", "has the character '\\\\' in it"),
    ],
)
def test_what_is_no_url_is_refused(url: str, problem: str) -> None:
    with pytest.raises(BadUrl) as raised:
        parse_url(url)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("url", "text", "place"),
    [
        ("HTTP://Example.ORG", "http://example.org/", "example.org:80"),
        ("https://example.org:443/a%2fb?c=%7e&d=+#top", "https://example.org/a%2fb?c=%7e&d=+", "example.org:443"),
        ("http://u:p%40ss@[::1]:8080/x", "http://[::1]:8080/x", "[::1]:8080"),
        ("http://bücher.example/ü?ö", "http://bücher.example/ü?ö", "bücher.example:80"),
    ],
)
def test_a_url_is_kept_as_it_was_written_but_for_user_and_fragment(url: str, text: str, place: str) -> None:
    parsed = parse_url(url)
    assert (parsed.text, parsed.place) == (text, place)


def test_a_user_is_taken_out_of_what_is_shown() -> None:
    parsed = parse_url("http://us%65r:p%40ss@host/x")
    assert (parsed.user, parsed.password) == ("user", "p@ss")
    assert "p@ss" not in repr(parsed)
    assert shown("http://user:secret@host/x@y") == "http://host/x@y"
    assert shown("nonsense://a:b:c@@[/") == "nonsense://[/"
    assert len(shown("http://host/" + "x" * 5000)) < 400


async def test_a_run_with_a_wrong_definition_is_not_launched_and_shows_no_password() -> None:
    assert (await fails(URL, header={})).startswith("launch failed: args: 'header' is no setting of an http job")
    error = await fails("ftp://user:pa55word@host/")
    assert error.startswith("launch failed: command: 'ftp://host/' is of the scheme ftp")
    error = await fails("http://user:pa55word@host/", headers={"authorization": "x"})
    assert error.startswith("launch failed: args.headers: 'Authorization' is there as well as a user in the URL")
