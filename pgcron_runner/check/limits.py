"""3: what a run may take, and what is kept of it."""

from __future__ import annotations

from datetime import timedelta

from pgcron_runner.check.rules import rule
from pgcron_runner.check.times import interval_of
from pgcron_runner.check.values import Case
from pgcron_runner.durations import format_duration
from pgcron_runner.model import Kind, Overlap

_DAY = timedelta(days=1)
_LONGEST_HISTORY = timedelta(days=2 * 365)
_MOST_ROWS = 100_000


@rule("PGC301", "no-timeout")
def no_timeout(case: Case) -> str | None:
    """A job has no timeout to speak of: more than a day.

    A command that hangs holds its job's lock and a slot until then, and every occurrence meanwhile is skipped.

    Fix: set timeout to a few times of what it takes; long work can go in steps (pgcron-runner step --help).
    """
    return f"it may hang for {format_duration(case.job.timeout)}" if case.job.timeout > _DAY else None


@rule("PGC302", "timeout-over-interval")
def timeout_over_interval(case: Case) -> str | None:
    """A run may take longer than the time to the next one.

    One that hangs then costs several occurrences, which are skipped, or wait, or pile up. The timeout is an hour where
    nobody has said one.

    Fix: set timeout below the interval, such as 50s for a job of each minute.
    """
    interval = interval_of(case.job, case.now)
    if interval is None or case.job.timeout <= interval or " after finish" in case.job.schedule.lower():
        return None
    if case.job.overlap == Overlap.ALLOW:
        return None
    return f"it may take {format_duration(case.job.timeout)}, but is due every {format_duration(interval)}"


@rule("PGC303", "no-memory-limit")
def no_memory_limit(case: Case) -> str | None:
    """A command may take all of the host's memory.

    Then the kernel ends something, perhaps the worker or the database. SQL and HTTP jobs take none of their own.

    Fix: set memory_limit_mb to twice of what it needs; the whole process tree of the run counts.
    """
    own = case.job.kind == Kind.SHELL or (case.job.kind == Kind.PYTHON and case.job.args.get("isolation") != "thread")
    return "it may take all memory of its host" if own and case.job.memory_limit_mb is None else None


@rule("PGC304", "no-retention")
def no_retention(case: Case) -> str | None:
    """So many finished runs of a job are kept that nobody will read them.

    A history that only grows makes every look at it slow, and fills the disk in the end. It is no archive.

    Fix: set keep_for lower, or history = "failures", which keeps of what went well only the last run.
    """
    keep = case.job.keep_for or (case.installation.keep_for if case.installation else timedelta(days=30))
    if case.job.history == "failures":
        return None
    if keep > _LONGEST_HISTORY:
        return f"its runs are kept for {format_duration(keep)}"
    interval = interval_of(case.job, case.now)
    rows = keep // interval if interval else 0
    return f"about {rows:,} of its runs are kept, for {format_duration(keep)}" if rows > _MOST_ROWS else None
