"""What a review looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is said of a job, named as the columns are. `check_ignore`: codes of rules, each with the reason."""

    name: str
    kind: str
    command: str
    schedule: str
    timezone: str
    args: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    jitter: timedelta = timedelta(0)
    dst_gap: str = "run_after"
    dst_repeat: str = "first"
    overlap: str = "skip"
    max_attempts: int = 1
    timeout: timedelta = timedelta(hours=1)
    memory_limit_mb: int | None = None
    history: str = "all"
    keep_for: timedelta | None = None
    queue: str = "default"
    env: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    idempotent: bool = False
    check_ignore: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """From a row of the table, or a definition in a file."""
        known = {f.name: columns[f.name] for f in fields(cls) if f.name in columns}
        return cls(**known | {name: tuple(columns.get(name) or ()) for name in ("tags", "redact")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The last hundred runs of a job. `p95` is of those that succeeded, `p99` of those that timed out too."""

    runs: int = 0
    tried: int = 0
    succeeded: int = 0
    skipped: int = 0
    succeeded_late: int = 0
    p95: timedelta | None = None
    p99: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which jobs' failures go to a channel."""

    channel: str
    job_pattern: str = "*"
    tags: tuple[str, ...] = ()
    queue: str | None = None
    events: tuple[str, ...] = ("failed",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What holds for all jobs. `channels` are the enabled ones; one without a route hears of every job."""

    channels: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    keep_for: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Case:
    """A job with all that is known of it; without a database its past and its installation are not."""

    job: Job
    now: datetime
    figures: Figures | None = None
    installation: Installation | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says of a job; of all of them together where `job` is empty."""

    code: str
    rule: str
    job: str
    message: str
    fix: str
