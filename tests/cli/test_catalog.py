"""What people ask reads a few pages, however long the history is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose
from pgcron_runner.statements import query
from tests.support.databases import Database

_RUNS = 100_000
_NOBODY = {"job_id": 7, "job_name": "", "scheduled_for": None, "status": None, "since": None, "limit": 50}


@pytest.fixture
def long_history(database: Database) -> Database:
    database.execute("set session_replication_role = replica")
    database.execute(
        """insert into pgcron.jobs (name, kind, command, schedule, timezone)
           select 'job-' || i, 'sql', 'x', '@daily', 'UTC' from generate_series(1, 5000) i"""
    )
    database.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, finished_at,
                                    created_at)
           select 1 + i %% 5000, 'x', 'sql', 'schedule', at, at, 'succeeded', at, at
             from (select i, now() - (%s - i) * interval '1 minute' as at from generate_series(1, %s) i) past""",
        (_RUNS, _RUNS),
    )
    database.execute("vacuum (analyze) pgcron.jobs, pgcron.runs")
    return database


async def pages(database: Database, statement: str, given: Mapping[str, Any]) -> int:
    connection = await sessions.Database(database.dsn).connect(Purpose.ADMIN)
    try:
        cursor = await connection.execute(b"explain (analyze, buffers, format json) " + query(statement), given)
        [(plan,)] = await cursor.fetchall()
        return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])
    finally:
        await connection.close()


async def test_lists_read_a_few_pages_of_a_long_history(long_history: Database) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    newest = {"since": None, "status": None, "limit": 50}
    assert await pages(long_history, "list_runs", newest) < 300
    assert await pages(long_history, "list_runs", newest | {"since": hour_ago}) < 500
    assert await pages(long_history, "list_runs", newest | {"since": hour_ago, "status": "lost"}) < 500
    assert await pages(long_history, "list_runs", newest | {"status": "running"}) < 300
    assert await pages(long_history, "list_job_runs", _NOBODY) < 200
    assert await pages(long_history, "list_job_runs", _NOBODY | {"job_id": None, "job_name": "gone"}) < 100
    hour = {"job_id": 7, "from": hour_ago, "to": hour_ago + timedelta(hours=1), "limit": 500}
    assert await pages(long_history, "list_occurrence_runs", hour) < 200
    assert await pages(long_history, "list_filled_times", hour) < 100
    assert await pages(long_history, "read_circumstances", {"job_id": 7, "now": None}) < 50
    assert await pages(long_history, "read_run", {"run_id": 777}) < 50


async def test_the_list_of_jobs_reads_what_it_shows(long_history: Database) -> None:
    given = {"queue": None, "tag": None, "kind": None, "problem": False, "limit": 20}
    assert await pages(long_history, "list_jobs", given) < 300
