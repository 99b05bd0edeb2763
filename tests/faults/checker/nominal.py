"""The nominal times of a schedule, worked out without the code under test: epoch arithmetic, and cronsim for cron.

It knows the forms that fault tests use: `@every`, `@at`, `@manual`, five fields, and six whose seconds are `*`, `*/n`
or numbers. One line each; what counts from the end of a run has no nominal times of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_TICK = timedelta(microseconds=1)


def occurrences(schedule: str, timezone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    """All nominal times in (after, until], oldest first, in UTC."""
    word, _, rest = schedule.strip().partition(" ")
    if word == "@manual" or rest.endswith("after finish"):
        return
    if word == "@at":
        moment = datetime.fromisoformat(rest)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=ZoneInfo(timezone))
        if after < moment <= until:
            yield moment.astimezone(UTC)
    elif word == "@every":
        yield from _multiples(_seconds(rest), after, until)
    else:
        yield from _cron(schedule.split(), timezone, after, until)


def _seconds(duration: str) -> int:
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)\s*([dhms])", duration))


def _multiples(seconds: int, after: datetime, until: datetime) -> Iterator[datetime]:
    step = timedelta(seconds=seconds)
    moment = _EPOCH + ((after - _EPOCH) // step + 1) * step
    while moment <= until:
        yield moment
        moment += step


def _cron(fields: list[str], timezone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    seconds = _field(fields[0]) if len(fields) == 6 else [0]
    # The minute that `after` lies in counts too.
    start = after.astimezone(ZoneInfo(timezone)).replace(second=0, microsecond=0) - timedelta(seconds=1)
    for minute in CronSim(" ".join(fields[-5:]), start):
        if minute > until:
            return
        for second in seconds:
            if after < (moment := minute.astimezone(UTC) + timedelta(seconds=second)) <= until:
                yield moment


def _field(text: str) -> list[int]:
    base, _, step = text.partition("/")
    return list(range(0, 60, int(step or 1))) if base == "*" else sorted(int(number) for number in base.split(","))
