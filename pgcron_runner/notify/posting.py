"""One POST of our own senders, and what its answer means. Runs in a sender process, which has the deadline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import requests

from pgcron_runner import __version__
from pgcron_runner.model import Delivery

_TIMEOUT = 20.0
_MOST_WORDS = 300


def post_json(url: str, value: Mapping[str, Any], *, headers: Mapping[str, str]) -> Delivery:
    """Posts JSON."""
    return post_body(url, json.dumps(value).encode(), headers={"Content-Type": "application/json", **headers})


def post_body(url: str, body: bytes, *, headers: Mapping[str, str]) -> Delivery:
    """Taken is what is answered with 2xx. Of the answer no more is read than a few words."""
    headers = {"User-Agent": f"pgcron-runner/{__version__}", **headers}
    try:
        with requests.post(
            url, data=body, headers=dict(headers), timeout=_TIMEOUT, allow_redirects=False, stream=True
        ) as answer:
            if 200 <= answer.status_code < 300:
                return Delivery(sent=True)
            words = answer.raw.read(_MOST_WORDS, decode_content=True).decode("utf-8", "replace").strip()
            return Delivery(
                sent=False,
                error=f"it answered {answer.status_code} {answer.reason}" + (f": {words}" if words else ""),
                retry_after=_seconds(answer.headers.get("Retry-After")),
            )
    except (requests.RequestException, OSError) as error:
        return Delivery(sent=False, error=f"{type(error).__name__}: {error}")


def _seconds(retry_after: str | None) -> float | None:
    """A date there is as good as nothing: clocks differ."""
    try:
        return None if retry_after is None else max(float(retry_after), 0.0)
    except ValueError:
        return None
