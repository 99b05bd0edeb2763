"""What goes to a sender process and what comes back: JSON with its length in front, over pipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class Request:
    """One message. `target` is a URL, with its secrets; `deadline` seconds after which the sender ends itself.

    `payloads` are the facts of its alerts, each with its `event` and `incident_key`; `message_key` is the same for each
    try at the same alerts.
    """

    target: str
    payloads: list[dict[str, Any]]
    message_key: str
    deadline: float
    zone: str | None = None
    template: str | None = None

    def encode(self) -> bytes:
        """As it is written to the sender."""
        return frame(asdict(self))


def frame(value: Mapping[str, Any]) -> bytes:
    """A length of four bytes, then JSON."""
    body = json.dumps(value).encode()
    return len(body).to_bytes(4, "big") + body


def read_frame(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next one; None at the end of the stream."""
    length = stream.read(4)
    if len(length) < 4:
        return None
    value: dict[str, Any] = json.loads(stream.read(int.from_bytes(length, "big")))
    return value
