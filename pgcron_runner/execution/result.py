"""What a run returned, as the `result` column takes it. It must not know who returned it."""

from __future__ import annotations

import json
import re
from typing import Any

from pgcron_runner.errors import PgcronError
from pgcron_runner.execution.output import storable
from pgcron_runner.running import MOST_BYTES

__all__ = ["MOST_BYTES", "BadResultError", "storable_result"]


# Postgres gives up at some 12,000, and with it the statement that records a whole batch.
_DEEPEST = 500
# A text is one piece, so that brackets in it do not count.
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class BadResultError(PgcronError):
    """The value cannot be kept as a result."""


def storable_result(value: Any) -> Any:
    """A copy of `value` made of what JSON has, with the texts that Postgres takes (see `output`).

    Raises BadResultError, in words, for what JSON cannot hold and for more than MOST_BYTES.
    """
    if value is None or value is True or value is False:
        return value
    try:
        text = json.dumps(value, allow_nan=False)
        copy = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResultError(f"JSON cannot hold it: {storable(str(error))}") from error
    if len(text) > MOST_BYTES:
        raise BadResultError(f"it is larger than {MOST_BYTES:,} bytes")
    if _depth(text) > _DEEPEST:
        raise BadResultError(f"it is nested more than {_DEEPEST} levels deep")
    # NUL and half a surrogate pair are written as escapes, like all that is not ASCII.
    return _cleaned(copy) if "\\u" in text else copy


def _depth(text: str) -> int:
    """How deep JSON is nested."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return 0
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {storable(name): _cleaned(item) for name, item in value.items()}
    return value
