"""One POST of our own senders, and what its answer means. Runs in a sender process, which has the deadline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests

from pgcron_runner import __version__
from pgcron_runner.model import Delivery

_MOST_WORDS = 300


@contextmanager
def poster(patience: float) -> Iterator[Poster]:
    """Posts within the block over one connection. `patience`: seconds to wait for each piece of an answer."""
    with requests.Session() as session:
        session.headers["User-Agent"] = f"pgcron-runner/{__version__}"
        # Else it would look for passwords in a file ~/.netrc.
        session.auth = lambda request: request
        yield Poster(session, patience)


class Poster:
    """Posts JSON, and follows no redirect, which could lead what is secret elsewhere."""

    def __init__(self, session: requests.Session, patience: float) -> None:
        self._session = session
        self._patience = patience

    def post_json(self, url: str, value: Mapping[str, Any]) -> Delivery:
        """A value as JSON."""
        return self.post(url, json.dumps(value).encode(), {})

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Delivery:
        """Taken is what is answered with 2xx. Of the answer no more is read than a few words."""
        try:
            url, auth = _credentials(url)
            with self._session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json", **headers},
                auth=auth,
                timeout=self._patience,
                allow_redirects=False,
                stream=True,
            ) as answer:
                return _judge(answer)
        except (requests.RequestException, OSError, ValueError) as error:
            return Delivery(sent=False, error=f"{type(error).__name__}: {error}")


def _credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    split = urlsplit(url)
    user, at, host = split.netloc.rpartition("@")
    if not at:
        return url, None
    name, _, password = user.partition(":")
    return urlunsplit(split._replace(netloc=host)), (unquote(name), unquote(password))


def _judge(answer: requests.Response) -> Delivery:
    if 200 <= answer.status_code < 300:
        _ = answer.raw.read(_MOST_WORDS)  # so that the connection can be used again
        return Delivery(sent=True)
    words = answer.raw.read(_MOST_WORDS, decode_content=True).decode("utf-8", "replace").strip()
    return Delivery(
        sent=False,
        error=f"it answered {answer.status_code} {answer.reason or ''}".rstrip() + (f": {words}" if words else ""),
        retry_after=_seconds(answer.headers),
    )


def _seconds(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` asks for. A date there is counted from the server's own: clocks differ."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        pause = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError):
        return None
    return max(pause.total_seconds(), 0.0)
