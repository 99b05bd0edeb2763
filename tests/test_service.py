"""What applications use: a worker inside a service, and a job's function that is tried without one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from pgcron_runner import Worker, next_times, run_once
from pgcron_runner.errors import InvalidInput, PgcronError
from tests.duties.stage import staged
from tests.examples.jobs import copy_a_slice, rotate_archives
from tests.support.databases import Database
from tests.support.waiting import eventually_async


async def test_a_worker_inside_a_service_runs_jobs_and_leaves_in_order(database: Database) -> None:
    database.execute(
        "insert into pgcron.jobs (name, kind, command, schedule, timezone)"
        " values ('now', 'sql', 'select 42', '@manual', 'UTC')"
    )
    done = "select status = 'succeeded' from pgcron.runs"

    async def succeeded() -> bool:
        return bool(database.value(done))

    async with Worker(database.dsn, name="inside", kinds=["sql"], slots=2) as worker:
        assert database.rows("select name, kinds, slots, ended_at from pgcron.workers") == [
            ("inside", ["sql"], 2, None)
        ]
        # A child of the service's own is reaped by nobody else.
        child = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "raise SystemExit(7)"], check=False)
        assert child.returncode == 7
        database.execute("select pgcron.run_job('now')")
        await eventually_async(succeeded, 30)
        with pytest.raises(PgcronError, match="runs already"):
            await worker.__aenter__()
    assert database.rows("select end_reason from pgcron.workers") == [("stopped",)]


async def test_where_the_schema_does_not_fit_entering_says_so(database: Database) -> None:
    database.execute("insert into pgcron.schema_migrations (version, name, breaking) values (9999, 'later', true)")
    with pytest.raises(PgcronError, match="schema version 9999"):
        async with Worker(database.dsn):
            pass


def test_a_function_can_be_tried_at_a_set_time_and_over_its_slices() -> None:
    when = datetime(2027, 1, 31, 9, tzinfo=UTC)
    done = run_once(rotate_archives, scheduled_for=when)
    assert (done.returned, done.job, done.scheduled_for, done.args) == (4, "rotate-archives", when, {"keep": 4})
    assert run_once(rotate_archives, args={"keep": 9}).returned == 9
    assert run_once(copy_a_slice).returned == 100
    last = run_once(copy_a_slice, slices=10)
    assert (last.returned, last.next_runs, last.state) == (300, [], {})


def test_when_a_function_is_due_is_told_in_utc() -> None:
    # Sundays at 4 in Berlin, over the end of summer time.
    after = datetime(2026, 10, 20, tzinfo=UTC)
    assert next_times(rotate_archives, after=after, count=2) == [
        datetime(2026, 10, 25, 3, tzinfo=UTC),
        datetime(2026, 11, 1, 3, tzinfo=UTC),
    ]
    with pytest.raises(InvalidInput, match="is no job"):
        next_times(copy_a_slice, after=after)


async def test_a_job_that_its_file_no_longer_has_goes_after_two_weeks(database: Database) -> None:
    database.execute(
        "insert into pgcron.jobs (name, kind, command, schedule, timezone, enabled, source, synced, removed_at)"
        " select n, 'sql', 'select 1', '@manual', 'UTC', false, 'file:jobs.toml', '{}', now() - age"
        "   from (values ('gone', interval '15 days'), ('going', interval '13 days')) v (n, age)"
    )
    async with staged(database.dsn) as stage:
        assert await stage.tidy.step(now=None) == 1
    assert database.rows("select name from pgcron.jobs") == [("going",)]
