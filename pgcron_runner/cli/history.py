"""What became of a job's occurrences: attempts folded into one, and figures over all of them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pgcron_runner.model import Status

if TYPE_CHECKING:
    from pgcron_runner.store.catalog import ListedRun

# How it went when it was tried; what was skipped, missed or called off says nothing about the job itself.
_TRIED = (Status.SUCCEEDED, Status.FAILED, Status.TIMED_OUT, Status.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """All attempts at one occurrence. `status`, `run_id` and `took` are the last one's, `late` is the first one's.

    `late`: from when it might start until it did; None where it did not. `count`: how many a `missed` one stands for.
    """

    scheduled_for: datetime
    trigger: str
    backfill: bool
    status: str
    attempts: int
    run_id: int
    started_at: datetime | None
    late: timedelta | None
    took: timedelta | None
    count: int
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Half of them are at most `p50`, 95 of a hundred at most `p95`."""

    p50: timedelta
    p95: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures over occurrences. `success`: which part of what was tried succeeded, None where nothing was.

    `took` is over those that succeeded, `late` over those that started; None where there are none.
    """

    occurrences: int
    statuses: dict[str, int]
    tried: int
    succeeded: int
    success: float | None
    took: Spread | None
    late: Spread | None


def fold(runs: Iterable[ListedRun], now: datetime) -> list[Occurrence]:
    """Runs folded into occurrences, in the order of the first run of each."""
    attempts: dict[tuple[datetime, bool], list[ListedRun]] = {}
    for run in runs:
        attempts.setdefault((run.scheduled_for, run.backfill), []).append(run)
    return [_folded(some, now) for some in attempts.values()]


def summarize(occurrences: Sequence[Occurrence]) -> Summary:
    """The figures."""
    statuses: Counter[str] = Counter()
    for occurrence in occurrences:
        statuses[occurrence.status] += occurrence.count
    tried = sum(statuses[status] for status in _TRIED)
    succeeded = statuses[Status.SUCCEEDED]
    return Summary(
        occurrences=statuses.total(),
        statuses=dict(sorted(statuses.items())),
        tried=tried,
        succeeded=succeeded,
        success=succeeded / tried if tried else None,
        took=_spread([o.took for o in occurrences if o.took is not None and o.status == Status.SUCCEEDED]),
        late=_spread([o.late for o in occurrences if o.late is not None]),
    )


def _folded(attempts: Sequence[ListedRun], now: datetime) -> Occurrence:
    last, first = max(attempts, key=_number), min(attempts, key=_number)
    return Occurrence(
        scheduled_for=last.scheduled_for,
        trigger=first.trigger,
        backfill=last.backfill,
        status=last.status,
        attempts=last.attempt,
        run_id=last.id,
        started_at=first.started_at,
        late=max(first.started_at - first.run_at, timedelta(0)) if first.started_at and first.attempt == 1 else None,
        took=(last.finished_at or now) - last.started_at if last.started_at else None,
        count=last.missed_count or 1,
        remark=_remark(last),
    )


def _number(run: ListedRun) -> int:
    return run.attempt


def _remark(run: ListedRun) -> str:
    if run.status == Status.SUCCEEDED:
        return ""
    return run.reason or (run.error or "").partition("\n")[0] or (f"exit code {run.exit_code}" if run.exit_code else "")


def _spread(lengths: list[timedelta]) -> Spread | None:
    if not lengths:
        return None
    ordered = sorted(lengths)
    return Spread(p50=_percentile(ordered, 0.5), p95=_percentile(ordered, 0.95), longest=ordered[-1])


def _percentile(ordered: Sequence[timedelta], part: float) -> timedelta:
    """The nearest rank: one that was there."""
    return ordered[max(math.ceil(part * len(ordered)), 1) - 1]
