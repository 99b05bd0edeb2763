"""What goes to a sender process and what comes back: JSON with its length in front, over pipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from pgcron_runner.model import Delivery
from pgcron_runner.notify.targets import secrets_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One message. `url` is where it goes, with its secrets; `deadline` seconds after which the sender ends itself.

    `payloads` are the facts of its alerts, each with its `id`, `event`, `incident_key` and `created_at`; `message_key`
    is the same for each try at the same alerts. `secret` signs; `masked` is what no text may have in it. `is_final`:
    the URL is the channel's own, so that waiting does not help where nobody understands it.
    """

    url: str = field(repr=False)
    payloads: list[dict[str, Any]]
    message_key: str
    deadline: float
    secret: str | None = field(default=None, repr=False)
    masked: list[str] = field(default_factory=list, repr=False)
    zone: str | None = None
    template: str | None = None
    is_final: bool = True

    @property
    def secrets(self) -> frozenset[str]:
        """What no error may have in it."""
        return secrets_of(self.url) | set(self.masked) | ({self.secret} if self.secret else set())

    def encode(self) -> bytes:
        """As it is written to the sender."""
        return frame(asdict(self))


def encode_delivery(delivery: Delivery) -> bytes:
    """As the sender writes it."""
    return frame(asdict(delivery))


def decode_delivery(body: bytes) -> Delivery:
    """What the sender has written, without the length. Raises ValueError where it is something else."""
    try:
        value = json.loads(body)
        return Delivery(**value)
    except TypeError as error:
        raise ValueError("not an answer") from error


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
