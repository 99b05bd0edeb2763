"""A review of jobs: every chosen rule over every job, less what a job has said is meant so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pgcron_runner.check import alerts, commands, limits, past, schedules, work, zones
from pgcron_runner.check.rules import Rule
from pgcron_runner.check.values import Case, Figures, Finding, Installation, Job

FAMILIES = (work, zones, schedules, limits, alerts, commands, past)
"""Loading them has filled the list of rules."""


@dataclass(frozen=True, slots=True)
class Review:
    """What was found, by job and code; how much the jobs leave out; a week's starts by minute of the hour."""

    findings: tuple[Finding, ...]
    ignored: int
    jobs: int
    by_minute: Mapping[int, int]


def review(
    jobs: Sequence[Job],
    rules: Sequence[Rule],
    now: datetime,
    figures: Mapping[str, Figures] | None = None,
    installation: Installation | None = None,
) -> Review:
    """Applies the rules. Without figures and installation, those that need them find nothing."""
    past_of = figures or {}
    cases = [Case(job, now, past_of.get(job.name), installation) for job in jobs]
    findings: list[Finding] = []
    ignored = 0
    for rule in rules:
        heard = [case for case in cases if not _is_ignored(rule, case.job)]
        found = list(_apply(rule, heard))
        findings += found
        ignored += len(list(_apply(rule, cases))) - len(found) if len(heard) < len(cases) else 0
    findings.sort(key=lambda finding: (finding.job, finding.code))
    counts: Counter[int] = schedules.starts_by_minute(cases)
    return Review(tuple(findings), ignored, len(jobs), dict(sorted(counts.items())))


def _is_ignored(rule: Rule, job: Job) -> bool:
    return any(word.upper() == rule.code or word == rule.name for word in job.check_ignore)


def _apply(rule: Rule, cases: Sequence[Case]) -> Iterator[Finding]:
    if rule.of_all is not None:
        for name, said in rule.of_all(cases):
            yield Finding(rule.code, rule.name, name, said, rule.fix)
        return
    assert rule.of_one is not None
    for case in cases:
        if (message := rule.of_one(case)) is not None:
            yield Finding(rule.code, rule.name, case.job.name, message, rule.fix)
