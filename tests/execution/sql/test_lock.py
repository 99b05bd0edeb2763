"""Two transactions of a job never overlap, and one whose run was taken away changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import LiteralString
from uuid import uuid4

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status, StopReason
from tests.execution.sql.stage import (
    DONE,
    MakeRunner,
    work,
)
from tests.execution.tasks import (
    AT_THE_GATE,
    SESSION_NAME,
    claimed_task,
    next_task,
    running,
    shut_gate,
    someone_waits,
    value_of,
)
from tests.statements.builders import OTHER_WORKER
from tests.support.databases import Database


async def test_the_jobs_transaction_keeps_a_second_one_out(database: Database, make_runner: MakeRunner) -> None:
    first = claimed_task(database, f"select pg_advisory_unlock_all(); {DONE}; {AT_THE_GATE}")
    with shut_gate(database) as open_gate:
        async with running(make_runner().run, first) as going:
            await someone_waits(database)
            second = next_task(database, first)
            refused = await make_runner(lock_patience=0).run(second, Stop(), Live())
            assert refused.status is Status.FAILED
            assert refused.reason == "another transaction of this job is still running; nothing was done"
            assert not await own_transactions_left(database)
            open_gate()
            # Closed as lost meanwhile: it may not commit.
            assert (await going).status is Status.LOST
    assert work(database) == 0


async def own_transactions_left(database: Database) -> int:
    count = "select count(*) from pg_stat_activity where application_name = %s and state like 'idle in%%'"
    return int(database.value(count, (SESSION_NAME,)))


async def test_a_retry_waits_for_the_transaction_that_a_dead_worker_left(
    database: Database, make_runner: MakeRunner
) -> None:
    first = claimed_task(database, f"{DONE}; {AT_THE_GATE}")
    with shut_gate(database) as open_gate:
        async with running(make_runner().run, first) as going:
            await someone_waits(database)
            async with running(make_runner().run, next_task(database, first)) as retry:
                await asyncio.sleep(0.3)
                assert not retry.done()
                open_gate()
                assert (await going).status is Status.LOST
                assert (await retry).recorded
    assert work(database) == 1


async def test_a_run_that_waits_for_the_lock_can_be_stopped(database: Database, make_runner: MakeRunner) -> None:
    first = claimed_task(database, AT_THE_GATE)
    stop = Stop()
    with shut_gate(database):
        async with running(make_runner().run, first):
            await someone_waits(database)
            async with running(make_runner().run, next_task(database, first), stop) as second:
                stop.request(StopReason.CANCEL)
                async with asyncio.timeout(2):
                    assert (await second).status is Status.FAILED


async def test_a_job_that_allows_overlap_has_no_lock(database: Database, make_runner: MakeRunner) -> None:
    database.execute("select pg_advisory_lock(('pgcron'::regnamespace::oid::bigint << 32) | 1)")
    task = replace(claimed_task(database, DONE), exclusive=False)
    assert task.job_id == 1
    assert (await make_runner(lock_patience=0).run(task, Stop(), Live())).recorded


TAKEN: list[LiteralString] = [
    f"update pgcron.runs set worker_id = '{OTHER_WORKER}' where id = %s",
    "update pgcron.runs set status = 'lost', finished_at = now() where id = %s",
    "delete from pgcron.runs where id = %s",
]


@pytest.mark.parametrize("taking", TAKEN)
async def test_a_run_that_was_taken_before_it_begins_does_nothing(
    database: Database, runner: SqlRunner, taking: LiteralString
) -> None:
    task = claimed_task(database, DONE)
    database.execute(taking, (task.run_id,))
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(database) == 0


@pytest.mark.parametrize("taking", TAKEN)
async def test_a_run_that_was_taken_meanwhile_is_rolled_back(
    database: Database, runner: SqlRunner, taking: LiteralString
) -> None:
    task = claimed_task(database, f"{DONE}; {AT_THE_GATE}")
    with shut_gate(database) as open_gate:
        async with running(runner.run, task) as going:
            await someone_waits(database)
            database.execute(taking, (task.run_id,))
            open_gate()
            outcome = await going
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(database) == 0


async def test_a_role_without_rights_on_the_schedule_can_be_used_by_a_job(
    database: Database, runner: SqlRunner
) -> None:
    role = f"r{uuid4().hex}"
    database.execute(f"create role {role}")
    try:
        database.execute(f"grant insert on work to {role}")
        for setting in ("set role", "set local role", "set session authorization", "SET LOCAL SESSION AUTHORIZATION"):
            task = claimed_task(database, f"{setting} {role}; {DONE}; select current_user::text", name=setting)
            outcome = await runner.run(task, Stop(), Live())
            assert (value_of(outcome), outcome.recorded) == (role, True)
        after = await runner.run(claimed_task(database, "select current_user::text"), Stop(), Live())
        assert value_of(after) == database.value("select current_user::text")
    finally:
        database.execute(f"drop owned by {role}; drop role {role}")


async def test_another_encoding_of_the_client_is_the_jobs_alone(database: Database, runner: SqlRunner) -> None:
    command = "set client_encoding to 'LATIN1'; do $$begin raise notice '€'; end$$"
    first = await runner.run(claimed_task(database, "select 1", name="first"), Stop(), Live())
    assert first.recorded
    outcome = await runner.run(claimed_task(database, command.replace("€", "x")), Stop(), Live())
    assert outcome.recorded
    after = await runner.run(claimed_task(database, "show client_encoding", name="after"), Stop(), Live())
    assert value_of(after) == "UTF8"
