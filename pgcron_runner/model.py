"""The values everything else speaks in: jobs, runs, outcomes. They know nothing of SQL, processes or clocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a job's command is."""

    SHELL = "shell"
    SQL = "sql"
    HTTP = "http"
    PYTHON = "python"


class Trigger(StrEnum):
    """Why a run exists."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    RETRY = "retry"
    CHAIN = "chain"
    BACKFILL = "backfill"


class Status(StrEnum):
    """Where a run is in its life. All but the first two are final and never change."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def is_final(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING)


class Overlap(StrEnum):
    """What happens to an occurrence that falls due while another run of its job is live (queued or running)."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    REPLACE = "replace"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """Which of the occurrences that nobody was there to start are run afterwards."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class DstGap(StrEnum):
    """What a fixed-time slot does that the clock jumps over: run at the first instant after, or not at all."""

    RUN_AFTER = "run_after"
    SKIP = "skip"


class DstRepeat(StrEnum):
    """On which pass a fixed-time slot runs that the clock shows twice."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class StopReason(StrEnum):
    """Why a running command is stopped from outside; each has the final state it leads to."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"
    LEASE = "lease"
    MEMORY = "memory"

    @property
    def status(self) -> Status:
        return _STATUS_OF_STOP[self]


_STATUS_OF_STOP = {
    StopReason.CANCEL: Status.CANCELLED,
    StopReason.TIMEOUT: Status.TIMED_OUT,
    StopReason.DRAIN: Status.INTERRUPTED,
    StopReason.LEASE: Status.LOST,
    StopReason.MEMORY: Status.FAILED,
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when an occurrence is tried again. `max_attempts` counts the first attempt."""

    max_attempts: int = 1
    delay: timedelta = timedelta(seconds=30)
    backoff: float = 2.0
    max_delay: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ExcludedDays:
    """Days of a calendar on which a job is skipped, both ends included, in the job's own zone."""

    calendar: str
    first_day: date
    last_day: date
    label: str | None = None

    @property
    def reason(self) -> str:
        return f"calendar {self.calendar}" + (f": {self.label}" if self.label else "")


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job whose `next_run_at` has come, with all that planning needs.

    `planned` is false after an insert or an edit: then nothing at or before `anchored_at` may fire.
    `running_run_ids` and `queued_run_id` (the oldest) are what may be in the way of a new run; they are not
    looked up for a job that allows overlap, and neither is `queued_count`.
    `fired_local` is the local nominal time, without zone, of the last occurrence; None after an edit.
    `last_finished_at` is looked up only for schedules that count from the end of the last run.
    `fired_until`: up to there everything is accounted for. `other_zone_data`: `next_run_at` was computed with another
    release than the one at hand.
    """

    id: int
    name: str
    schedule: str
    timezone: str
    planned: bool
    anchored_at: datetime
    next_run_at: datetime
    overlap: Overlap = Overlap.SKIP
    max_running: int | None = None
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window: timedelta | None = None
    catch_up_limit: int = 100
    dst_gap: DstGap = DstGap.RUN_AFTER
    dst_repeat: DstRepeat = DstRepeat.FIRST
    jitter: timedelta = timedelta(0)
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    paused_until: datetime | None = None
    running_run_ids: tuple[int, ...] = ()
    queued_run_id: int | None = None
    queued_count: int = 0
    excluded: tuple[ExcludedDays, ...] = ()
    fired_local: datetime | None = None
    last_finished_at: datetime | None = None
    fired_until: datetime | None = None
    other_zone_data: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A claimed run together with what its job says: everything that execution and finishing need.

    `args` is already the run's override where it has one; `state` is what the attempt or slice before it has saved,
    None where there is none; `heartbeat_url` is a monitor, or a reference to one. Durations are `timedelta`; limits are
    MB and kB.
    """

    run_id: int
    job_id: int
    job_name: str
    kind: Kind
    command: str
    args: dict[str, Any]
    scheduled_for: datetime
    attempt: int
    exclusive: bool
    timeout: timedelta
    kill_grace: timedelta
    retry: RetryPolicy
    env: dict[str, str] = field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    working_dir: str | None = None
    memory_limit_mb: int | None = None
    output_limit_kb: int = 64
    state: Any = None
    heartbeat_url: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed: storable text (head and tail), and how much it really was.

    `total_bytes` counts everything that was printed; `truncated` says that the middle is missing from `text`.
    """

    text: str = ""
    total_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What a running run has said of itself since somebody last looked; None: nothing new. The last two are JSON."""

    output: Output | None = None
    progress: Any = None
    state: Any = None


@dataclass(frozen=True, slots=True)
class NextRun:
    """A run that a run has asked for: of the job called `job` (None: its own), `after` its end, with these `args`.

    `args` None: those of the job. A run of the same job finds the saved state.
    """

    job: str | None = None
    after: timedelta = timedelta(0)
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended. `recorded` means that the run's own transaction has written it already.

    `progress` and `state` (JSON) are the last that it said of itself; None leaves what the row has. `next_runs` are
    started where it has succeeded.
    """

    status: Status
    exit_code: int | None = None
    error: str | None = None
    reason: str | None = None
    result: Any = None
    output: Output | None = None
    progress: Any = None
    state: Any = None
    next_runs: tuple[NextRun, ...] = ()
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A run whose execution has ended, and how."""

    task: Task
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Channel:
    """Where alerts go. `target` is an Apprise URL or one of our own, or a reference to one: `env:NAME`, `file:PATH`.

    `timezone` is that of its quiet hours; `template` None: the built-in text.
    """

    id: int
    name: str
    target: str
    timezone: str | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to say to one channel. `payload` has the facts; `tries` counts this one.

    `incident_key` is the same for all that is said about one incident, its end included.
    """

    id: int
    event: str
    job_name: str
    incident_key: str
    payload: dict[str, Any]
    created_at: datetime
    tries: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a channel made of a message. `retry_after`: seconds that it asked for; `permanent`: it can never be sent.

    `taken`: where it is not sent as a whole, how many of its alerts were taken, the first ones.
    """

    sent: bool
    error: str | None = None
    retry_after: float | None = None
    permanent: bool = False
    taken: int = 0
