"""When a failed attempt, or a message that was not taken, is tried again. It knows no run, no row and no clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from tenacity import RetryCallState, wait_exponential

from pgcron_runner.model import RetryPolicy, Status

# What may be tried again. A cancelled run was stopped on purpose.
RETRIED = frozenset({Status.FAILED, Status.TIMED_OUT, Status.LOST, Status.INTERRUPTED})
# Of messages: how often is decided by their age.
_ALERTS = RetryPolicy(delay=timedelta(seconds=5), backoff=2.0, max_delay=timedelta(minutes=15))
_LONGEST_RETRY_AFTER = 24 * 3600.0
# Spreads the retries of jobs that failed together; at most this share is added.
_JITTER = 0.1


def retry_in(
    policy: RetryPolicy, status: Status, attempt: int, *, spread: Callable[[], float] = random.random
) -> float | None:
    """Seconds until the next attempt after attempt number `attempt` ended as `status`; None: no further attempt.

    The pause is `delay * backoff ** (attempt - 1)`, at most `max_delay`, and up to a tenth more. It is capped
    before any power can overflow: attempt 100,000 is as good as any.
    """
    if status not in RETRIED or attempt >= policy.max_attempts:
        return None
    return _pause(policy, attempt) * (1 + _JITTER * spread())


def alert_retry_in(tries: int, retry_after: float | None = None) -> float:
    """Seconds until a message that was not taken is sent again; at least what the channel asked for."""
    return max(_pause(_ALERTS, tries), min(retry_after or 0.0, _LONGEST_RETRY_AFTER))


def _pause(policy: RetryPolicy, attempt: int) -> float:
    longest = max(policy.max_delay, timedelta(0)).total_seconds()
    first = min(policy.delay.total_seconds(), longest)
    wait = wait_exponential(multiplier=first, exp_base=policy.backoff, max=longest)
    # tenacity asks for a call state; only the number of the attempt is read from it.
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = attempt
    return float(wait(state))
