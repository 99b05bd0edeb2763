"""What goes out: the first request of a run, and what a redirect makes of it. Pure; it sends nothing."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

from pgcron_runner import __version__
from pgcron_runner.errors import InvalidInput
from pgcron_runner.execution.http.definition import Definition, Text, is_proxy, parse_proxy
from pgcron_runner.execution.http.urls import Url
from pgcron_runner.model import Task

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
# Their values are secrets whoever has written them down, and are masked in what comes back.
_SECRET = {"authorization", "cookie", "proxy-authorization"}
# Names of what is likely to be a credential; those are meant for one host, and go to no other.
_CREDENTIAL = re.compile(r"auth|cookie|credential|passw|secret|signature|token|api-?key", re.IGNORECASE)
_SEE_OTHER = 303
_BECOMES_GET_AFTER_POST = (301, 302)


@dataclass(frozen=True, slots=True)
class Header:
    """One header. `private`: it goes to no other host; `secret`: its value is shown nowhere."""

    name: str
    value: str = field(repr=False)
    private: bool = False
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request, all of it."""

    method: str
    url: Url
    headers: tuple[Header, ...]
    body: bytes | None = field(default=None, repr=False)

    def redirected(self, status: int, url: Url) -> Request:
        """What a redirect with this status to that place makes of it."""
        headers = self.headers
        if url.origin != self.url.origin:
            headers = tuple(header for header in headers if not header.private)
        method, body = self.method, self.body
        if (status == _SEE_OTHER and method != "HEAD") or (status in _BECOMES_GET_AFTER_POST and method == "POST"):
            method, body = "GET", None
            headers = tuple(header for header in headers if not header.name.lower().startswith("content-"))
        return Request(method, url, headers, body)


def first_request(definition: Definition, task: Task, environ: Mapping[str, str]) -> Request:
    """The request of a run. Raises InvalidInput where the environment does not have what the job asks for."""
    own = [*_user_header(definition.url), *(_header(name, text, environ) for name, text in definition.headers)]
    said = {header.name.lower() for header in own}
    usual = [Header(name, value) for name, value in _usual(definition, task) if name.lower() not in said]
    return Request(definition.method, definition.url.without_user(), (*usual, *own), definition.body)


def proxy_url(definition: Definition, environ: Mapping[str, str]) -> str | None:
    """The URL of the job's proxy, with its user. Raises InvalidInput."""
    if definition.proxy is None:
        return None
    text = _value("proxy", "proxy", definition.proxy, environ)
    if definition.proxy.variable is not None and not is_proxy(text):
        # What it does hold may be a secret that belongs elsewhere.
        raise InvalidInput("args.proxy", "proxy", f"asks for {definition.proxy.variable}, which is no proxy's URL")
    return text


def secrets_of(request: Request, definition: Definition, proxy: str | None) -> Iterator[str]:
    """All texts of a run that are to be shown nowhere."""
    yield from (header.value for header in request.headers if header.secret)
    yield from _secrets_in(definition.url)
    if proxy is not None:
        yield from _secrets_in(parse_proxy(proxy))
        if definition.proxy is not None and definition.proxy.variable is not None:
            yield proxy


def _secrets_in(url: Url) -> Iterator[str]:
    if url.user is not None:
        yield from (url.password or "", _basic(url))


def _user_header(url: Url) -> Iterator[Header]:
    if url.user is not None:
        yield Header("Authorization", _basic(url), private=True, secret=True)


def _basic(url: Url) -> str:
    return f"Basic {b64encode(f'{url.user}:{url.password}'.encode()).decode()}"


def _header(name: str, text: Text, environ: Mapping[str, str]) -> Header:
    secret = text.variable is not None or name.lower() in _SECRET
    private = secret or name.lower() == "host" or _CREDENTIAL.search(name) is not None
    return Header(name, _value("headers", name, text, environ), private=private, secret=secret)


def _value(key: str, name: str, text: Text, environ: Mapping[str, str]) -> str:
    if text.variable is None:
        return text.literal
    found = environ.get(text.variable)
    if found is None:
        raise InvalidInput(f"args.{key}", name, f"asks for {text.variable}, which this worker's environment has not")
    if _CONTROL.search(found.strip()):
        raise InvalidInput(f"args.{key}", name, f"asks for {text.variable}, which holds more than one line")
    return text.literal + found.strip()


def _usual(definition: Definition, task: Task) -> Iterator[tuple[str, str]]:
    """What is sent where the job does not say otherwise."""
    yield "User-Agent", f"pgcron-runner/{__version__}"
    yield "Accept", "*/*"
    # A body is kept as it comes: a small one that unpacks to gigabytes is no danger then.
    yield "Accept-Encoding", "identity"
    if definition.content_type is not None:
        yield "Content-Type", definition.content_type
    yield "Idempotency-Key", _idempotency_key(definition, task)
    yield "X-Pgcron-Job", quote(task.job_name, safe=" /:")
    yield "X-Pgcron-Run-Id", str(task.run_id)
    yield "X-Pgcron-Attempt", str(task.attempt)
    yield "X-Pgcron-Scheduled-For", _instant(task.scheduled_for)


def _idempotency_key(definition: Definition, task: Task) -> str:
    """The same for all attempts at one occurrence, and another for what other installations ask of the same host."""
    said = sha256("\0".join((task.job_name, definition.method, definition.url.text, "")).encode())
    said.update(definition.body or b"")
    return f"pgcron-{task.job_id}-{_instant(task.scheduled_for)}-{said.hexdigest()[:12]}"


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
