"""How times, lengths, sizes and texts of others are written out. It prints nothing."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from pgcron_runner.errors import InvalidInput
from pgcron_runner.schedule import check_timezone

# Unicode's categories of what is not shown but obeyed: controls, formats, lone surrogates, separators of lines.
_COMMANDS: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")


def instant(moment: datetime) -> str:
    """`2026-03-01T18:00:00Z`, with the fraction of a second if there is one."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def zone_of(name: str | None) -> ZoneInfo:
    """The zone that a job's times are shown in; UTC where it has none that this host knows."""
    try:
        return check_timezone(name or "UTC")
    except InvalidInput:
        return check_timezone("UTC")


def local(moment: datetime, zone: ZoneInfo) -> str:
    """`2026-03-01 19:00:00 +01:00`: what the clock shows there, and how far it is from UTC."""
    there = moment.astimezone(zone)
    offset = there.isoformat()[-6:]
    return f"{there:%Y-%m-%d %H:%M:%S} {offset if offset[0] in '+-' else there.isoformat()[-9:]}"


def utc(moment: datetime) -> str:
    """`2026-03-01 18:00:00Z`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def relative(moment: datetime, now: datetime) -> str:
    """`in 3h 12m`, `3h 12m ago` or `now`."""
    distance = moment - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    distance = timedelta(seconds=round(distance.total_seconds()))
    return f"in {span(distance)}" if distance > timedelta(0) else f"{span(-distance)} ago"


def span(length: timedelta) -> str:
    """A duration in its two largest units: `3h 12m`, `12.5s`, `40ms`."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    rest = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def size(count: int) -> str:
    """A number of bytes: `812 B`, `1.2 kB`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def clean(text: str, *, lines: bool = False) -> str:
    """A text that cannot command a terminal: control and direction characters are spelt out.

    With `lines` line breaks and tabs stay; without, they become one blank, so that all is on one line.
    """
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not lines:
        text = " ".join(text.split())
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _COMMANDS else _spelt(c) for c in text)


def _spelt(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def in_progress(said: Any) -> str:
    """`40% copied users`: what a run said of itself last; it may have said anything."""
    if not isinstance(said, dict):
        return "" if said is None else str(said)
    percent = said.get("percent")
    number = f"{percent:.0f}%" if isinstance(percent, int | float) else ""
    return f"{number} {said.get('text') or ''}".strip()
