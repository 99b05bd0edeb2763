"""EXPLAIN guards of what `top` asks each second: a few pages each, whatever lies in the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pgcron_runner.database import Purpose
from pgcron_runner.embedded import Server
from tests.statements.test_explain import explain, fill, outline, pages_of, sequential_scans, worker_session
from tests.support.databases import Database, new_database

pytestmark = pytest.mark.slow

# Statement, parameters, and the most pages that it may touch.
_STATEMENTS: dict[str, tuple[dict[str, Any], int]] = {
    "read_pulse": ({}, 1_100),
    "list_running": ({"limit": 100}, 400),
    "list_due": ({"limit": 100}, 250),
    "list_failing": ({"limit": 100}, 700),
    "list_queues": ({"named": [], "now": None}, 700),
    "list_workers": ({"limit": 100, "all": False, "now": None}, 250),
}


@pytest.fixture(scope="module")
def filled(server: Server, migrated_template: str) -> Iterator[Database]:
    """A schema whose statistics say that it is empty."""
    with new_database(server, template=migrated_template) as database:
        fill(database, jobs=5_000, history=50_000, later=2_000)
        yield database


@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("name", _STATEMENTS)
def test_a_look_each_second_costs_a_few_pages(name: str, generic: bool, filled: Database) -> None:
    parameters, bound = _STATEMENTS[name]
    with worker_session(filled, Purpose.RECORD) as connection:
        plan = explain(connection, name, parameters, generic=generic)
    assert sequential_scans(plan) == [], outline(plan)
    assert pages_of(plan) <= bound, outline(plan)
