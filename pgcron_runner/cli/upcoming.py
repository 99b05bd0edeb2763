"""The next times of a schedule, as people want to see them: with what the clock changes did to them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pgcron_runner.cli.output import Cell, Column, Styled, local, print_table, relative, utc
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat, ExcludedDays
from pgcron_runner.schedule import Schedule, check_timezone, parse_schedule

if TYPE_CHECKING:
    from pgcron_runner.store.catalog import Job, ListedJob

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Rule:
    """All that decides when a job is due."""

    schedule: str
    timezone: str
    name: str = ""
    dst_gap: DstGap = DstGap.RUN_AFTER
    dst_repeat: DstRepeat = DstRepeat.FIRST
    ends_at: datetime | None = None
    excluded: tuple[ExcludedDays, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """An instant at which a job is due, what a change of the clock has to do with it, and why it will be skipped."""

    at: datetime
    remark: str = ""
    skipped: str = ""


def next_slots(rule: Rule, after: datetime, count: int) -> list[Slot]:
    """The first `count` slots after an instant. Raises InvalidInput where the rule cannot be understood.

    Empty for a job that is manual, and for one that counts from the end of its last run.
    """
    schedule = _parse(rule, rule.dst_gap)
    if schedule.after_finish is not None:
        return []
    found: list[Slot] = []
    while len(found) < count:
        following = schedule.next_after(after)
        if following is None or (rule.ends_at is not None and following > rule.ends_at):
            break
        found.append(Slot(following, _remark(rule, following), _skipped(rule, following)))
        after = following
    return found


def next_run_at(job: ListedJob | Job, now: datetime) -> datetime | None:
    """When a job is due next: as its worker has planned it, or, where none has yet, as one would."""
    if not job.enabled or job.problem:
        return None
    if job.planned:
        return job.next_run_at
    bounds = [bound - _TICK for bound in (job.starts_at, job.paused_until) if bound is not None]
    after = max([job.anchored_at, now, *bounds])
    rule = rule_of(job)
    try:
        following = _parse(rule, rule.dst_gap).next_after(after)
    except InvalidInput:
        return None
    return None if following is None or (job.ends_at is not None and following > job.ends_at) else following


def slots_of(job: Job, now: datetime, count: int, excluded: tuple[ExcludedDays, ...] = ()) -> list[Slot]:
    """The next slots of a job; the first is `next_run_at`. Empty for a job that cannot be scheduled."""
    first = next_run_at(job, now)
    if first is None:
        return []
    return next_slots(replace(rule_of(job), excluded=excluded), first - _TICK, count) or [Slot(first)]


def rule_of(job: ListedJob | Job) -> Rule:
    """What decides when a job is due."""
    return Rule(job.schedule, job.timezone, job.name, DstGap(job.dst_gap), DstRepeat(job.dst_repeat), job.ends_at)


def print_slots(slots: Sequence[Slot], zone: ZoneInfo, now: datetime) -> None:
    """A table of slots: in the zone, in UTC, and how far away."""
    own = [] if zone.key == "UTC" else [Column(zone.key)]
    changes = [Column("CLOCK CHANGE", flexible=True)] if any(slot.remark for slot in slots) else []
    skipped = [Column("SKIPPED", flexible=True)] if any(slot.skipped for slot in slots) else []
    rows: list[list[Cell]] = [
        [
            *([f"{slot.at.astimezone(zone):%a} {local(slot.at, zone)}"] if own else []),
            utc(slot.at) if own else f"{slot.at:%a} {utc(slot.at)}",
            relative(slot.at, now),
            *([Styled(slot.remark, "yellow")] if changes else []),
            *([Styled(slot.skipped, "yellow")] if skipped else []),
        ]
        for slot in slots
    ]
    # What is unusual about a time is worth more than the time said again.
    print_table([*own, Column("UTC", optional=2 if own else 0), Column("WHEN", optional=1), *changes, *skipped], rows)


def in_words(rule: Rule) -> str | None:
    """`At 09:00, Monday to Friday`; None where few words do not say all of it, or the rule cannot be read."""
    try:
        return parse_rule(rule).in_words()
    except InvalidInput:
        return None


def parse_rule(rule: Rule) -> Schedule:
    """Raises InvalidInput."""
    return _parse(rule, rule.dst_gap)


def _parse(rule: Rule, dst_gap: DstGap) -> Schedule:
    return parse_schedule(rule.schedule, rule.timezone, name=rule.name, dst_gap=dst_gap, dst_repeat=rule.dst_repeat)


def _skipped(rule: Rule, at: datetime) -> str:
    if not rule.excluded:
        return ""
    from pgcron_runner.explain import excluded_on

    days = excluded_on(rule.excluded, at.astimezone(check_timezone(rule.timezone)).date())
    return f"skipped: {days.reason}" if days else ""


def _remark(rule: Rule, at: datetime) -> str:
    zone = check_timezone(rule.timezone)
    there = at.astimezone(zone)
    if there.utcoffset() > (at - timedelta(seconds=1)).astimezone(zone).utcoffset() and _is_moved(rule, at):  # type: ignore[operator]
        return "moved: the clock skips its time"
    first, last = (there.replace(fold=fold).utcoffset() for fold in (0, 1))
    # In a gap the offsets differ too, but no instant is in a gap.
    if first == last:
        return ""
    return f"{'second' if there.fold else 'first'} pass of a time shown twice"


def _is_moved(rule: Rule, at: datetime) -> bool:
    """Whether a slot is there only because one that the clock jumps over was made up for."""
    if rule.dst_gap is not DstGap.RUN_AFTER:
        return False
    try:
        return _parse(rule, DstGap.SKIP).next_after(at - _TICK) != at
    except InvalidInput:
        return True  # an @at in the gap
