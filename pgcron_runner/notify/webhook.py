"""Plain webhooks: the facts as JSON, with a key for telling repetitions, signed where a secret is given.

The signature is `X-Pgcron-Signature: t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`. Runs in a sender process.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pgcron_runner.model import Delivery
from pgcron_runner.notify.events import name_of
from pgcron_runner.notify.messages import Facts, Message
from pgcron_runner.notify.posting import poster


def send_to_webhook(url: str, secret: str | None, body: dict[str, Any], *, now: datetime, deadline: float) -> Delivery:
    """One POST."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"Idempotency-Key": body["id"]}
    if secret is not None:
        headers["X-Pgcron-Signature"] = sign(text, secret, int(now.timestamp()))
    with poster(deadline / 2) as connection:
        return connection.post(url.removeprefix("webhook+"), text, headers)


def body_of(message_key: str, alerts: Sequence[Facts], message: Message, now: datetime) -> dict[str, Any]:
    """What is posted. `event`, `job` and `incident_key` are those of a single alert; several are a `digest`.

    `id` is the same for each try at the same alerts, and so is the `id` of each alert for ever.
    """
    single = alerts[0] if len(alerts) == 1 else {"event": "digest"}
    return {
        "id": message_key,
        "event": name_of(single),
        "job": single.get("job"),
        "incident_key": single.get("incident_key"),
        "sent_at": now.isoformat(),
        "title": message.title,
        "text": message.body,
        "alerts": list(alerts),
    }


def sign(body: bytes, secret: str, at: int) -> str:
    """The value of the header."""
    mac = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"
