"""A few of the trials of sql_kills.py, and its own eyes: a disagreement is seen where there is one."""

from __future__ import annotations

import random

import pytest

from pgcron_runner.embedded import Server
from tests.faults.sql_kills import CAUSES, Verdict, run_trials, table

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.mark.parametrize("commit", ["on", "off"])
def test_work_and_record_agree_whoever_is_killed(own_server: Server, commit: str) -> None:
    found = run_trials(own_server, commit=commit, trials=2 * len(CAUSES), chance=random.Random(20260301))
    assert [verdict for verdict in found if verdict.disagrees] == []
    assert len(found) == 2 * len(CAUSES)
    print(table(found))


@pytest.mark.parametrize(
    ("rows", "status", "disagrees"),
    [
        (3, "succeeded", False),
        (0, "lost", False),
        (0, "failed", False),
        (0, "succeeded", True),
        (3, "lost", True),
        (6, "succeeded", True),
        (2, "succeeded", True),
        (1, "lost", True),
        (-1, "gone", True),
    ],
)
def test_a_disagreement_is_seen(rows: int, status: str, disagrees: bool) -> None:
    assert Verdict("any", "on", rows, status).disagrees is disagrees
