"""The database's clock may step between two heartbeats: what would be planned by it is asked about at that moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pgcron_runner.clock import boottime
from pgcron_runner.leases import ClockWatch
from tests.duties.stage import staged
from tests.statements.builders import add_final, add_job
from tests.support.databases import Database

NINE = datetime(2035, 3, 14, 9, tzinfo=UTC)


def watch(database_now: datetime) -> ClockWatch:
    """What a heartbeat has seen that was answered just now."""
    return ClockWatch().observe(database_now, boottime(), boottime())


async def test_nothing_is_planned_by_a_clock_that_has_stepped_since_the_last_heartbeat(database: Database) -> None:
    add_job(database, "often", schedule="@every 1s", anchored_at=NINE - timedelta(seconds=5))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        known = watch(NINE)
        before = database.rows("select * from pgcron.runs order by id"), database.rows("select * from pgcron.jobs")
        for step in (timedelta(hours=1), timedelta(seconds=3)):
            assert (await worker.fire.step(clock=known, now=NINE + step)).jobs == 0
        after = database.rows("select * from pgcron.runs order by id"), database.rows("select * from pgcron.jobs")
        assert after == before
        assert (await worker.fire.step(clock=known, now=NINE + timedelta(seconds=1))).jobs == 1


async def test_a_clock_that_has_been_unsteady_is_gone_by_once_it_has_settled(database: Database) -> None:
    add_job(database, "often", schedule="@every 1s", anchored_at=NINE)
    async with staged(database.dsn) as worker:
        unsteady = ClockWatch(watch(NINE).offset, stepped_at=boottime())
        assert (await worker.fire.step(clock=unsteady, now=NINE)).jobs == 0
        settled = ClockWatch(unsteady.offset, stepped_at=boottime() - ClockWatch.SETTLE)
        assert (await worker.fire.step(clock=settled, now=NINE)).jobs == 1


async def test_an_end_that_lies_ahead_does_not_put_off_a_job_that_counts_from_its_ends(database: Database) -> None:
    """It was written while the database's clock was an hour ahead."""
    job_id = add_job(database, "often", schedule="@every 10s after finish", anchored_at=NINE - timedelta(minutes=1))
    run_id = add_final(database, job_id, "succeeded")
    ended = "update pgcron.runs set scheduled_for = %s, started_at = %s, finished_at = %s where id = %s"
    database.execute(ended, [NINE, NINE, NINE + timedelta(hours=1), run_id])
    at = NINE + timedelta(seconds=10)
    database.execute("update pgcron.jobs set planned = true, next_run_at = %s where id = %s", [at, job_id])
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE + timedelta(seconds=20))
    assert database.rows("select scheduled_for from pgcron.runs where status = 'queued'") == [(at,)]
    assert database.value("select next_run_at from pgcron.jobs") == NINE + timedelta(seconds=30)
