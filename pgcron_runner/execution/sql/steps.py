"""What a job's text has left in settings for its record, where the record is not part of its own transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pgcron_runner.execution.output import storable
from pgcron_runner.execution.result import BadResultError, storable_result
from pgcron_runner.execution.steps import BadStepError, next_run_of
from pgcron_runner.model import NextRun, Outcome, Status
from pgcron_runner.store.sql_runs import SqlSteps


def with_steps(success: Outcome, steps: SqlSteps) -> Outcome:
    """The outcome with the saved state and the runs to start; failed, in words, where they cannot be read."""
    try:
        state = _json_of(steps.state, "pgcron.state")
        return replace(success, state=state, next_runs=_next_runs(_json_of(steps.next_runs, "pgcron.next_runs")))
    except BadStepError as error:
        return replace(success, status=Status.FAILED, error=storable(str(error)))


def _json_of(text: str | None, name: str) -> Any:
    try:
        return storable_result(json.loads(text)) if text else None
    except (ValueError, RecursionError, BadResultError) as error:
        raise BadStepError(f"the setting {name} does not hold JSON: {error}") from error


def _next_runs(asked: Any) -> tuple[NextRun, ...]:
    if asked is None:
        return ()
    if not isinstance(asked, list):
        raise BadStepError("the setting pgcron.next_runs does not hold a JSON array")
    return tuple(next_run_of(one, where=f"pgcron.next_runs, number {n}") for n, one in enumerate(asked, 1))
