"""Whether a history keeps the promises: pure rules over rows, marks of commands, and what was left behind.

It knows no database, no process and no clock, and nothing of the code under test: a checker that borrowed its rules
could never find them wrong. It is handed what was read, and names each breach in words.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.faults.checker import accounting, moments, overlap, truth
from tests.faults.checker.values import (
    Breach,
    Clock,
    Edition,
    Effect,
    History,
    Hold,
    Job,
    Mark,
    Run,
    SplitBrain,
)

__all__ = [
    "Breach",
    "Clock",
    "Edition",
    "Effect",
    "History",
    "Hold",
    "Job",
    "Mark",
    "Run",
    "SplitBrain",
    "breaches",
    "changed",
]


def breaches(history: History) -> list[Breach]:
    """All broken promises; empty: none."""
    return [
        *accounting.unaccounted(history),
        *accounting.wrong_attempts(history),
        *overlap.overlapping_marks(history),
        *overlap.overlapping_rows(history),
        *overlap.intruders(history),
        *overlap.outlasting(history),
        *truth.false_marks(history),
        *truth.false_effects(history),
        *moments.early(history),
        *moments.late(history),
        *moments.unfinished(history),
        *(Breach("final rows never change", change) for change in history.changes),
        *(Breach("nothing is left", f"a lock is left: {lock}") for lock in history.locks),
        *(Breach("nothing is left", f"a process is left: {process}") for process in history.processes),
        *(Breach("workers are sound", complaint) for complaint in history.complaints),
    ]


def changed(before: Iterable[Run], after: Iterable[Run]) -> list[str]:
    """Final rows of `before` that are not the same in `after`: final states never change."""
    later = {run.id: run for run in after}
    final = [run for run in before if run.status not in ("queued", "running")]
    return [f"{run} has become {later.get(run.id, 'nothing')}" for run in final if later.get(run.id) != run]
