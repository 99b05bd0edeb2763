"""`@job(schedule=..., timezone=...)`: what a function of an application says of when it is to run.

The function stays what it is. It needs the standard library alone, since every job that imports it pays for it; what is
said is checked when it is read (`pgcron-runner sync myapp.jobs`).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own takes 5 ms to import, and jobs pay for what they import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta
    from typing import Any, Literal, TypedDict, TypeVar, Unpack

    F = TypeVar("F", bound=Callable[..., Any])
    Duration = str | timedelta
    Moment = str | datetime

    class JobFields(TypedDict, total=False):
        """What else can be said of a job, as in a file. Durations are `"90s"`, `"1h30m"` or timedeltas."""

        args: dict[str, Any]
        enabled: bool
        starts_at: Moment
        ends_at: Moment
        exclude: Sequence[str]
        jitter: Duration
        dst_gap: Literal["run_after", "skip"]
        dst_repeat: Literal["first", "last", "both"]
        overlap: Literal["skip", "queue_one", "queue_all", "replace", "allow"]
        max_running: int
        catch_up: Literal["skip", "latest", "all"]
        catch_up_window: Duration
        catch_up_limit: int
        max_attempts: int
        retry_delay: Duration
        retry_backoff: float
        retry_max_delay: Duration
        timeout: Duration
        kill_grace: Duration
        memory_limit_mb: int
        output_limit_kb: int
        history: Literal["all", "failures"]
        keep_for: Duration
        late_after: Duration
        long_after: Duration
        pause_after: int
        redact: Sequence[str]
        heartbeat_url: str
        queue: str
        priority: int
        env: dict[str, str]
        env_from: Sequence[str]
        working_dir: str
        idempotent: bool
        check_ignore: dict[str, str]
        tags: Sequence[str]
        after: Sequence[str | dict[str, str]]


DECLARED = "__pgcron_job__"
"""The attribute of a function that holds its Declaration."""


class Declaration:
    """What `@job` was given. `name` None: the function's, with - for _."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str | None, fields: dict[str, Any]) -> None:
        self.name = name
        self.fields = fields


def job(
    *, schedule: str | Sequence[str], timezone: str, name: str | None = None, **fields: Unpack[JobFields]
) -> Callable[[F], F]:
    """Makes a function a job, once `pgcron-runner sync` has read its module. The function can be called as before.

        @job(schedule="0 9 * * mon-fri", timezone="America/New_York", timeout="10m", args={"audience": "sales"})
        def send_daily(audience: str) -> int: ...

    A worker imports it by its module and name, so it may be no function within a function. Its keywords are `args`.
    """

    def declare(function: F) -> F:
        setattr(function, DECLARED, Declaration(name, {"schedule": schedule, "timezone": timezone, **fields}))
        return function

    return declare
