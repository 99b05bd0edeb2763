"""Never more at once than a job allows: by the marks of its commands in true time, and by its rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import TypeVar

from tests.faults.checker.values import Breach, History, Run

_RULE = "never more at once than allowed"
_LOCK = "who holds a job's lock keeps it to himself"

Time = TypeVar("Time", float, datetime)


def overlapping_marks(history: History) -> Iterator[Breach]:
    """Commands that lived side by side. What was under way while two servers gave out work is not judged."""
    fenced = {job.name: job for job in history.jobs if job.fenced and job.max_running is not None}
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mark in history.marks:
        if mark.job in fenced:
            times[mark.job][mark.run_id].append(mark.at)
    for name, runs in times.items():
        spans = [(min(at), max(at), run_id) for run_id, at in runs.items() if not _in_a_split(history, at)]
        for first, second, length in _crowded(sorted(spans), fenced[name].max_running or 1):
            text = f"{name}: runs {first} and {second} overlapped for {length:.2f} s by their own marks"
            yield Breach(_RULE, text, (first, second), name)


def overlapping_rows(history: History) -> Iterator[Breach]:
    """Rows that were running side by side. Where the database's clock has stepped, rows tell nothing of that."""
    if not history.clock.never_stepped:
        return
    limited = {job.name: job for job in history.jobs if job.max_running is not None}
    spans: dict[str, list[tuple[datetime, datetime, int]]] = defaultdict(list)
    runs = {run.id: run for run in history.runs}
    for run in history.runs:
        if run.job in limited and run.started_at is not None:
            spans[run.job].append((run.started_at, run.finished_at or history.now, run.id))
    for name, found in spans.items():
        for first, second, _ in _crowded(sorted(found), limited[name].max_running or 1):
            yield Breach(_RULE, f"{runs[first]} and {runs[second]} overlapped by their rows", (first, second), name)


def outlasting(history: History) -> Iterator[Breach]:
    """Commands that went on while somebody outside had got the lock of their job.

    Where a session is lost that may be, and the command is stopped in time: two leases leave room for frozen hosts.
    """
    exclusive = {job.name for job in history.jobs if job.max_running == 1 and job.fenced}
    spans: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mark in history.marks:
        spans[mark.job][mark.run_id].append(mark.at)
    for hold in history.holds:
        for run_id, at in spans[hold.job].items() if hold.job in exclusive else ():
            last = max((moment for moment in at if moment < hold.until), default=-math.inf)
            if min(at) < hold.since and last > hold.since + 2 * history.lease and not _in_a_split(history, at):
                how_long = f"{last - hold.since:.1f} s while somebody else held its lock"
                text = f"run {run_id} of {hold.job} went on for {how_long}"
                yield Breach(_LOCK, text, (run_id,), hold.job)


def _in_a_split(history: History, at: list[float]) -> bool:
    return any(split.touches(min(at), max(at)) for split in history.splits)


def _crowded(spans: list[tuple[Time, Time, int]], most: int) -> Iterator[tuple[int, int, float]]:
    """Where one more begins than may be there: one that was there, the one that came, and for how many seconds."""
    there: list[tuple[Time, Time, int]] = []
    for span in spans:
        there = [other for other in there if other[1] > span[0]]
        if len(there) >= most:
            first = min(there, key=lambda other: other[1])
            length = first[1] - span[0]
            yield first[2], span[2], length if isinstance(length, float) else length.total_seconds()
        there.append(span)


def intruders(history: History) -> Iterator[Breach]:
    """Runs that were claimed while somebody outside held the lock of their job."""
    exclusive = {job.name for job in history.jobs if job.max_running == 1}
    started: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.job in exclusive and run.started_at is not None:
            started[run.job].append(run)
    for hold in history.holds:
        for run in started[hold.job]:
            assert run.started_at is not None
            if hold.begin < run.started_at < hold.end and not history.clock.near_a_step(run.started_at):
                yield Breach(_LOCK, f"{run} began while somebody else held its lock", (run.id,), run.job)
