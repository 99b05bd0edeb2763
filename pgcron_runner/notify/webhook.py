"""Plain webhooks: the facts as JSON, with a key for telling repetitions, signed where a secret is given.

The signature is `X-Pgcron-Signature: t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`. Runs in a sender process.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pgcron_runner.model import Delivery
from pgcron_runner.notify.messages import Form, render
from pgcron_runner.notify.posting import post_body
from pgcron_runner.notify.request import Request


def send_to_webhook(request: Request) -> Delivery:
    """One POST; redirects are not followed, since they could lead the secret elsewhere."""
    url, secret = split_secret(request.target)
    body = json.dumps(body_of(request), ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": request.message_key}
    if secret is not None:
        headers["X-Pgcron-Signature"] = sign(body, secret, int(time.time()))
    return post_body(url, body, headers=headers)


def body_of(request: Request) -> dict[str, Any]:
    """What is posted."""
    message = render(request.payloads, form=Form.PLAIN, zone=request.zone)
    return {
        "id": request.message_key,
        "title": message.title,
        "text": message.body,
        "alerts": [{key: value for key, value in facts.items() if key != "redact"} for facts in request.payloads],
    }


def split_secret(target: str) -> tuple[str, str | None]:
    """The address that is called, and the secret of its `?secret=`, which is no part of it."""
    split = urlsplit(target.removeprefix("webhook+"))
    pairs = parse_qsl(split.query, keep_blank_values=True)
    secret = next((value for name, value in pairs if name == "secret"), None)
    rest = urlencode([(name, value) for name, value in pairs if name != "secret"])
    return urlunsplit((split.scheme, split.netloc, split.path, rest, "")), secret


def sign(body: bytes, secret: str, at: int) -> str:
    """The value of the header."""
    mac = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"
