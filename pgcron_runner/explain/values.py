"""What is asked about, what is known of it, and the answer. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pgcron_runner.model import DstGap, DstRepeat, ExcludedDays


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What bears on a job beside its own row. `workers`: how many are alive that would take it."""

    paused: bool = False
    queue_paused: bool = False
    keep_for: timedelta = timedelta(days=30)
    workers: int = 1
    excluded: tuple[ExcludedDays, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedJob:
    """All of a job that decides when it runs."""

    name: str
    schedule: str
    timezone: str
    enabled: bool
    planned: bool
    anchored_at: datetime
    created_at: datetime
    next_run_at: datetime | None = None
    paused_until: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    problem: str | None = None
    history: str = "all"
    dst_gap: DstGap = DstGap.RUN_AFTER
    dst_repeat: DstRepeat = DstRepeat.FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRun:
    """One attempt at an occurrence, or the row that stands for missed ones."""

    id: int
    status: str
    trigger: str
    scheduled_for: datetime
    run_at: datetime
    attempt: int
    backfill: bool
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    worker: str | None
    missed_count: int | None
    missed_until: datetime | None
    cancel_requested_at: datetime | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The story of one moment. `verdict` is one word for programs: a run's status, or why there is no run.

    Those are: future, not_fired, before_made, before_edited, before_starts_at, after_ends_at, paused, disabled,
    excluded, problem, pruned, unknown, not_due, manual, after_finish.
    """

    at: datetime
    verdict: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """What was asked for: instants in [start, end), and a remark where the clock did something then."""

    start: datetime
    end: datetime
    remark: str = ""
