"""A job's schedule: the union of its lines, as instants. It knows no job, no clock and no database."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, reduce
from itertools import groupby
from operator import or_
from typing import Final
from zoneinfo import ZoneInfo

from pgcron_runner.durations import parse_duration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule.expression import FIELD, check_characters, parse_expression
from pgcron_runner.schedule.instants import CronInstants
from pgcron_runner.schedule.intervals import Every, Instants, Once
from pgcron_runner.schedule.slots import DAY, CronLine
from pgcron_runner.schedule.timeline import EPOCH, FIRST_YEAR, LAST_YEAR, Timeline
from pgcron_runner.schedule.words import line_in_words
from pgcron_runner.schedule.zones import check_timezone

_SECOND: Final = timedelta(seconds=1)
_USES_NAME: Final = re.compile(r"(?:^|[\s,])h(?:[\s,(/]|$)", re.IGNORECASE)
_AFTER_FINISH: Final = re.compile(r"\s+after\s+finish$", re.IGNORECASE)
_AT: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d)?)\s?(?P<offset>Z|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_AT_EXAMPLE: Final = "@at 2027-01-31T09:00"


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The instants at which a job is due: aware datetimes in UTC on whole seconds, strictly increasing.

    Arguments may be any aware datetimes, also between seconds. `after_finish` is set for `@every … after
    finish` alone: such a job is due that long after the end of its last run, so `next_after` wants that end,
    and there is nothing to list beforehand: `prev_before` is None, `between` empty, `count_between` 0. The
    same holds for a manual job, whose `next_after` is None too. Equal texts share one object as long as it is
    cached.
    """

    text: str
    timezone: str
    sources: tuple[Instants, ...]
    after_finish: timedelta | None = None
    is_manual: bool = False

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly after an instant; None if there is none any more."""
        if self.after_finish is not None:
            return instant.astimezone(UTC) + self.after_finish
        return _instant(_first_from(self, _second_after(instant)))

    def prev_before(self, instant: datetime) -> datetime | None:
        """The last occurrence strictly before an instant; None if there was none."""
        return _instant(_last_until(self, -((EPOCH - instant) // _SECOND) - 1))

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The occurrences in (after, until], in order, worked out as they are asked for."""
        for second in self._walk(_second_after(after), _second_after(until)):
            yield EPOCH + timedelta(seconds=second)

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many occurrences `between` would give; a year takes well under a millisecond.

        Where cron lines are mixed with `@every` or `@at` it takes some, however many occurrences there are.
        """
        start, end = _second_after(after), _second_after(until)
        if len(self.sources) == 1:
            return self.sources[0].count(start, end)
        days = ((low, min(low + DAY, end)) for low in range(start, end, DAY))
        return sum(reduce(or_, (source.bits(*day) for source in self.sources), 0).bit_count() for day in days)

    def is_fixed(self, occurrence: datetime) -> bool:
        """Whether an occurrence follows the wall clock alone: it moves with the zone's rules, as `0 9 * * *` does.

        What comes every so often (`*/15 * * * *`, `@every`) goes by real elapsed time.
        """
        second = (occurrence - EPOCH) // _SECOND
        return all(source.is_fixed(second) for source in self.sources if source.first_from(second) == second)

    def in_words(self) -> str | None:
        """What the wall shows when it is due, such as `At 09:00, Monday to Friday`; None: few words do not say it."""
        match self.sources:
            case (CronInstants(lines=(line,)),):
                return line_in_words(line)
        return None

    def _walk(self, start: int, end: int) -> Iterator[int]:
        if len(self.sources) == 1:
            return self.sources[0].walk(start, end)
        merged = heapq.merge(*(source.walk(start, end) for source in self.sources))
        return (second for second, _ in groupby(merged))


def parse_schedule(
    text: str,
    timezone: str,
    *,
    name: str = "",
    dst_gap: DstGap = DstGap.RUN_AFTER,
    dst_repeat: DstRepeat = DstRepeat.FIRST,
) -> Schedule:
    """What a job's `schedule` and `timezone` mean; InvalidInput names the one that cannot be accepted.

    Each line is a cron expression, a macro, `@every 90s` or `@at 2027-01-31T09:00`; several are a union.
    `@manual` and `@every 10m after finish` stand alone. `name` is the job's, from which `H` draws. Answers
    are kept, so that asking again, or for another job with the same text, takes a microsecond.
    """
    if not isinstance(text, str) or not isinstance(timezone, str):
        check_characters(text)
        check_timezone(timezone)
    return _parse(text, timezone, name if _USES_NAME.search(text) else "", dst_gap, dst_repeat)


@lru_cache(maxsize=20_000)
def _parse(text: str, timezone: str, name: str, dst_gap: DstGap, dst_repeat: DstRepeat) -> Schedule:
    zone = check_timezone(timezone)
    text = text.replace("\r\n", "\n")
    check_characters(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if alone := _standing_alone(text, timezone, lines):
        return alone
    timeline = Timeline(zone, dst_gap, dst_repeat)
    return Schedule(text, timezone, _sources(lines, timeline, name))


def _standing_alone(text: str, timezone: str, lines: list[str]) -> Schedule | None:
    alone: Schedule | None = None
    for line in lines:
        words = line.lower().split()
        if words == ["@manual"]:
            alone = Schedule(text, timezone, (), is_manual=True)
        elif words[0] == "@every" and _AFTER_FINISH.search(line):
            alone = Schedule(text, timezone, (), after_finish=_period(_AFTER_FINISH.sub("", line)))
        if alone and len(lines) > 1:
            raise InvalidInput(FIELD, text, f"joins {line!r} with other lines, but it must stand alone", example=line)
    return alone


def _sources(lines: list[str], timeline: Timeline, name: str) -> tuple[Instants, ...]:
    cron: list[CronLine] = []
    others: list[Instants] = []
    for line in lines:
        match line.lower().split()[0]:
            case "@every":
                others.append(Every(_period(line) // _SECOND))
            case "@at":
                others.append(Once(_at(line, timeline)))
            case _:
                cron.append(parse_expression(line, name=name))
    return (CronInstants(tuple(cron), timeline), *others) if cron else tuple(others)


def _period(line: str) -> timedelta:
    """The duration after `@every`, in whole seconds."""
    example = "@every 90s, @every 1h30m or @every 7 days"
    try:
        period = parse_duration(line[len("@every") :], field=FIELD, minimum=_SECOND)
    except InvalidInput as error:
        problem = error.problem if line.split()[1:] else "has no duration"
        raise InvalidInput(FIELD, line, problem, example=example) from None
    if period % _SECOND:
        raise InvalidInput(FIELD, line, "is not in whole seconds", example=example)
    return period


def _at(line: str, timeline: Timeline) -> int:
    """The instant after `@at`, in seconds since the epoch."""
    found = _AT.fullmatch(line[len("@at") :].strip())
    if not found:
        raise InvalidInput(FIELD, line, "is not a date and time such as 2027-01-31T09:00", example=_AT_EXAMPLE)
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{found['time']}{(found['offset'] or '').upper()}")
    except ValueError:
        raise InvalidInput(FIELD, line, "names a date or time that does not exist", example=_AT_EXAMPLE) from None
    if not FIRST_YEAR < moment.year < LAST_YEAR:
        raise InvalidInput(FIELD, line, f"is not in the years {FIRST_YEAR + 1} to {LAST_YEAR - 1}", example=_AT_EXAMPLE)
    if moment.tzinfo is not None:
        return (moment - EPOCH) // _SECOND
    return _local(line, (moment.replace(tzinfo=UTC) - EPOCH) // _SECOND, timeline)


def _local(line: str, wall: int, timeline: Timeline) -> int:
    """The instant at which the wall shows a second: in a gap the first one after, of two the wanted pass.

    Whoever names a date wants it whatever the size of the jump: unlike cron lines it survives a lost day.
    """
    first, last = (wall - _offset(timeline.zone, wall, fold) for fold in (0, 1))
    if first <= last:
        return last if timeline.dst_repeat == DstRepeat.LAST else first
    if timeline.dst_gap == DstGap.SKIP:
        problem = f"names a time that the clocks of {timeline.zone.key} skip, and dst_gap is 'skip'"
        raise InvalidInput(FIELD, line, problem, example=_AT_EXAMPLE)
    stretch = timeline.stretch_at(first)
    assert stretch is not None
    return stretch.start


def _offset(zone: ZoneInfo, wall: int, fold: int) -> int:
    """PEP 495: around a change, fold 0 takes the offset before it and fold 1 the one after it."""
    offset = (EPOCH + timedelta(seconds=wall)).replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return offset // _SECOND


# Thousands of jobs with one schedule ask for the same few instants.
@lru_cache(maxsize=100_000)
def _first_from(schedule: Schedule, second: int) -> int | None:
    found = (source.first_from(second) for source in schedule.sources)
    return min((second for second in found if second is not None), default=None)


@lru_cache(maxsize=20_000)
def _last_until(schedule: Schedule, second: int) -> int | None:
    found = (source.last_until(second) for source in schedule.sources)
    return max((second for second in found if second is not None), default=None)


def _second_after(instant: datetime) -> int:
    """The first whole second strictly after an instant."""
    return (instant - EPOCH) // _SECOND + 1


def _instant(second: int | None) -> datetime | None:
    return None if second is None else EPOCH + timedelta(seconds=second)
