"""Nothing happens before its time, in a calm nothing happens long after it, and in the end nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tests.faults.checker.values import Breach, History, Mark, Run

_EARLY = "nothing starts before its time"
_UNBELIEVED = "a clock that has just stepped is not believed"
_LATE = "in a calm everything starts on time"
_LEFT = "nothing is left"
# Marks of shell commands may come from /proc/uptime, which is cut off to hundredths.
_PRECISION = timedelta(seconds=0.05)
# How long before its first mark a command may have been claimed, by a clock that has stepped since.
_CLAIMED_BEFORE = 5.0
# A step may be believed until the next look at the clock, by what the clock showed then.
_STEP_TOLERANCE = timedelta(seconds=2)


def early(history: History) -> Iterator[Breach]:
    """Rows and commands that began before they might."""
    runs = {run.id: run for run in history.runs}
    for run in history.runs:
        if run.started_at is None or run.started_at >= run.run_at or history.clock.near_a_step(run.started_at):
            continue
        yield Breach(_EARLY, f"{run} started {run.run_at - run.started_at} before it might", (run.id,), run.job)
    for mark in history.marks:
        run = runs.get(mark.run_id)  # type: ignore[assignment]
        if (
            mark.word == "begin"
            and run is not None
            and not any(split.touches(mark.at, mark.at) for split in history.splits)
        ):
            yield from _begun_early(history, run, mark)


def _begun_early(history: History, run: Run, mark: Mark) -> Iterator[Breach]:
    shown = history.clock.reading(mark.at, within=_CLAIMED_BEFORE)
    if shown < run.scheduled_for - _PRECISION:
        text = f"{run} was carried out {run.scheduled_for - shown} before its time"
        yield Breach(_EARLY, text, (run.id,), run.job)
    elif history.clock.latest_trusted(mark.at) < run.scheduled_for - _STEP_TOLERANCE:
        text = f"{run} was fired by a clock that had just stepped, and stepped back"
        yield Breach(_UNBELIEVED, text, (run.id,), run.job)


def late(history: History) -> Iterator[Breach]:
    """Scheduled runs of the calm that had nothing in their way and began late."""
    if history.calm_from is None:
        return
    prompt = {job.name for job in history.jobs if job.prompt}
    for run in history.runs:
        if run.job in prompt and run.trigger == "schedule" and run.run_at > history.calm_from:
            began = run.started_at or {"queued": history.now, "cancelled": run.finished_at}.get(run.status)
            if began is not None and began - run.run_at > history.late_after:
                text = f"{run} began {(began - run.run_at).total_seconds():.1f} s late"
                yield Breach(_LATE, text, (run.id,), run.job)


def unfinished(history: History) -> Iterator[Breach]:
    """Runs that nobody has closed, or that nobody has begun although they are due."""
    for run in history.runs:
        if run.status == "running" or (run.status == "queued" and run.run_at < history.now):
            yield Breach(_LEFT, f"{run} is left at {history.now:%H:%M:%S}", (run.id,), run.job)
