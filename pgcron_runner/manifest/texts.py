"""Values that people write as texts, read and checked: instants, JSON objects, names. They know no job and no door."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pgcron_runner.errors import InvalidInput

_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[T ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s?(?P<offset>Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
# An escape, not a backslash that is followed by its letters.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUEUE = re.compile(r"[A-Za-z0-9_.:-]{1,63}", re.ASCII)


def parse_instant(text: str, *, field: str, zone: ZoneInfo | None = None) -> datetime:
    """An ISO date and time as an instant in UTC; one without an offset is read in `zone`, or refused without it.

    A local time that the clock skips or shows twice is refused too: only an offset says which instant is meant.
    """
    example = "2027-01-31T09:00 or 2027-01-31T09:00Z" if zone else "2027-01-31T09:00Z or 2027-01-31T09:00+01:00"
    found = _INSTANT.fullmatch(text.strip())
    if not found:
        raise InvalidInput(field, text, "is not a date and time", example=example)
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{found['time'] or '00:00'}{(found['offset'] or '').upper()}")
        if moment.tzinfo is None:
            moment = _in_zone(moment, text, field, zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(field, text, "names a date or time that does not exist", example=example) from None


def _in_zone(moment: datetime, text: str, field: str, zone: ZoneInfo | None) -> datetime:
    if zone is None:
        raise InvalidInput(field, text, "does not say its offset from UTC", example=f"{moment.isoformat()}Z")
    first, last = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() != last.utcoffset():
        gap = first.astimezone(UTC) > last.astimezone(UTC)
        problem = f"is a time that the clocks of {zone.key} {'skip' if gap else 'show twice'}; say its offset"
        raise InvalidInput(field, text, problem, example=first.astimezone(UTC).astimezone(zone).isoformat())
    return first


def parse_object(text: str, *, field: str) -> dict[str, Any]:
    """A JSON object that Postgres takes too."""
    example = """'{"month": "2027-01"}'"""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidInput(field, text, "is not JSON", example=example) from None
    if _NUL.search(json.dumps(value)) or _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise InvalidInput(field, text, "has a character that Postgres cannot store", example=example)
    if not isinstance(value, dict):
        raise InvalidInput(field, text, "is not a JSON object", example=example)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def parse_queue(name: str, *, field: str = "queue") -> str:
    """The name of one queue."""
    if not _QUEUE.fullmatch(name):
        raise InvalidInput(field, name, "is not 1 to 63 letters, digits or any of _ . : -", example="reports")
    return name
