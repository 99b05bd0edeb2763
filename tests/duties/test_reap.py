"""Reap: when whoever watches others looks again, by a clock that the test sets."""

from __future__ import annotations

import pytest

from pgcron_runner import reap
from tests.duties.stage import staged
from tests.statements.builders import WORKER, add_job, add_running, statuses
from tests.support.databases import Database


async def test_the_next_look_is_at_the_end_of_a_lease_where_that_comes_before_the_interval(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = add_job(database)
    add_running(database, job_id, worker_id=WORKER)
    time = 1000.0
    monkeypatch.setattr(reap, "boottime", lambda: time)
    async with staged(database.dsn, lease=30.0) as observer:
        assert observer.reap.look_in(5.0) is None
        assert await observer.reap.step() == 0
        time = 1013.0
        assert await observer.reap.step() == 0
        assert observer.reap.look_in(5.0) is None
        time = 1027.0
        assert await observer.reap.step() == 0
        assert observer.reap.look_in(5.0) == 3.0
        time = 1030.0
        assert await observer.reap.step() == 1
        assert observer.reap.look_in(5.0) is None
    assert statuses(database, job_id) == ["lost"]
