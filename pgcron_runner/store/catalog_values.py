"""What people see of jobs, runs and workers: a value for each statement, its fields named as the columns are.

It must not know how they are read, nor how they are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A checked definition, as it is to be inserted. `args` and `env` are JSON texts."""

    name: str
    kind: str
    command: str
    args: str
    schedule: str
    timezone: str
    enabled: bool
    queue: str
    priority: int
    starts_at: datetime | None
    ends_at: datetime | None
    jitter: timedelta
    timeout: timedelta
    kill_grace: timedelta
    overlap: str
    max_running: int | None
    catch_up: str
    catch_up_window: timedelta | None
    catch_up_limit: int
    max_attempts: int
    retry_delay: timedelta
    retry_backoff: float
    retry_max_delay: timedelta
    memory_limit_mb: int | None
    output_limit_kb: int
    env: str
    env_from: list[str]
    working_dir: str | None
    keep_for: timedelta | None
    tags: list[str]
    source: str
    dst_gap: str
    dst_repeat: str
    exclude: list[str]
    late_after: timedelta | None = None
    long_after: timedelta | None = None
    pause_after: int | None = None
    redact: list[str] = field(default_factory=list)
    heartbeat_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """One line of the list of jobs. Until it is `planned`, `next_run_at` says nothing."""

    id: int
    name: str
    kind: str
    schedule: str
    timezone: str
    queue: str
    tags: list[str]
    enabled: bool
    paused_until: datetime | None
    planned: bool
    anchored_at: datetime
    starts_at: datetime | None
    ends_at: datetime | None
    dst_gap: str
    dst_repeat: str
    next_run_at: datetime | None
    problem: str | None
    last_run_id: int | None
    last_status: str | None
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The whole definition of a job, and how many of its runs are queued and running."""

    id: int
    name: str
    kind: str
    command: str
    args: dict[str, Any]
    schedule: str
    timezone: str
    enabled: bool
    paused_until: datetime | None
    queue: str
    priority: int
    starts_at: datetime | None
    ends_at: datetime | None
    exclude: list[str]
    jitter: timedelta
    timeout: timedelta
    kill_grace: timedelta
    overlap: str
    max_running: int | None
    catch_up: str
    catch_up_window: timedelta | None
    catch_up_limit: int
    max_attempts: int
    retry_delay: timedelta
    retry_backoff: float
    retry_max_delay: timedelta
    memory_limit_mb: int | None
    output_limit_kb: int
    env: dict[str, str]
    env_from: list[str]
    working_dir: str | None
    late_after: timedelta | None
    long_after: timedelta | None
    pause_after: int | None
    paused_reason: str | None
    redact: list[str]
    heartbeat_url: str | None
    history: str
    keep_for: timedelta | None
    muted_until: datetime | None
    tags: list[str]
    owner: str
    source: str
    synced: dict[str, Any] | None
    removed_at: datetime | None
    idempotent: bool
    check_ignore: dict[str, str]
    dst_gap: str
    dst_repeat: str
    planned: bool
    anchored_at: datetime
    fired_until: datetime | None
    fired_local: str | None
    next_run_at: datetime | None
    zone_data: str | None
    problem: str | None
    created_at: datetime
    updated_at: datetime
    queued: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One line of a list of runs. `timezone` is its job's, None once that was removed."""

    id: int
    job_id: int | None
    job_name: str
    timezone: str | None
    kind: str
    queue: str
    trigger: str
    scheduled_for: datetime
    run_at: datetime
    attempt: int
    status: str
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    worker_id: UUID | None
    worker: str | None
    missed_count: int | None
    missed_until: datetime | None
    backfill: bool
    progress: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(ListedRun):
    """All facts of one run but its output. `max_attempts` is its job's, None once that was removed."""

    priority: int
    max_attempts: int | None
    state: Any
    result: Any
    output_bytes: int | None
    output_truncated: bool | None
    parent_run_id: int | None
    args: dict[str, Any] | None
    cancel_requested_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a run has printed so far."""

    status: str
    output: str | None
    output_bytes: int | None
    output_truncated: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker:
    """One line of the list of workers. `queues` None: all; `state`: alive, stopping, silent, or how it ended."""

    id: UUID
    name: str
    host: str
    pid: int
    version: str
    zone_data: str
    queues: list[str] | None
    kinds: list[str]
    slots: int
    running: int
    lease: timedelta
    started_at: datetime
    heartbeat_at: datetime
    ended_at: datetime | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What there is, what waits and what went wrong, by the database's clock `now`."""

    now: datetime
    paused: bool
    workers_alive: int
    workers_silent: int
    slots: int
    jobs_enabled: int
    jobs_paused: int
    jobs_problem: int
    queued_due: int
    queued_later: int
    running: int
    failures_last_day: int
    overdue: int
    oldest_overdue_at: datetime | None
    oldest_overdue_job: str | None
    incidents_open: int
    channels: int
    alerts_undelivered: int
