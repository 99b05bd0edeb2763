"""A next attempt that is being written while its job is disabled or paused is withdrawn all the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pgcron_runner.model import Status
from pgcron_runner.store import runs
from tests.duties.stage import staged
from tests.statements.builders import NOW, WORKER, add_job, add_running, edit_job, ending, statuses
from tests.support.databases import Database


@pytest.mark.parametrize("stop", [{"enabled": False}, {"paused_until": NOW + timedelta(hours=1)}])
async def test_a_retry_of_a_job_that_is_stopped_at_this_very_moment_does_not_stay_queued(
    stop: dict[str, object], database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    async with staged(database.dsn) as worker:
        async with worker.record.use() as record, record.transaction():
            await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=0)], now=NOW)
            # Neither sees the other: the edit is committed first, and the next attempt right after it.
            edit_job(database, job_id, **stop)
        assert statuses(database, job_id) == ["failed", "queued"]
        assert await worker.tidy.step(now=NOW) == 1
        assert statuses(database, job_id) == ["failed", "cancelled"]
        assert await worker.tidy.step(now=NOW) == 0


async def test_what_people_have_asked_for_stays_although_the_schedule_is_stopped(database: Database) -> None:
    job_id = add_job(database, enabled=False)
    database.execute(
        "insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, max_running)"
        " select id, name, kind, queue, priority, 'manual', %s, %s, 1 from pgcron.jobs where id = %s",
        [NOW, NOW, job_id],
    )
    async with staged(database.dsn) as worker:
        assert await worker.tidy.step(now=NOW) == 0
    assert statuses(database, job_id) == ["queued"]
