"""The review of jobs: named rules, each a pure function over a job, its history and the installation it is in.

A rule's docstring is its page: a sentence, why, and after `Fix:` what to do. One module a family, by the first digit of
the code: 1 `work`, 2 `zones` and `schedules`, 3 `limits`, 4 `alerts`, 5 `commands`, 6 `past`.
"""

from pgcron_runner.check.review import Review, review
from pgcron_runner.check.rules import RULES, Rule, select
from pgcron_runner.check.values import Case, Figures, Finding, Installation, Job, Route

__all__ = [
    "RULES",
    "Case",
    "Figures",
    "Finding",
    "Installation",
    "Job",
    "Review",
    "Route",
    "Rule",
    "review",
    "select",
]
