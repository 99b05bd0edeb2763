"""The verdict in words and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import quantiles

from tests.faults.checker import Run
from tests.faults.checker.accounting import due
from tests.faults.programme.play import Played
from tests.faults.programme.story import Archive

_MOST_STORIES = 12


def report(played: Played) -> str:
    """All of it."""
    return "\n".join(_lines(played))


def occurrences(played: Played) -> int:
    """How many occurrences were judged."""
    history = played.history
    planned = sum(len(due(job, history.now)) for job in history.jobs)
    return planned + sum(run.trigger in ("manual", "backfill") and run.attempt == 1 for run in history.runs)


def _lines(played: Played) -> Iterator[str]:
    order, history = played.order, played.history
    started = [run for run in history.runs if run.started_at is not None]
    yield (
        f"seed {order.seed}, PostgreSQL {played.version}, {order.minutes:g} minutes, {order.workers} workers, lease"
        f" {order.lease:g} s, replication {'synchronous' if played.synchronous else 'asynchronous'}"
        f"{f', mutant {order.mutant}' if order.mutant else ''}"
    )
    yield from (f"left out: {note}" for note in played.notes)
    yield f"faults: {len(played.done)} of {len(kinds(played))} kinds"
    yield from (f"  {count:5} {kind}" for kind, count in sorted(kinds(played).items()))
    yield f"acts of people: {played.acts}"
    yield f"occurrences judged: {occurrences(played)}; runs begun: {len(started)}; rows: {len(history.runs)}"
    states = Counter(run.status for run in history.runs)
    yield "states: " + ", ".join(f"{count} {status}" for status, count in states.most_common())
    yield f"missed occurrences: {sum(run.missed_count or 0 for run in history.runs)}"
    begun = sum(mark.word == "begin" for mark in history.marks)
    yield f"work: {len(history.effects)} SQL effects, {begun} commands begun"
    yield f"lateness in the calm: {_lateness(played)}"
    yield f"warnings: {_warnings(played)}"
    yield from (f"  {text}" for text in _failed_steps(played))
    if history.splits:
        forgotten = sum(len(split.forgotten) for split in history.splits)
        yield f"asynchronous failovers: {len(history.splits)}, {forgotten} runs forgotten with the old primary"
    if played.mishaps:
        words = Counter(mishap.partition("\n")[0][:110] for mishap in played.mishaps)
        yield "faults that could not be done: " + "; ".join(f"{n} x {text}" for text, n in words.most_common(6))
    yield f"breaches: {len(played.breaches)}"
    for rule, count in Counter(breach.rule for breach in played.breaches).most_common():
        yield f"  {count:5} {rule}"
    archive = Archive(history, played.done, played.events)
    told: Counter[str] = Counter()
    for breach in played.breaches:
        told[breach.rule] += 1
        if told[breach.rule] <= 3 and told.total() <= _MOST_STORIES * 3:
            yield archive.tell(breach)


def kinds(played: Played) -> Counter[str]:
    """Faults done, by kind."""
    return Counter(done.kind for done in played.done)


def _lateness(played: Played) -> str:
    calm_from = played.history.calm_from
    prompt = {job.name for job in played.history.jobs if job.prompt}

    def counts(run: Run) -> bool:
        return run.job in prompt and run.trigger == "schedule" and calm_from is not None and run.run_at > calm_from

    late = [
        (run.started_at - run.run_at).total_seconds() * 1000
        for run in played.history.runs
        if run.started_at is not None and counts(run)
    ]
    if len(late) < 2:
        return "nothing ran"
    cut = quantiles(late, n=100)
    return f"p50 {cut[49]:.0f} ms, p99 {cut[98]:.0f} ms, most {max(late):.0f} ms, of {len(late)} runs"


def _warnings(played: Played) -> str:
    said = Counter(event.name for event in played.events if event.fields.get("level") in ("warning", "error"))
    return ", ".join(f"{count} {name}" for name, count in said.most_common())


def _failed_steps(played: Played) -> list[str]:
    """What the workers could not do, and why."""
    named = ("step_failed", "job_has_a_problem", "batch_refused", "output_not_stored", "sessions_left")
    said = Counter(
        f"{event.name} {event.fields.get('loop', event.fields.get('job', ''))}:"
        f" {str(event.fields.get('error', event.fields.get('problem', ''))).partition(chr(10))[0][:140]}"
        for event in played.events
        if event.name in named
    )
    return [f"{count} x {text}" for text, count in said.most_common(12)]
