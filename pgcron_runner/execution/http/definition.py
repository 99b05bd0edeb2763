"""What an http job says, read and checked: its URL and its `args`. It must not know a run, or any environment.

The command line checks with it when a job is saved, the worker when it is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pgcron_runner.errors import InvalidInput
from pgcron_runner.execution.http.urls import BadUrl, Url, parse_url, shown

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_REFERENCE = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9-]*) )?env:(?P<name>.*)", re.ASCII | re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# libpq's variables and ours: the worker's way into the database is no job's business.
_PRIVATE = "PG"
# How the message is framed and carried is decided here and nowhere else.
_OURS = {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
_EXAMPLES = {
    "method": '{"method": "PUT"}',
    "headers": '{"headers": {"Authorization": "Bearer env:API_TOKEN"}}',
    "body": '{"body": "hello"}',
    "json": '{"json": {"text": "hello"}}',
    "expect": '{"expect": ["2xx", 404]}',
    "follow": '{"follow": 0}',
    "verify": '{"verify": false}',
    "ca_file": '{"ca_file": "/etc/ssl/our-ca.pem"}',
    "proxy": '{"proxy": "http://proxy.example.org:3128"}',
    "max_body_kb": '{"max_body_kb": 4096}',
}
_MOST_REDIRECTS = 20
_MOST_BODY_KB = 1 << 30
_USUAL_BODY_KB = 1024


@dataclass(frozen=True, slots=True)
class Text:
    """A text that may come from the worker's environment: `literal`, then what `variable` holds, if there is one."""

    literal: str
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Which statuses are a success: numbers, and classes such as 2 for 2xx."""

    numbers: frozenset[int]
    classes: frozenset[int]

    def allows(self, status: int) -> bool:
        return status in self.numbers or status // 100 in self.classes

    def names(self, status: int) -> bool:
        """Whether it is expected by its very number: a redirect that is, is not followed."""
        return status in self.numbers

    def __str__(self) -> str:
        words = [*(f"{number}xx" for number in sorted(self.classes)), *map(str, sorted(self.numbers))]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


@dataclass(frozen=True, slots=True)
class Definition:
    """A checked http job. `body` is what is sent, encoded; `most_body_kb` is how much of the answer is read."""

    url: Url
    method: str
    headers: tuple[tuple[str, Text], ...]
    body: bytes | None
    content_type: str | None
    expect: Expectation
    follow: int
    verify: bool
    ca_file: str | None
    proxy: Text | None
    most_body_kb: int


def read_definition(command: str, args: Mapping[str, Any], *, field: str = "command") -> Definition:
    """The job that these two say; `field` is what the URL is called where it was said. Raises InvalidInput."""
    url = _url(command.strip(), field)
    _check_names(args)
    headers = _headers(args.get("headers", {}))
    if url.user is not None and any(name.lower() == "authorization" for name, _ in headers):
        problem = "is there as well as a user in the URL; one of them must go"
        raise _wrong("headers", "Authorization", problem)
    body, content_type = _body(args)
    return Definition(
        url,
        _method(args.get("method", "GET" if body is None else "POST")),
        headers,
        body,
        content_type,
        _expectation(args.get("expect", "2xx")),
        _number(args, "follow", 5, 0, _MOST_REDIRECTS),
        _checked(args, "verify", True, bool, "is neither true nor false"),
        _ca_file(args),
        None if args.get("proxy") is None else _proxy(args["proxy"]),
        _number(args, "max_body_kb", _USUAL_BODY_KB, 1, _MOST_BODY_KB),
    )


def _wrong(key: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(f"args.{key}", value, problem, example=_EXAMPLES[key])


def _url(text: str, field: str) -> Url:
    try:
        return parse_url(text)
    except BadUrl as error:
        raise InvalidInput(field, shown(text), str(error), example="https://api.example.org/refresh") from None


def _check_names(args: Mapping[str, Any]) -> None:
    for name in args:
        if name not in _EXAMPLES:
            near = get_close_matches(name.lower(), _EXAMPLES, 1, 0.5)
            hint = f"the nearest is {near[0]!r}" if near else f"there are {', '.join(_EXAMPLES)}"
            example = _EXAMPLES[near[0] if near else "headers"]
            raise InvalidInput("args", name, f"is no setting of an http job; {hint}", example=example)


def _method(value: Any) -> str:
    if not isinstance(value, str) or not _TOKEN.fullmatch(value) or value.upper() == "CONNECT":
        raise _wrong("method", value, "is not the name of a method")
    return value.upper()


def _headers(value: Any) -> tuple[tuple[str, Text], ...]:
    if not isinstance(value, dict):
        raise _wrong("headers", type(value).__name__, "is not an object of texts")
    seen: set[str] = set()
    headers = []
    for name, content in value.items():
        if not _TOKEN.fullmatch(name):
            raise _wrong("headers", name, "is not the name of a header")
        if name.lower() in _OURS or name.lower() in seen:
            raise _wrong("headers", name, "is there twice" if name.lower() in seen else "is not for a job to set")
        seen.add(name.lower())
        headers.append((name, _header_text(name, content)))
    return tuple(headers)


def _header_text(name: str, content: Any) -> Text:
    # The value may be a secret that stands where it should not: it is not repeated.
    if not isinstance(content, str):
        raise _wrong("headers", name, "has a value that is not a text")
    if _CONTROL.search(content):
        raise _wrong("headers", name, "has a line break or another control character in its value")
    return _text("headers", name, content.strip())


def _text(key: str, name: str, content: str) -> Text:
    found = _REFERENCE.fullmatch(content)
    if found is None:
        return Text(content)
    variable = found["name"]
    if not _VARIABLE.fullmatch(variable):
        raise _wrong(key, name, "has a value that does not name a variable after env:")
    if variable.startswith(_PRIVATE):
        raise _wrong(key, name, f"asks for {variable}, which is the worker's own and is not passed on")
    return Text(f"{found['scheme']} " if found["scheme"] else "", variable)


def _body(args: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
    """What is sent, and its type."""
    if "json" in args:
        if "body" in args:
            raise _wrong("body", "body", "and 'json' are both there; one of them must go")
        return json.dumps(args["json"], ensure_ascii=False).encode("utf-8", "backslashreplace"), "application/json"
    if args.get("body") is None:
        return None, None
    if not isinstance(args["body"], str):
        raise _wrong("body", type(args["body"]).__name__, "is not a text; what is to be sent as JSON goes into json")
    return args["body"].encode("utf-8", "backslashreplace"), "text/plain; charset=utf-8"


def _expectation(value: Any) -> Expectation:
    numbers, classes = set(), set()
    for item in value if isinstance(value, list) and value else [value]:
        found = re.fullmatch(r"([2-5])(?:xx|\d\d)", str(item).lower(), re.ASCII)
        if isinstance(item, bool) or not isinstance(item, int | str) or found is None:
            raise _wrong("expect", item, "is neither a status from 200 to 599 nor a class such as 2xx")
        if found[0].endswith("xx"):
            classes.add(int(found[1]))
        else:
            numbers.add(int(found[0]))
    return Expectation(frozenset(numbers), frozenset(classes))


def _number(args: Mapping[str, Any], key: str, usual: int, least: int, most: int) -> int:
    value = args.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _wrong(key, value, f"is not a whole number from {least} to {most:,}")
    return value


def _checked(args: Mapping[str, Any], key: str, usual: Any, kind: type, problem: str) -> Any:
    value = args.get(key, usual)
    if value is not usual and not isinstance(value, kind):
        raise _wrong(key, value, problem)
    return value


def _ca_file(args: Mapping[str, Any]) -> str | None:
    path: str | None = _checked(args, "ca_file", None, str, "is not the path of a file")
    if path is not None and (not path.startswith("/") or "\0" in path):
        raise _wrong("ca_file", path, "is not a whole path")
    if path is not None and args.get("verify") is False:
        raise _wrong("ca_file", path, "means nothing where verify is false")
    return path


def _proxy(value: Any) -> Text:
    if not isinstance(value, str):
        raise _wrong("proxy", value, "is not a URL")
    text = _text("proxy", "proxy", value.strip())
    if text.variable is None:
        parse_proxy(text.literal)
    elif text.literal:
        raise _wrong("proxy", value, "has something before env:")
    return text


def parse_proxy(text: str) -> Url:
    """The URL of a proxy. Raises InvalidInput."""
    try:
        return parse_url(text)
    except BadUrl as error:
        raise _wrong("proxy", shown(text), str(error)) from None


def is_proxy(text: str) -> bool:
    """Whether it is the URL of a proxy that may be used."""
    try:
        parse_proxy(text)
    except InvalidInput:
        return False
    return True
