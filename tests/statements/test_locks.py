"""One order of locks (jobs before runs), nobody waits for a fire, and advisory locks that can be counted."""

from __future__ import annotations

import asyncio

from pgcron_runner.database import Connection, Purpose
from pgcron_runner.model import Status
from pgcron_runner.planning import Plan, PlannedRun
from pgcron_runner.store import jobs, runs
from pgcron_runner.store.runs import LockedJob
from tests.statements.builders import (
    NOW,
    WORKER,
    ZONE_DATA,
    add_job,
    add_planned_job,
    add_run,
    add_running,
    claim,
    ending,
    job_locks,
    minutes,
    status,
    statuses,
    take_job_lock,
)
from tests.statements.conftest import Connect
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually_async


async def is_blocked(database: Database, connection: Connection) -> bool:
    return await asyncio.to_thread(blocked_on_lock, database.dsn, connection.info.backend_pid)


# ---------------------------------------------------------------------------------------------- lock order


async def test_a_finishing_runs_retry_does_not_wait_for_the_firing_of_its_job(
    control: Connection, record: Connection, database: Database
) -> None:
    job_id = add_planned_job(database)
    run_id = add_running(database, job_id)
    async with control.transaction():
        [(due, _)] = await jobs.lock_due_jobs(control, zone_data=ZONE_DATA, limit=10, now=NOW)
        assert due.id == job_id
        async with asyncio.timeout(5):  # waiting would end at the session's lock_timeout with an error
            assert await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW) == {
                run_id
            }
    assert statuses(database, job_id) == ["failed", "queued"]


async def test_deleting_a_job_while_its_run_is_retried_is_no_deadlock(connect: Connect, database: Database) -> None:
    """Else the delete holds the job and waits for the run, and the finishing holds the run and waits for the job."""
    job_id = add_job(database, overlap="queue_all")
    run_id, waiting = add_running(database, job_id, ago=minutes(2)), add_run(database, job_id)
    holder, deleter, finisher = await connect(), await connect(Purpose.RECORD), await connect(Purpose.RECORD)

    async with holder.transaction():
        # Stops the delete half-way: it has locked the job and waits for the queued run.
        await holder.execute("select from pgcron.runs where id = %s for update", (waiting,))
        deleting = asyncio.create_task(deleter.execute("delete from pgcron.jobs where id = %s", (job_id,)))
        await eventually_async(lambda: is_blocked(database, deleter))
        finishing = asyncio.create_task(
            runs.finish_runs(finisher, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW)
        )
        await eventually_async(lambda: is_blocked(database, finisher))
    ends = await asyncio.gather(deleting, finishing, return_exceptions=True)
    assert [end for end in ends if isinstance(end, BaseException)] == []


async def test_a_retry_that_is_written_while_its_job_is_being_disabled_is_not_claimed(
    connect: Connect, database: Database
) -> None:
    """The disabling looks for queued runs before the retry is there, and commits after it."""
    job_id = add_job(database, overlap="queue_all")
    run_id, waiting = add_running(database, job_id, ago=minutes(2)), add_run(database, job_id)
    holder, disabler, finisher = await connect(), await connect(Purpose.RECORD), await connect(Purpose.RECORD)
    async with holder.transaction():
        await holder.execute("select from pgcron.runs where id = %s for update", (waiting,))
        disabling = asyncio.create_task(disabler.execute("update pgcron.jobs set enabled = false"))
        await eventually_async(lambda: is_blocked(database, disabler))
        ends = [ending(run_id, Status.FAILED, retry_in=0)]
        assert await runs.finish_runs(finisher, WORKER, ends, now=NOW) == {run_id}
    await disabling
    assert status(database, waiting) == "cancelled"
    assert (await claim(holder)).tasks == []


async def test_disabling_a_job_waits_for_a_claim_and_leaves_the_run_running(
    control: Connection, record: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="queue_all")
    for ago in (2, 1):
        add_run(database, job_id, ago=minutes(ago))
    async with control.transaction():
        await claim(control, limit=1)
        disabling = asyncio.create_task(record.execute("update pgcron.jobs set enabled = false"))
        await eventually_async(lambda: is_blocked(database, record))
    await disabling
    assert statuses(database, job_id) == ["running", "cancelled"]


async def test_an_edit_waits_for_the_firing_of_the_job_and_withdraws_what_it_queued(
    control: Connection, record: Connection, database: Database
) -> None:
    job_id = add_planned_job(database)
    async with control.transaction():
        await jobs.lock_due_jobs(control, zone_data=ZONE_DATA, limit=10, now=NOW)
        disabling = asyncio.create_task(record.execute("update pgcron.jobs set enabled = false"))
        await eventually_async(lambda: is_blocked(database, record))
        planned = Plan(job_id, (PlannedRun(job_id, NOW, NOW, Status.QUEUED),), NOW + minutes(1))
        await jobs.insert_planned_runs(control, [planned], now=NOW)
        await jobs.move_jobs_on(control, [planned])
    await disabling
    assert statuses(database, job_id) == ["cancelled"]
    assert database.rows("select enabled, planned, next_run_at from pgcron.jobs") == [(False, False, None)]


# ----------------------------------------------------------------------------------- locks after a reconnect


async def test_after_a_reconnect_the_locks_are_taken_again_once_for_each_run(
    control: Connection, database: Database
) -> None:
    locks = [LockedJob(1, exclusive=True), LockedJob(2, exclusive=False), LockedJob(2, exclusive=False)]
    assert await runs.take_job_locks(control, locks) == set()
    assert sorted((lock.job_id, lock.exclusive) for lock in await runs.list_own_locks(control)) == [
        (1, True),
        (2, False),
    ]
    assert await runs.release_job_locks(control, locks) == 3
    assert job_locks(database, control) == 0


async def test_after_a_reconnect_a_lock_that_somebody_else_has_is_named(
    control: Connection, database: Database
) -> None:
    take_job_lock(database, 7)
    assert await runs.take_job_locks(control, [LockedJob(6, exclusive=True), LockedJob(7, exclusive=True)]) == {7}
    assert job_locks(database, control) == 1


async def test_locks_of_other_key_spaces_are_not_counted_as_job_locks(control: Connection, database: Database) -> None:
    await control.execute("select pg_advisory_lock(1, 2), pg_advisory_lock(3)")
    await control.execute("begin")
    await control.execute("select pg_advisory_xact_lock(('pgcron'::regnamespace::oid::bigint << 32) | 5)")
    assert await runs.list_own_locks(control) == []
