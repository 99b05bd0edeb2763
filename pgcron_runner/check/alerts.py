"""4: who is told."""

from __future__ import annotations

import re
from functools import lru_cache

from pgcron_runner.check.rules import rule
from pgcron_runner.check.values import Case, Installation, Job, Route

_FAILURES = {"failed", "timed_out", "lost", "launch_failed"}


@rule("PGC401", "no-alert-route")
def no_alert_route(case: Case) -> str | None:
    """Nobody is told when a job fails.

    It is found out weeks later, by whoever misses the result.

    Fix: add a channel (pgcron-runner channel add ops env:OPS_URL); one without routes hears of every job.
    """
    if case.installation is None or _is_heard(case.job, case.installation):
        return None
    return "nobody is told when it fails"


def _is_heard(job: Job, installation: Installation) -> bool:
    routed = {route.channel for route in installation.routes}
    if any(channel not in routed for channel in installation.channels):
        return True
    return any(_matches(route, job) for route in installation.routes if route.channel in installation.channels)


def _matches(route: Route, job: Job) -> bool:
    return (
        bool(_FAILURES & set(route.events))
        and route.queue in (None, job.queue)
        and set(route.tags) <= set(job.tags)
        and _pattern(route.job_pattern).fullmatch(job.name) is not None
    )


@lru_cache(maxsize=1_000)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


@rule("PGC402", "broken-redaction")
def broken_redaction(case: Case) -> str | None:
    """A pattern of redact is no regular expression of Python.

    It masks nothing: what it should have kept out of messages goes to the channels.

    Fix: mend it; python3 -c 'import re; re.compile(r"PATTERN")' says what is wrong with it.
    """
    for number, pattern in enumerate(case.job.redact, 1):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            return f"pattern {number} of its redact masks nothing: {error}"
    return None
