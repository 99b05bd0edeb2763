"""SQL runs: the work and its `succeeded` commit together, or neither does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString

import pytest

from pgcron_runner.database import Connection, DatabaseError, Purpose
from pgcron_runner.model import Outcome, Output, Status, Task
from pgcron_runner.statements import query
from pgcron_runner.store import runs, sql_runs
from pgcron_runner.store.sql_runs import OpenedSqlRun
from tests.statements.builders import (
    NOW,
    OTHER_WORKER,
    WORKER,
    add_job,
    add_run,
    claim,
    ending,
    minutes,
    status,
    statuses,
)
from tests.statements.conftest import Connect
from tests.support.databases import Database

_DONE = Outcome(Status.SUCCEEDED)


@pytest.fixture
async def job(connect: Connect) -> Connection:
    """A session for the text of jobs."""
    return await connect(Purpose.JOB)


async def claimed(control: Connection, database: Database, name: str = "job", **columns: Any) -> Task:
    """A claimed SQL run that has work to do: a row for the table `public.work`."""
    database.execute("create table if not exists public.work (who bigint)")
    add_run(database, add_job(database, name, **columns))
    [task] = (await claim(control)).tasks
    return task


async def open_run(connection: Connection, task: Task, worker_id: Any = WORKER) -> OpenedSqlRun:
    return await sql_runs.open_sql_run(connection, worker_id, task)


async def work(connection: Connection, task: Task) -> None:
    await connection.execute("insert into public.work values (%s)", (task.run_id,))


def done_work(database: Database) -> list[int]:
    return [row[0] for row in database.rows("select who from public.work order by who")]


# -------------------------------------------------------------------------------------------- open, commit


async def test_work_and_record_are_one_commit(control: Connection, job: Connection, database: Database) -> None:
    task = await claimed(control, database)
    opened = await open_run(job, task)
    assert (opened.locked, opened.ours) == (True, True)
    await work(job, task)
    assert (done_work(database), status(database, task.run_id)) == ([], "running")
    outcome = Outcome(Status.SUCCEEDED, result={"value": 1}, output=Output("INSERT 0 1\n", 11))
    assert await sql_runs.commit_sql_run(job, WORKER, task, outcome, opened.transaction_id)
    assert done_work(database) == [task.run_id]
    assert database.rows(
        "select status, result, output, output_bytes, output_truncated, finished_at is not null from pgcron.runs"
    ) == [("succeeded", {"value": 1}, "INSERT 0 1\n", 11, False, True)]


async def test_a_run_without_output_or_result_has_none(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    opened = await open_run(job, task)
    assert await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    assert database.rows("select num_nonnulls(result, output, output_bytes, output_truncated) from pgcron.runs") == [
        (0,)
    ]


async def test_a_job_is_told_which_run_it_is(control: Connection, job: Connection, database: Database) -> None:
    task = await claimed(control, database, "nightly")
    await open_run(job, task)
    cursor = await job.execute(
        """select current_setting('pgcron.run_id'), current_setting('pgcron.job'), current_setting('pgcron.attempt'),
                  current_setting('pgcron.scheduled_for')::timestamptz"""
    )
    assert await cursor.fetchone() == (str(task.run_id), "nightly", "1", NOW - minutes(1))
    await job.execute("rollback")
    cursor = await job.execute("select current_setting('pgcron.run_id', true)")
    assert await cursor.fetchone() in [("",), (None,)]


@pytest.mark.parametrize(("given", "milliseconds"), [("90 s", 95_000), ("1 hour", 3_605_000)])
async def test_the_server_ends_a_statement_shortly_after_the_jobs_timeout(
    given: str, milliseconds: int, control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database, timeout=given)
    await open_run(job, task)
    cursor = await job.execute("select setting::bigint from pg_settings where name = 'statement_timeout'")
    assert await cursor.fetchone() == (milliseconds,)


async def test_a_job_may_have_the_longest_timeout_that_its_table_takes(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database, timeout="1 year")
    assert (await open_run(job, task)).locked


# ---------------------------------------------------------------------------------------------- the lock


async def test_a_second_transaction_of_the_job_is_kept_out(
    control: Connection, job: Connection, connect: Connect, database: Database
) -> None:
    task = await claimed(control, database)
    assert (await open_run(job, task)).locked
    second = await connect(Purpose.JOB)
    assert not (await open_run(second, replace(task, run_id=task.run_id + 1), OTHER_WORKER)).locked
    await second.execute("rollback")
    await job.execute("rollback")
    assert (await open_run(second, task)).locked


async def test_other_jobs_are_not_kept_out(
    control: Connection, job: Connection, connect: Connect, database: Database
) -> None:
    first, second = await claimed(control, database, "first"), await claimed(control, database, "second")
    assert (await open_run(job, first)).locked
    assert (await open_run(await connect(Purpose.JOB), second)).locked


async def test_where_overlap_is_allowed_transactions_run_side_by_side(
    control: Connection, job: Connection, connect: Connect, database: Database
) -> None:
    database.execute("create table public.work (who bigint)")
    job_id = add_job(database, overlap="allow")
    for ago in (2, 1):
        add_run(database, job_id, ago=minutes(ago))
    sessions = [job, await connect(Purpose.JOB)]
    opened = []
    tasks = (await claim(control)).tasks
    for session, task in zip(sessions, tasks, strict=True):
        opened.append(await open_run(session, task))
        await work(session, task)
    assert [one.locked for one in opened] == [True, True]
    for session, task, one in zip(sessions, tasks, opened, strict=True):
        assert await sql_runs.commit_sql_run(session, WORKER, task, _DONE, one.transaction_id)
    assert len(done_work(database)) == 2


@pytest.mark.parametrize("statement", ["select pg_advisory_unlock_all()", "discard temp", "reset all", "set role none"])
async def test_no_text_of_a_job_gives_the_transaction_lock_away(
    statement: LiteralString, control: Connection, job: Connection, connect: Connect, database: Database
) -> None:
    task = await claimed(control, database)
    await open_run(job, task)
    await job.execute(statement)
    assert not (await open_run(await connect(Purpose.JOB), task)).locked


@pytest.mark.parametrize(
    "statements",
    [
        ("commit and chain",),
        ("rollback and chain",),
        ("commit", "begin"),
        ("rollback", "begin"),
        ("savepoint s", "commit and chain"),
    ],
)
async def test_a_job_that_ended_its_own_transaction_is_not_recorded_as_done(
    statements: tuple[LiteralString, ...], control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    opened = await open_run(job, task)
    for statement in statements:
        await job.execute(statement)
    await work(job, task)
    assert not await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    await job.execute("rollback")
    assert (status(database, task.run_id), done_work(database)) == ("running", [])


async def test_savepoints_are_within_the_transaction(control: Connection, job: Connection, database: Database) -> None:
    task = await claimed(control, database)
    opened = await open_run(job, task)
    await job.execute("savepoint s")
    await work(job, task)
    assert await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    assert done_work(database) == [task.run_id]


# --------------------------------------------------------------------------------------------- the fence


async def test_a_run_that_was_taken_away_is_not_begun(control: Connection, job: Connection, database: Database) -> None:
    task = await claimed(control, database)
    await runs.finish_runs(control, WORKER, [ending(task.run_id, Status.LOST)], now=NOW)
    assert not (await open_run(job, task)).ours


async def test_another_workers_run_is_not_begun(control: Connection, job: Connection, database: Database) -> None:
    task = await claimed(control, database)
    assert not (await open_run(job, task, OTHER_WORKER)).ours


async def test_work_whose_run_was_taken_away_meanwhile_is_not_committed(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    opened = await open_run(job, task)
    await work(job, task)
    await runs.finish_runs(control, WORKER, [ending(task.run_id, Status.LOST, retry_in=0)], now=NOW)
    assert not await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    await job.execute("rollback")
    assert (done_work(database), statuses(database, task.job_id)) == ([], ["lost", "queued"])


async def test_work_that_cannot_be_committed_is_not_recorded(
    control: Connection, job: Connection, database: Database
) -> None:
    """A deferred constraint speaks only at COMMIT, after `succeeded` was written."""
    task = await claimed(control, database)
    database.execute("create table public.once (i int unique deferrable initially deferred)")
    opened = await open_run(job, task)
    await job.execute("insert into public.once values (1), (1)")
    with pytest.raises(DatabaseError, match="once_i_key"):
        await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    assert status(database, task.run_id) == "running"
    assert database.value("select count(*) from public.once") == 0


async def test_a_running_transaction_can_be_cancelled_and_reaped_without_waiting(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    await open_run(job, task)
    await work(job, task)
    cursor = await control.execute(query("cancel_run"), {"run_id": task.run_id, "reason": "by hand"})
    assert await cursor.fetchone() == ("running",)
    assert await runs.finish_runs(control, WORKER, [ending(task.run_id, Status.LOST)], now=NOW) == {task.run_id}


# ------------------------------------------------------------------------------- a commit without an answer


async def test_nothing_is_settled_while_the_old_transaction_lives(
    control: Connection, job: Connection, connect: Connect, database: Database
) -> None:
    task = await claimed(control, database)
    opened = await open_run(job, task)
    fresh = await connect(Purpose.JOB)
    assert (await sql_runs.settle_sql_run(fresh, task))[0] is False
    await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    assert await sql_runs.settle_sql_run(fresh, task) == (True, Status.SUCCEEDED)


async def test_a_transaction_that_died_leaves_its_run_running(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    await open_run(job, task)
    await job.close()
    fresh = control
    assert database.value("select pg_advisory_lock(0)") is not None
    # The server may need a moment to see the closed connection: until then it is not settled.
    over, found = await sql_runs.settle_sql_run(fresh, task)
    while not over:
        over, found = await sql_runs.settle_sql_run(fresh, task)
    assert found is Status.RUNNING


async def test_a_run_that_is_gone_has_no_state(control: Connection, database: Database) -> None:
    task = await claimed(control, database)
    database.execute("delete from pgcron.runs")
    assert await sql_runs.settle_sql_run(control, task) == (True, None)


# --------------------------------------------------------------- under the settings of the role or the text


async def test_a_jobs_own_search_path_cannot_change_what_our_statements_mean(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    database.execute(
        """create schema evil;
           create function evil.clock_timestamp() returns timestamptz
               language sql as $$ select '1999-01-01Z'::timestamptz $$;
           create function evil.liar(text, text) returns boolean language sql as $$ select true $$;
           create operator evil.= (leftarg = text, rightarg = text, function = evil.liar)"""
    )
    opened = await open_run(job, task)
    await job.execute("set search_path to evil, pg_catalog")
    assert await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    assert database.value("select finished_at > '2020-01-01Z' from pgcron.runs") is True


async def test_a_jobs_own_search_path_cannot_open_the_fence(
    control: Connection, job: Connection, database: Database
) -> None:
    task = await claimed(control, database)
    database.execute(
        """create schema evil;
           create function evil.liar(text, text) returns boolean language sql as $$ select true $$;
           create operator evil.= (leftarg = text, rightarg = text, function = evil.liar)"""
    )
    opened = await open_run(job, task)
    await work(job, task)
    await job.execute("set search_path to evil, pg_catalog")
    await runs.finish_runs(control, WORKER, [ending(task.run_id, Status.LOST)], now=NOW)
    assert not await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    await job.execute("rollback")
    assert status(database, task.run_id) == "lost"


async def test_a_job_may_take_on_another_role(control: Connection, job: Connection, database: Database) -> None:
    task = await claimed(control, database)
    database.execute("grant insert on public.work to worker")
    opened = await open_run(job, task)
    await job.execute("set role worker")
    await work(job, task)
    assert await sql_runs.commit_sql_run(job, WORKER, task, _DONE, opened.transaction_id)
    assert (done_work(database), status(database, task.run_id)) == ([task.run_id], "succeeded")


async def test_a_short_lock_timeout_of_the_role_is_not_the_jobs(
    control: Connection, job: Connection, database: Database
) -> None:
    await job.execute("set lock_timeout = '1ms'")
    await open_run(job, await claimed(control, database))
    cursor = await job.execute("show lock_timeout")
    assert await cursor.fetchone() == ("0",)


async def test_durations_are_read_whatever_the_interval_style(control: Connection, database: Database) -> None:
    task = await claimed(control, database, timeout="1 day 02:03:04.5")
    assert task.timeout == timedelta(days=1, hours=2, minutes=3, seconds=4.5)
