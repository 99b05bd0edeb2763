"""How far a run has come, and the outcome that makes of it. It must not know how requests are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pgcron_runner.execution.http.definition import Definition
from pgcron_runner.execution.http.redaction import Redactor, Secrets
from pgcron_runner.execution.http.urls import shown
from pgcron_runner.execution.output import OutputBuffer, storable
from pgcron_runner.execution.result import BadResultError, storable_result
from pgcron_runner.model import Outcome, Status

# What tells somebody who looks at a run what the answer was, or whom to ask about it.
_KEPT_HEADERS = (
    "content-type",
    "content-length",
    "content-encoding",
    "date",
    "etag",
    "last-modified",
    "location",
    "retry-after",
    "x-request-id",
    "x-correlation-id",
)
_LONGEST_HEADER = 500
# The result is for figures and ids; what is larger is in the output.
_MOST_JSON = 65_536


class Phase(StrEnum):
    """What a run that was stopped was about."""

    BEGINNING = "nothing was sent yet"
    NAME = "it was looking up the name of"
    CONNECTING = "it was connecting to"
    ANSWER = "it was waiting for the answer of"
    BODY = "the body was coming from"


@dataclass(slots=True)
class Report:
    """What is known of a run so far. `error` is why there is no last answer, `refused` why an address is not called.

    At most one of `whole`, `cut` and `broken` is set, when the last answer's body has come to its end.
    """

    output: OutputBuffer
    redactor: Redactor
    phase: Phase = Phase.BEGINNING
    asked: str = ""
    url: str = ""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    received: int = 0
    whole: bool = False
    cut: bool = False
    broken: str | None = None
    refused: str | None = None
    error: str | None = None
    remarks: list[str] = field(default_factory=list)
    _small: bytearray = field(default_factory=bytearray)

    def asks(self, url: str) -> None:
        """A request to this URL begins."""
        self.asked, self.phase, self.refused = url, Phase.CONNECTING, None

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Status and headers of its answer have come."""
        self.url, self.status, self.headers = self.asked, status, headers

    def take(self, data: bytes, most_bytes: int) -> None:
        """Some of the last answer's body has come, of which no more than `most_bytes` are wanted."""
        wanted = data[: most_bytes - self.received]
        self.received += len(wanted)
        self.cut = len(wanted) < len(data)
        self._keep(self.redactor.feed(wanted))

    def outcome(self, definition: Definition, secrets: Secrets) -> Outcome:
        """How the run ended; FAILED without an error where it was not over."""
        self._keep(self.redactor.end())
        is_over = self.whole or self.cut or self.broken is not None
        error = self.error or (self._judgement(definition) if is_over else None)
        remarks = self.remarks if is_over or error else [self._where(), *self.remarks]
        if self.cut:
            remarks = [*remarks, f"the body was cut after {self.received:,} bytes"]
        if self.broken and self.broken != error:
            remarks = [*remarks, self.broken]
        return Outcome(
            Status.SUCCEEDED if is_over and error is None else Status.FAILED,
            error=None if error is None else storable(secrets.hide(error)),
            reason=storable(secrets.hide("; ".join(remarks))) or None,
            result=None if self.status is None else self._result(secrets),
            output=self.output.render(),
        )

    def _keep(self, data: bytes) -> None:
        self.output.append(data)
        self._small += data[: _MOST_JSON + 1 - len(self._small)]

    def _judgement(self, definition: Definition) -> str | None:
        assert self.status is not None
        if definition.expect.allows(self.status):
            return self.broken
        return f"status {self.status} where {definition.expect} was expected"

    def _where(self) -> str:
        if self.phase is Phase.BEGINNING:
            return self.phase.value
        come = f", {self.received:,} bytes so far" if self.phase is Phase.BODY else ""
        return f"{self.phase} {shown(self.asked)}{come}"

    def _result(self, secrets: Secrets) -> Any:
        found = {name: self.headers[name] for name in _KEPT_HEADERS if name in self.headers}
        headers = {name: secrets.hide(shown(value))[:_LONGEST_HEADER] for name, value in found.items()}
        result = {"status": self.status, "headers": headers, "url": secrets.hide(shown(self.url))}
        parsed = self._parsed()
        return storable_result(result if parsed is None else result | {"json": parsed})

    def _parsed(self) -> Any:
        """The body as JSON, where it is that, whole and small."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not self.whole or not kind.endswith("json") or len(self._small) > _MOST_JSON:
            return None
        try:
            return storable_result(json.loads(bytes(self._small)))
        except (ValueError, RecursionError, BadResultError):
            return None
