"""6: what the last hundred runs tell. Without a database there are none."""

from __future__ import annotations

from typing import Final

from pgcron_runner.check.rules import rule
from pgcron_runner.check.times import interval_of
from pgcron_runner.check.values import Case
from pgcron_runner.durations import format_duration

# With fewer, a percentile is an accident.
_ENOUGH: Final = 20
_SOME: Final = 10
_FEW: Final = 3
_ALWAYS: Final = 0.9


@rule("PGC601", "interval-under-p95")
def interval_under_p95(case: Case) -> str | None:
    """A job often takes longer than the time to its next run.

    One run in twenty or more is in the way of the next.

    Fix: run it less often, make it faster, or say @every 10m after finish.
    """
    figures, interval = case.figures, interval_of(case.job, case.now)
    if figures is None or interval is None or figures.p95 is None or figures.succeeded < _ENOUGH:
        return None
    if figures.p95 <= interval or " after finish" in case.job.schedule.lower():
        return None
    return f"its p95 is {format_duration(figures.p95)}, but it is due every {format_duration(interval)}"


@rule("PGC602", "timeout-under-p99")
def timeout_under_p99(case: Case) -> str | None:
    """A timeout stops runs that are only somewhat slow.

    One run in a hundred or more reaches it, does its work in vain, and is a failure.

    Fix: set timeout to twice the p99 at least, or do the work in steps.
    """
    figures = case.figures
    if figures is None or figures.p99 is None or figures.tried < _ENOUGH or figures.p99 < case.job.timeout:
        return None
    return f"its p99 reaches the timeout of {format_duration(case.job.timeout)}"


@rule("PGC603", "never-succeeded")
def never_succeeded(case: Case) -> str | None:
    """A job has not succeeded once.

    Either nobody needs it, or nobody has noticed.

    Fix: see why (pgcron-runner job history JOB), mend it, or remove it.
    """
    figures = case.figures
    if figures is None or figures.tried < _FEW or figures.succeeded:
        return None
    return f"none of its last {figures.tried} runs succeeded"


@rule("PGC604", "always-skipped")
def always_skipped(case: Case) -> str | None:
    """Nearly all occurrences of a job are skipped.

    By its overlap rule, or by a calendar: the schedule says something that does not happen.

    Fix: run it as often as it can, or exclude fewer days.
    """
    figures = case.figures
    if figures is None or figures.runs < _SOME or figures.skipped < _ALWAYS * figures.runs:
        return None
    return f"{figures.skipped} of its last {figures.runs} runs were skipped"


@rule("PGC605", "attempts-always-needed")
def attempts_always_needed(case: Case) -> str | None:
    """A job succeeds, but hardly ever at the first attempt.

    Retries are for what happens now and then. Here they hide something that is broken, until it takes one attempt more.

    Fix: see why the first attempt fails (pgcron-runner runs list JOB --status failed); perhaps it is due too early.
    """
    figures = case.figures
    if figures is None or figures.succeeded < _SOME or figures.succeeded_late < _ALWAYS * figures.succeeded:
        return None
    return f"{figures.succeeded_late} of its last {figures.succeeded} successes took more than one attempt"
