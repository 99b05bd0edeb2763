"""Retries as rows: what becomes of one that the next occurrence meets, and of one that should not be there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose
from pgcron_runner.fire import Fire
from pgcron_runner.model import Status
from pgcron_runner.session import Session
from pgcron_runner.store import runs
from tests.statements.builders import (
    NOW,
    WORKER,
    ZONE_DATA,
    add_planned_job,
    add_run,
    add_running,
    claim,
    claimed_ids,
    ending,
    register,
    statuses,
)
from tests.support.databases import Database

HOUR = timedelta(hours=1)


@pytest.fixture
async def control(database: Database) -> AsyncIterator[Session]:
    register(database, WORKER)
    session = Session(sessions.Database(database.dsn, "control"), Purpose.CONTROL)
    yield session
    await session.close()


@pytest.mark.parametrize(
    ("overlap", "met"),
    [
        ("skip", "skipped"),
        ("queue_one", "skipped"),
        ("queue_all", "queued"),
        ("replace", "skipped"),
        ("allow", "queued"),
    ],
)
async def test_an_occurrence_that_meets_a_waiting_retry_goes_by_the_overlap_rule(
    overlap: str, met: str, control: Session, database: Database
) -> None:
    """The retry counts as the job being at it: it keeps its place, and the occurrence is what the rule makes of it."""
    job_id = add_planned_job(database, schedule="0 * * * *", overlap=overlap, max_attempts=3)
    run_id = add_running(database, job_id, scheduled_for=NOW - HOUR)
    async with control.use() as connection:
        await runs.finish_runs(connection, WORKER, [ending(run_id, Status.FAILED, retry_in=7200)], now=NOW - HOUR)
    await Fire(control, zone_data=ZONE_DATA).step(now=NOW)
    assert statuses(database, job_id) == ["failed", "queued", met]
    if met == "skipped":
        retry = database.value("select id from pgcron.runs where attempt = 2")
        reason = database.value("select reason from pgcron.runs where status = 'skipped'")
        assert reason == f"overlap: run {retry} is still queued"


async def test_a_row_beyond_all_attempts_stops_no_other_and_is_the_last(control: Session, database: Database) -> None:
    poisoned = add_run(database, add_planned_job(database, "poisoned", next_run_at=None), attempt=100_000)
    good = [add_run(database, add_planned_job(database, f"good-{n}", next_run_at=None)) for n in range(10)]
    async with control.use() as connection:
        claimed = await claim(connection, limit=20)
        assert claimed_ids(claimed) == sorted([poisoned, *good])
        await runs.finish_runs(connection, WORKER, [ending(poisoned, Status.FAILED)], now=NOW)
    assert database.value("select count(*) from pgcron.runs where attempt > 100000") == 0
    assert database.rows("select job_name, event from pgcron.incidents") == [("poisoned", "failed")]
