"""Cron lines in a zone: slots put on the timeline by cron's daylight-saving rules. It parses nothing.

The rules are those of Debian's cron: a fixed-time slot that the clock skips runs at the first instant after,
one that it shows twice runs once; wildcard slots follow the wall as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pgcron_runner.schedule.slots import DAY, CronLine, count_slots, first_slot, last_slot, slot_bits, walk_slots
from pgcron_runner.schedule.timeline import Stretch, Timeline

# No wall is, or ever was, further than this from UTC, and no change set one back by more.
_FURTHEST: Final = DAY


@dataclass(frozen=True, slots=True, eq=False)
class CronInstants:
    """The instants of a set of cron lines in one zone, in whole seconds since the epoch."""

    lines: tuple[CronLine, ...]
    timeline: Timeline
    _wildcard: tuple[CronLine, ...] = field(init=False)
    _fixed: tuple[CronLine, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_wildcard", tuple(line for line in self.lines if line.wildcard))
        object.__setattr__(self, "_fixed", tuple(line for line in self.lines if not line.wildcard))

    def first_from(self, second: int) -> int | None:
        """The first instant at or after `second`."""
        while stretch := self.timeline.stretch_at(second):
            if second <= stretch.start and self._makes_up(stretch):
                return stretch.start
            slot = first_slot(self._active(stretch), second + stretch.offset)
            if slot is not None and slot - stretch.offset < stretch.end:
                return slot - stretch.offset
            # After this stretch the wall shows at least that: years without a slot are passed at once.
            slot = first_slot(self.lines, stretch.end + stretch.offset - _FURTHEST)
            if slot is None:
                return None
            second = max(stretch.end, slot - _FURTHEST)
        return None

    def last_until(self, second: int) -> int | None:
        """The last instant at or before `second`."""
        while stretch := self.timeline.stretch_at(second):
            slot = last_slot(self._active(stretch), second + stretch.offset)
            if slot is not None and slot - stretch.offset >= stretch.start:
                return slot - stretch.offset
            if self._makes_up(stretch):
                return stretch.start
            slot = last_slot(self.lines, stretch.start + stretch.offset + _FURTHEST)
            if slot is None:
                return None
            second = min(stretch.start - 1, slot + _FURTHEST)
        return None

    def count(self, start: int, end: int) -> int:
        """How many instants lie in [start, end); the cost grows with the years, not with the instants."""
        return sum(
            count_slots(self._active(stretch), low + stretch.offset, high + stretch.offset)
            + self._makes_up_alone(stretch, low)
            for stretch, low, high in self._stretches(start, end)
        )

    def walk(self, start: int, end: int) -> Iterator[int]:
        """The instants in [start, end) in order."""
        for stretch, low, high in self._stretches(start, end):
            if self._makes_up_alone(stretch, low):
                yield low
            slots = walk_slots(self._active(stretch), low + stretch.offset, high + stretch.offset)
            yield from (slot - stretch.offset for slot in slots)

    def bits(self, start: int, end: int) -> int:
        """The instants in [start, end), a day at most: bit n stands for start + n."""
        found = 0
        for stretch, low, high in self._stretches(start, end):
            slots = slot_bits(self._active(stretch), low + stretch.offset, high + stretch.offset)
            found |= (slots | self._makes_up_alone(stretch, low)) << low - start
        return found

    def is_fixed(self, second: int) -> bool:
        """Whether an instant of these lines is of fixed-time lines alone."""
        stretch = self.timeline.stretch_at(second)
        assert stretch is not None
        wall = second + stretch.offset
        return first_slot(self._wildcard, wall) != wall

    def _active(self, stretch: Stretch) -> tuple[CronLine, ...]:
        return self._wildcard if stretch.fixed_rest else self.lines

    def _makes_up(self, stretch: Stretch) -> bool:
        """Whether the first instant of the stretch stands in for fixed-time slots skipped before it."""
        if stretch.made_up is None:
            return False
        start, end = stretch.made_up
        slot = first_slot(self._fixed, start)
        return slot is not None and slot < end

    def _makes_up_alone(self, stretch: Stretch, low: int) -> bool:
        """The same, where no slot of its own falls on that instant."""
        if low > stretch.start or not self._makes_up(stretch):
            return False
        wall = stretch.start + stretch.offset
        return first_slot(self._active(stretch), wall) != wall

    def _stretches(self, start: int, end: int) -> Iterator[tuple[Stretch, int, int]]:
        """The stretches that meet [start, end), with the part of each that does."""
        while start < end and (stretch := self.timeline.stretch_at(start)):
            yield stretch, start, min(end, stretch.end)
            start = stretch.end
