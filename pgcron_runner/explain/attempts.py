"""What became of a run, in sentences. It knows no schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pgcron_runner.durations import format_duration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.explain.values import Circumstances, ExplainedJob, OccurrenceRun
from pgcron_runner.model import Status, Trigger
from pgcron_runner.schedule import check_timezone

# A start within this time of the nominal one is worth no word.
_ON_TIME = timedelta(seconds=1)


def attempts_told(
    job: ExplainedJob, runs: Sequence[OccurrenceRun], now: datetime, around: Circumstances
) -> Iterator[str]:
    """What became of each attempt, in their order."""
    for run in runs:
        yield from _attempt(job, run, now, around)


def _attempt(job: ExplainedJob, run: OccurrenceRun, now: datetime, around: Circumstances) -> Iterator[str]:
    who = _who(run)
    match run.status:
        case Status.MISSED:
            yield missed_told(job, run)
        case Status.SKIPPED:
            yield f"{who} was skipped: {run.reason or 'no reason is recorded'}."
        case Status.QUEUED:
            yield from _queued(job, run, now, around)
        case Status.RUNNING:
            assert run.started_at is not None
            yield f"{who} has been running for {span(now - run.started_at)}{_on(run)}."
            yield from _lateness(job, run)
            if run.cancel_requested_at is not None:
                yield "Somebody has asked to stop it."
        case _ if run.started_at is None:
            yield f"{who} was {run.status} before it started{_because(run)}."
        case _:
            assert run.finished_at is not None
            took = span(run.finished_at - run.started_at)
            started = f"{who} started at {in_zone(run.started_at, job)}{_on(run)}"
            yield f"{started}: {_ended(run)} after {took}{_because(run)}."
            yield from _lateness(job, run)


def _who(run: OccurrenceRun) -> str:
    attempt = f", attempt {run.attempt}," if run.attempt > 1 else ""
    match run.trigger:
        case Trigger.MANUAL:
            return f"Run {run.id}, which somebody started by hand,"
        case Trigger.CHAIN:
            return f"Run {run.id}, which follows another job,"
        case _:
            return f"Run {run.id}{' of a backfill' if run.backfill else ''}{attempt}"


def _ended(run: OccurrenceRun) -> str:
    words = {Status.TIMED_OUT: "it timed out", Status.LOST: "it was lost", Status.SUCCEEDED: "it succeeded"}
    known = words.get(Status(run.status))
    return known or (f"it {run.status}" if run.status == Status.FAILED else f"it was {run.status}")


def _because(run: OccurrenceRun) -> str:
    error = run.error.strip().splitlines()[0].rstrip(".") if run.error and run.error.strip() else None
    parts = [run.reason, error, f"exit code {run.exit_code}" if run.exit_code else None]
    text = "; ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def _on(run: OccurrenceRun) -> str:
    return f" on worker {run.worker}" if run.worker else ""


def missed_told(job: ExplainedJob, run: OccurrenceRun) -> str:
    """What a row says that stands for missed times."""
    reason = f": {run.reason}" if run.reason else ""
    if run.missed_count == 1 or run.missed_until is None:
        return f"Run {run.id} records it as missed{reason}."
    first, last = in_zone(run.scheduled_for, job), in_zone(run.missed_until, job)
    return f"Run {run.id} records it as missed, one of {run.missed_count} times from {first} to {last}{reason}."


def _queued(job: ExplainedJob, run: OccurrenceRun, now: datetime, around: Circumstances) -> Iterator[str]:
    if run.run_at > now:
        why = "after the pause before another attempt" if run.attempt > 1 else "after its jitter"
        at = in_zone(run.run_at, job)
        yield f"{_who(run)} is queued and may start at {at}, in {span(run.run_at - now)}, {why}."
        return
    yield f"{_who(run)} is queued and has waited for {span(now - max(run.run_at, run.created_at))}."
    if around.paused:
        yield "Everything is paused (pgcron.settings)."
    elif around.queue_paused:
        yield "Its queue is paused."
    elif not around.workers:
        yield "No worker is alive that would take it. See: pgcron-runner workers"
    else:
        yield "It waits for a free slot of a worker, or for another run of the job to end."


def _lateness(job: ExplainedJob, run: OccurrenceRun) -> Iterator[str]:
    """How late it started and what that was made of; nothing where it was on time, or by hand."""
    assert run.started_at is not None
    late = run.started_at - run.scheduled_for
    if late <= _ON_TIME or run.trigger not in (Trigger.SCHEDULE, Trigger.RETRY) or run.backfill:
        return
    planned = max(run.run_at - run.scheduled_for, timedelta(0))
    absent = max(run.created_at - run.run_at, timedelta(0))
    waited = run.started_at - max(run.run_at, run.created_at)
    parts = []
    if planned > timedelta(0):
        parts.append(f"{span(planned)} {'for the attempts before it' if run.attempt > 1 else 'of jitter'}")
    if absent > _ON_TIME:
        parts.append(f"{span(absent)} until a worker was there to fire it (caught up)")
    if waited > _ON_TIME:
        parts.append(f"{span(waited)} waiting for a free slot or an earlier run")
    yield f"That is {span(late)} after its time{': ' + ', '.join(parts) if parts else ''}."


def in_zone(instant: datetime, job: ExplainedJob) -> str:
    """An instant as the clock of the job shows it, with its offset."""
    try:
        zone = check_timezone(job.timezone)
    except InvalidInput:
        zone = check_timezone("UTC")
    there = instant.astimezone(zone).replace(microsecond=0)
    return there.isoformat(sep=" ").replace("+00:00", "Z") if zone.key == "UTC" else there.isoformat(sep=" ")


def span(length: timedelta) -> str:
    """How long something took or takes, roughly."""
    if length < timedelta(seconds=1):
        return f"{max(length, timedelta(0)) // timedelta(milliseconds=1)}ms"
    # Who is told of days does not ask for seconds.
    unit = 3600 if length >= timedelta(days=1) else 60 if length >= timedelta(hours=1) else 1
    return format_duration(timedelta(seconds=round(length.total_seconds() / unit) * unit))
