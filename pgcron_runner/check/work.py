"""1: what happens when work is done twice."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pgcron_runner.check.rules import rule, rule_of_all
from pgcron_runner.check.values import Case, Job
from pgcron_runner.model import Kind, Overlap


@rule("PGC101", "overlap-allowed")
def overlap_allowed(case: Case) -> str | None:
    """Runs of a job may overlap, and nobody has said that this does no harm.

    With overlap = allow there is no lock: a run that takes longer than usual meets the next one, and both read and
    write the same things. This is found out on the day on which everything is slow.

    Fix: set overlap to skip or queue_one; or, where two at once do no harm, idempotent = true.
    """
    if case.job.overlap == Overlap.ALLOW and not case.job.idempotent:
        return "two of its runs may be at it at once"
    return None


@rule("PGC102", "retry-not-idempotent")
def retry_not_idempotent(case: Case) -> str | None:
    """A job is tried again after a failure, and nobody has said that doing half of it twice does no harm.

    A shell, Python or HTTP command that failed, or whose worker died, may have done part of its work, or all of it:
    mails that were sent are sent again. A SQL job in one transaction has left nothing behind, and is not meant here.

    Fix: make it safe to repeat and set idempotent = true; or set max_attempts = 1.
    """
    job = case.job
    if job.max_attempts > 1 and not job.idempotent and not _is_one_transaction(job):
        return f"{job.max_attempts} attempts may do its work {job.max_attempts} times"
    return None


def _is_one_transaction(job: Job) -> bool:
    return job.kind == Kind.SQL and job.args.get("transaction", True) is not False and "connection" not in job.args


@rule_of_all("PGC103", "same-work-twice")
def same_work_twice(cases: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """Two jobs run the same command with the same arguments.

    Mostly one was meant to replace the other. They have a lock each, so nothing keeps them from running at once.

    Fix: remove one of them; several times of one job are several lines of its schedule.
    """
    same: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for job in (case.job for case in cases if case.job.enabled):
        surroundings = json.dumps([job.args, job.env], sort_keys=True, default=str)
        same[job.kind, " ".join(job.command.split()), surroundings, job.queue].append(job.name)
    for first, *others in same.values():
        for other in others:
            yield other, f"it does the same work as {first}"
