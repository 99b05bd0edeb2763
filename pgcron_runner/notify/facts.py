"""The facts of an alert as they may be shown: masked, without control characters, of the types that they should have.

All that is sent goes through here first, whatever it is made into. It sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from pgcron_runner.notify.limits import TookTooLong, limited
from pgcron_runner.notify.markup import cleaned
from pgcron_runner.notify.redaction import compile_patterns, redact, redact_patterns

# What a command, a server or a person has written, and may hold secrets.
_TEXTS = ("output", "error", "reason", "problem")
_NUMBERS = ("failures", "missed_count", "attempt", "max_attempts", "exit_code", "run", "incident", "repeat")
_OURS = ("redact", "notes")
# Of the processor, for all alerts of a message together.
_MASKING_SECONDS = 3.0
_TOO_SLOW = "(left out: masking it took too long)"


def presentable(payloads: Sequence[Mapping[str, Any]], secrets: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The same facts, ready to be shown; null ones are left out. `secrets` are masked in all texts.

    `notes` says what was wrong with the job's patterns. What they take too long to mask is left out.
    """
    until = time.process_time() + _MASKING_SECONDS
    secrets = list(secrets)
    return [_presentable(facts, secrets, until) for facts in payloads]


def _presentable(facts: Mapping[str, Any], secrets: list[str], until: float) -> dict[str, Any]:
    redacted = facts.get("redact")
    patterns, notes = compile_patterns(redacted if isinstance(redacted, list) else ())
    shown = {key: _cleaned(value) for key, value in facts.items() if value is not None and key not in _OURS}
    for key in _NUMBERS:
        if key in shown and not isinstance(shown[key], int):
            shown[key] = _number(shown[key])
    for key in _TEXTS:
        if key in shown:
            shown[key] = redact(str(shown[key]), secrets)
            try:
                with limited(until - time.process_time()) if patterns else nullcontext():
                    shown[key] = redact_patterns(shown[key], patterns)
            except TookTooLong:
                shown[key] = _TOO_SLOW
    return shown | ({"notes": notes} if notes else {})


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, list):
        return [_cleaned(part) for part in value]
    return value


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
