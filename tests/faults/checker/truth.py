"""The rows tell what happened, and nothing happened that no row tells of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.faults.checker.values import Breach, Effect, History, Job, Mark, Run

_NEVER_STARTED = frozenset({"queued", "skipped", "missed"})
_MARKS = "marks and rows agree"
_ONCE = "SQL happens exactly once"
# Kinds whose work writes marks.
_MARKING = frozenset({"shell", "python", "http"})


def false_marks(history: History) -> Iterator[Breach]:
    """Marks without a row, rows without their marks, and marks that say something else than the row."""
    runs = {run.id: run for run in history.runs}
    seen: dict[int, list[Mark]] = defaultdict(list)
    for mark in history.marks:
        seen[mark.run_id].append(mark)
    jobs = {job.name: job for job in history.jobs}
    for run_id, marks in seen.items():
        if _is_forgotten(history, marks):
            continue
        run = runs.get(run_id)
        if run is None:
            text = f"run {run_id} was carried out, but no row tells of it"
            yield Breach(_MARKS, text, (run_id,), marks[0].job)
            continue
        for text in _false(run, marks, jobs.get(run.job), unrecorded=history.unrecorded):
            yield Breach(_MARKS, text, (run_id,), run.job)
    for run in history.runs:
        if run.kind in _MARKING and run.status == "succeeded" and not any(m.word == "end" for m in seen[run.id]):
            yield Breach(_MARKS, f"{run} did not come to its end", (run.id,), run.job)


def _is_forgotten(history: History, marks: list[Mark]) -> bool:
    """Carried out for a server whose last words nobody has heard."""
    times = [mark.at for mark in marks]
    return any(split.touches(min(times), max(times)) for split in history.splits)


def _false(run: Run, marks: list[Mark], job: Job | None, *, unrecorded: bool) -> Iterator[str]:
    words = Counter(mark.word for mark in marks)
    if words["begin"] != 1 or words["end"] > 1:
        yield f"{run} began {words['begin']} times and ended {words['end']} times"
    if run.status in _NEVER_STARTED or (run.status == "cancelled" and run.started_at is None):
        yield f"{run} was carried out all the same"
    if not words["end"]:
        return
    code = next(mark.exit_code for mark in marks if mark.word == "end")
    expected = {"running", "succeeded" if code == 0 else "failed"}
    if unrecorded or (job is not None and not job.fenced):
        # Its worker could not say so in time, or somebody asked it to stop when it had just come to its end.
        expected |= {"lost", "interrupted", "cancelled", "timed_out"}
    if unrecorded and run.exit_code is None and "guard" in (run.error or ""):
        # Its guard was killed with the exit code in its hands, and the row says so.
        expected.add("failed")
    if run.status not in expected:
        yield f"{run} came to its end with exit code {code}, but did not {'succeed' if code == 0 else 'fail'}"


def false_effects(history: History) -> Iterator[Breach]:
    """Work without its record, record without its work, work done twice."""
    runs = {run.id: run for run in history.runs}
    effects: dict[int, list[Effect]] = defaultdict(list)
    for effect in history.effects:
        effects[effect.run_id].append(effect)
    for run_id, done in effects.items():
        run = runs.get(run_id)
        for text in _wrong_effects(history, run_id, run, done):
            yield Breach(_ONCE, text, (run_id,), run.job if run else None)
    for run in history.runs:
        if run.kind == "sql" and run.status == "succeeded" and run.id not in effects:
            yield Breach(_ONCE, f"{run} has not left its work", (run.id,), run.job)


def _wrong_effects(history: History, run_id: int, run: Run | None, done: list[Effect]) -> Iterator[str]:
    named = str(run or f"run {run_id}, which has no row,")
    if not all(effect.exactly_once for effect in done):
        if run is None or run.status in _NEVER_STARTED:
            yield f"{named} left its work behind"
        elif len(done) > 1:
            yield f"{named} did its work {_times(done)}"
    elif run is None or run.status != "succeeded":
        yield f"{named} left its work behind"
    elif len(done) > 1:
        yield f"{run} did its work {_times(done)}"
    elif done[0].nominal != run.scheduled_for:
        yield f"{run} did its work for {done[0].nominal}"
    elif history.clock.never_stepped and not _within(run, done[0]):
        yield f"{run} did its work at {done[0].at}, outside of {run.started_at} to {run.finished_at}"


def _within(run: Run, effect: Effect) -> bool:
    return run.started_at is not None and run.finished_at is not None and run.started_at <= effect.at <= run.finished_at


def _times(done: list[Effect]) -> str:
    said = ", ".join(
        f"{effect.at:%H:%M:%S.%f}{'' if effect.exactly_once else ' without a transaction'}" for effect in done
    )
    return f"{len(done)} times ({said})"
