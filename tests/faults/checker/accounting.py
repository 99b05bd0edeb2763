"""Every occurrence has exactly one trail, and its attempts are those that its job allows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from tests.faults.checker.nominal import occurrences
from tests.faults.checker.values import Breach, Clock, Edition, History, Job, Run

_TICK = timedelta(microseconds=1)
_TRIED_AGAIN = frozenset({"failed", "timed_out", "lost", "interrupted"})
_TRAIL = "every occurrence has one trail"
_ATTEMPTS = "attempts within limits"
_PRECISION = timedelta(milliseconds=5)


def unaccounted(history: History) -> Iterator[Breach]:
    """Occurrences without a row, with two, and rows that nothing asked for."""
    trails: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.trigger == "schedule" and run.attempt == 1:
            trails[run.job].append(run)
    for job in history.jobs:
        if any("after finish" in (edition.schedule or "") for edition in job.editions):
            yield from _after_finish(job, history)
        else:
            yield from _wrong_trails(job, trails[job.name], history.now)


def due(job: Job, now: datetime) -> list[datetime]:
    """Every nominal time of a job that must have a trail, oldest first."""
    return [when for edition in job.editions for when in _due(edition, now)]


def _due(edition: Edition, now: datetime) -> Iterator[datetime]:
    if edition.schedule is None:
        return
    after, until = edition.anchored_at, now if edition.until is None else edition.until - _TICK
    if edition.not_before is not None:
        after = max(after, edition.not_before - _TICK)
    if edition.ends_at is not None:
        until = edition.ends_at if edition.until is None else min(until, edition.ends_at)
    yield from occurrences(edition.schedule, edition.timezone, after, until)


def _wrong_trails(job: Job, rows: list[Run], now: datetime) -> Iterator[Breach]:
    wanted = due(job, now)
    found: Counter[datetime] = Counter()
    for run in rows:
        covered = [run.scheduled_for]
        if run.missed_until is not None:
            covered = [when for when in wanted if run.scheduled_for <= when <= run.missed_until]
            if run.missed_count != len(covered):
                text = f"{run} counts {run.missed_count} missed occurrences, but its range has {len(covered)}"
                yield Breach(_TRAIL, text, (run.id,), job.name)
        found.update(covered)
    missing, unasked = sorted(set(wanted) - found.keys()), sorted(found.keys() - set(wanted))
    for when in missing:
        yield Breach(_TRAIL, f"{job.name}: nothing tells of {when}", (), job.name)
    for when in unasked:
        yield Breach(_TRAIL, f"{job.name}: {when} was not due", _ids(rows, when), job.name)
    for when, count in found.items():
        if count > 1:
            yield Breach(_TRAIL, f"{job.name}: {count} trails for {when}", _ids(rows, when), job.name)


def _ids(rows: list[Run], when: datetime) -> tuple[int, ...]:
    return tuple(run.id for run in rows if run.scheduled_for <= when <= (run.missed_until or run.scheduled_for))


def _after_finish(job: Job, history: History) -> Iterator[Breach]:
    """Each occurrence lies a whole pause after the last end of the one before; only if the clock never stepped."""
    if not history.clock.never_stepped:
        return
    schedule = next(edition.schedule for edition in job.editions if edition.schedule is not None)
    (seconds,) = re.findall(r"(\d+)s", schedule)
    ends: dict[datetime, datetime] = {}
    for run in history.runs:
        if run.job == job.name and run.trigger in ("schedule", "retry") and run.finished_at is not None:
            ends[run.scheduled_for] = max(run.finished_at, ends.get(run.scheduled_for, run.finished_at))
    for before, after in pairwise(sorted(ends)):
        if after < ends[before] + timedelta(seconds=int(seconds)) - _PRECISION:
            yield Breach(_TRAIL, f"{job.name}: {after} is less than the pause after the end of {before}", (), job.name)


def wrong_attempts(history: History) -> Iterator[Breach]:
    """Attempts out of order, too many of them, after a success, or none where one was due."""
    jobs = {job.name: job for job in history.jobs}
    attempts: dict[tuple[str, datetime, bool], list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.job in jobs:
            attempts[run.job, run.scheduled_for, run.backfill].append(run)
    for (job, when, _), runs in attempts.items():
        runs.sort(key=lambda run: run.attempt)
        ids = tuple(run.id for run in runs)
        for text in _wrong(jobs[job], when, runs, history.clock):
            yield Breach(_ATTEMPTS, text, ids, job)


def _wrong(job: Job, when: datetime, runs: list[Run], clock: Clock) -> Iterator[str]:
    numbers = [run.attempt for run in runs]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"{job.name} at {when} has the attempts {numbers}"
    if len(numbers) > job.max_attempts:
        yield f"{job.name} at {when} had {len(numbers)} attempts of {job.max_attempts}"
    yield from (f"{run} was tried again" for run in runs[:-1] if run.status not in _TRIED_AGAIN)
    last = runs[-1]
    if last.status in _TRIED_AGAIN and len(numbers) < job.max_attempts:
        assert last.finished_at is not None
        # Beside a step of the clock nobody can tell which came first, the end or the edit that halted the job.
        unsure = bool(job.halts) and clock.near_a_step(last.finished_at)
        if not unsure and not job.halted_at(last.finished_at):
            yield f"{last} was not tried again"
