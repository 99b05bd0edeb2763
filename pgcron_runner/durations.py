"""Durations as people write them. It knows no schedule and no clock."""

from __future__ import annotations

import re
from datetime import timedelta

from pgcron_runner.errors import InvalidInput

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_WORDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", re.ASCII)
_LONGEST = timedelta(days=366 * 100)


def parse_duration(text: str, *, field: str, minimum: timedelta = timedelta(milliseconds=1)) -> timedelta:
    """`90s`, `1h30m`, `7 days`, `250ms` as a timedelta of at least `minimum`; InvalidInput names `field`."""
    rest, total = text.strip().lower(), timedelta(0)
    example = "90s, 15m, 1h30m or 7 days"
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", rest):
        raise InvalidInput(field, text, "has no unit", example=f"{rest}s")
    position = 0
    for part in _PART.finditer(rest):
        unit = _WORDS.get(part[2])
        if part.start() != position or unit is None:
            break
        # The bound is checked on the float: a huge count would overflow the multiplication itself.
        room = (_LONGEST - total).total_seconds()
        if float(part[1]) * _UNITS[unit].total_seconds() > room:
            raise InvalidInput(field, text, "is longer than a hundred years", example=example)
        total += float(part[1]) * _UNITS[unit]
        position = part.end()
    if not rest or position != len(rest):
        raise InvalidInput(field, text, "is not a duration", example=example)
    if total < minimum:
        raise InvalidInput(field, text, f"is shorter than {format_duration(minimum)}", example=example)
    return total


def format_duration(duration: timedelta) -> str:
    """The shortest exact text that `parse_duration` reads back: `1h30m`, `250ms`, `7d`."""
    if duration < timedelta(0):
        return f"-{format_duration(-duration)}"
    rest, parts = duration, []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest / _UNITS['ms']:g}ms")
    return "".join(parts) or "0s"
