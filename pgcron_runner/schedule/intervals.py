"""Instants that need no wall clock: every so many seconds, or once. It knows no zones and no texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pgcron_runner.schedule.bits import comb, cut


class Instants(Protocol):
    """A source of instants, in whole seconds since the epoch; ranges are half-open, [start, end)."""

    def first_from(self, second: int) -> int | None: ...

    def last_until(self, second: int) -> int | None: ...

    def count(self, start: int, end: int) -> int: ...

    def walk(self, start: int, end: int) -> Iterator[int]: ...

    def bits(self, start: int, end: int) -> int:
        """The instants in [start, end), a day at most: bit n stands for start + n."""
        ...

    def is_fixed(self, second: int) -> bool:
        """Of an instant of this source: whether it follows the wall clock, and not real elapsed time."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Every `period` seconds, counted from the epoch: all hosts agree, and a restart moves nothing."""

    period: int

    def first_from(self, second: int) -> int | None:
        return -(-second // self.period) * self.period

    def last_until(self, second: int) -> int | None:
        return second // self.period * self.period

    def count(self, start: int, end: int) -> int:
        return max((end - 1) // self.period - (start - 1) // self.period, 0)

    def walk(self, start: int, end: int) -> Iterator[int]:
        return iter(range(-(-start // self.period) * self.period, end, self.period))

    def bits(self, start: int, end: int) -> int:
        first = -start % self.period
        return cut(comb(self.period) << first, 0, end - start) if first < end - start else 0

    def is_fixed(self, second: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    second: int

    def first_from(self, second: int) -> int | None:
        return self.second if second <= self.second else None

    def last_until(self, second: int) -> int | None:
        return self.second if second >= self.second else None

    def count(self, start: int, end: int) -> int:
        return int(start <= self.second < end)

    def walk(self, start: int, end: int) -> Iterator[int]:
        return iter([self.second] if start <= self.second < end else [])

    def bits(self, start: int, end: int) -> int:
        return 1 << self.second - start if start <= self.second < end else 0

    def is_fixed(self, second: int) -> bool:
        return True
