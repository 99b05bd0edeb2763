"""Seconds of a stretch of time as the bits of one integer, which makes the union of any patterns a matter of `|`.

It knows neither dates nor zones. A day of every second takes 11 kB here, and a microsecond to join with another.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pgcron_runner.schedule.times import Times

DAY: Final = 86_400


def cut(bits: int, start: int, end: int) -> int:
    """The bits [start, end), moved down to 0."""
    return (bits >> start) & ((1 << (end - start)) - 1)


@lru_cache(maxsize=256)
def comb(period: int) -> int:
    """The bits 0, period, 2 * period … of one day at least."""
    bits, length = 1, period
    while length < DAY:
        bits |= bits << length
        length *= 2
    return bits


@lru_cache(maxsize=256)
def day(times: Times) -> int:
    """The seconds since midnight that are among these times."""
    minute = sum(1 << second for second in times.seconds)
    hour = sum(minute << 60 * number for number in times.minutes)
    return sum(hour << 3600 * number for number in times.hours)
