"""What people ask of runs: cancel them, or run a job now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from pgcron_runner.database import Connection
from pgcron_runner.statements import query
from pgcron_runner.store import runs
from tests.statements.builders import (
    NOW,
    WORKER,
    add_final,
    add_job,
    add_run,
    add_running,
    claim,
    edit_job,
    ending,
    status,
    statuses,
)
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually_async


async def cancel(connection: Connection, run_id: int) -> str | None:
    cursor = await connection.execute(query("cancel_run"), {"run_id": run_id, "reason": "by hand"})
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def enqueue(
    connection: Connection, name: str, args: dict[str, Any] | None = None, *, overlap: str | None = None
) -> int | None:
    given = None if args is None else Jsonb(args)
    cursor = await connection.execute(
        query("enqueue_run"), {"name": name, "args": given, "overlap": overlap, "now": NOW}
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


# ------------------------------------------------------------------------------------------------- cancel


async def test_a_queued_run_is_cancelled_at_once(record: Connection, database: Database) -> None:
    run_id = add_run(database, add_job(database))
    assert await cancel(record, run_id) == "queued"
    assert database.rows("select status, reason, finished_at is not null, cancel_requested_at from pgcron.runs") == [
        ("cancelled", "by hand", True, None)
    ]
    assert (await claim(record)).tasks == []


async def test_a_running_run_is_asked_to_stop_and_its_worker_hears_of_it(
    record: Connection, database: Database
) -> None:
    run_id = add_running(database, add_job(database))
    assert await runs.read_own_runs(record, WORKER, [run_id]) == {run_id: False}
    assert await cancel(record, run_id) == "running"
    assert database.rows("select status, reason, finished_at from pgcron.runs") == [("running", None, None)]
    assert await runs.read_own_runs(record, WORKER, [run_id]) == {run_id: True}


async def test_asking_twice_keeps_the_first_time(record: Connection, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    await cancel(record, run_id)
    first = database.value("select cancel_requested_at from pgcron.runs")
    assert await cancel(record, run_id) == "running"
    assert database.value("select cancel_requested_at from pgcron.runs") == first


@pytest.mark.parametrize("final", ["succeeded", "failed", "cancelled", "lost", "skipped"])
async def test_a_final_run_is_not_changed_by_a_cancel(final: str, record: Connection, database: Database) -> None:
    run_id = add_final(database, add_job(database), final)
    before = database.rows("select * from pgcron.runs")
    assert await cancel(record, run_id) == final
    assert database.rows("select * from pgcron.runs") == before


async def test_a_run_that_does_not_exist_cannot_be_cancelled(record: Connection) -> None:
    assert await cancel(record, 12345) is None


async def test_a_run_that_is_being_claimed_is_asked_to_stop(
    control: Connection, record: Connection, database: Database
) -> None:
    run_id = add_run(database, add_job(database))
    async with control.transaction():
        await claim(control)
        cancelling = asyncio.create_task(cancel(record, run_id))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, record.info.backend_pid))
    assert await cancelling == "running"
    assert database.value("select cancel_requested_at is not null from pgcron.runs") is True


async def test_a_run_that_is_being_finished_is_left_as_it_ended(
    control: Connection, record: Connection, database: Database
) -> None:
    run_id = add_running(database, add_job(database))
    async with control.transaction():
        await runs.finish_runs(control, WORKER, [ending(run_id)], now=NOW)
        cancelling = asyncio.create_task(cancel(record, run_id))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, record.info.backend_pid))
    assert await cancelling == "succeeded"
    assert database.rows("select status, cancel_requested_at from pgcron.runs") == [("succeeded", None)]


async def test_a_run_that_succeeded_although_it_was_to_stop_stays_succeeded(
    record: Connection, database: Database
) -> None:
    run_id = add_running(database, add_job(database))
    await cancel(record, run_id)
    assert await runs.finish_runs(record, WORKER, [ending(run_id)], now=NOW) == {run_id}
    assert status(database, run_id) == "succeeded"


# ------------------------------------------------------------------------------------------------ run now


async def test_run_now_queues_a_manual_run(record: Connection, database: Database) -> None:
    job_id = add_job(database, kind="http", queue="mail", priority=2, args={"a": 1})
    run_id = await enqueue(record, "job")
    assert database.rows(
        """select id, job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, attempt, status,
                  max_running, args from pgcron.runs"""
    ) == [(run_id, job_id, "job", "http", "mail", 2, "manual", NOW, NOW, 1, "queued", 1, None)]


async def test_run_now_may_bring_arguments_of_its_own(record: Connection, database: Database) -> None:
    add_job(database, args={"a": 1})
    await enqueue(record, "job", {"b": 2})
    [task] = (await claim(record)).tasks
    assert task.args == {"b": 2}


async def test_run_now_works_for_a_disabled_job(record: Connection, database: Database) -> None:
    edit_job(database, add_job(database), enabled=False)
    run_id = await enqueue(record, "job")
    assert [task.run_id for task in (await claim(record)).tasks] == [run_id]


async def test_run_now_obeys_the_overlap_rule_and_names_the_run_in_its_way(
    record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    running = add_running(database, job_id)
    assert await enqueue(record, "job") is not None
    assert statuses(database, job_id) == ["running", "skipped"]
    assert database.value("select reason from pgcron.runs where status = 'skipped'") == (
        f"overlap: run {running} is still running"
    )


@pytest.mark.parametrize("rule", ["queue_one", "queue_all", "allow"])
async def test_run_now_may_override_the_rule_and_then_waits_for_the_running_run(
    rule: str, record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    add_running(database, job_id)
    assert await enqueue(record, "job", overlap=rule) is not None
    assert (await claim(record)).tasks == []
    assert statuses(database, job_id) == ["running", "queued"]


async def test_run_now_with_replace_asks_the_running_run_to_stop(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    running = add_running(database, job_id)
    await enqueue(record, "job", overlap="replace")
    assert statuses(database, job_id) == ["running", "queued"]
    assert await runs.read_own_runs(record, WORKER, [running]) == {running: True}


async def test_run_now_of_an_unknown_job_is_no_row(record: Connection) -> None:
    assert await enqueue(record, "nobody") is None
