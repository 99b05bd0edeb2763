"""Finish: running -> a final state behind the fence, with the next attempt; and the output beside it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from pgcron_runner.database import Connection
from pgcron_runner.model import Output, Status
from pgcron_runner.store import runs
from tests.statements.builders import (
    NOW,
    OTHER_WORKER,
    WORKER,
    add_final,
    add_job,
    add_run,
    add_running,
    claim,
    edit_job,
    ending,
    minutes,
    status,
    statuses,
)
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually_async

_FINAL = [one for one in Status if one.is_final and one is not Status.MISSED]


@pytest.mark.parametrize("final", _FINAL)
async def test_a_run_is_closed_with_all_that_is_known(final: Status, record: Connection, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    end = ending(run_id, final, exit_code=3, error="boom", reason="why", result={"a": [1, None, "ß"]})
    assert await runs.finish_runs(record, WORKER, [end], now=NOW) == {run_id}
    assert database.rows(
        "select status, finished_at, exit_code, error, reason, result, worker_id from pgcron.runs"
    ) == [(final.value, NOW, 3, "boom", "why", {"a": [1, None, "ß"]}, WORKER)]


async def test_without_a_set_clock_a_run_ends_by_the_databases(record: Connection, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    await runs.finish_runs(record, WORKER, [ending(run_id)])
    assert database.value("select abs(extract(epoch from clock_timestamp() - finished_at)) < 60 from pgcron.runs")


# ----------------------------------------------------------------------------------------------- the fence


async def test_another_worker_cannot_finish_a_run(record: Connection, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    assert await runs.finish_runs(record, OTHER_WORKER, [ending(run_id, Status.FAILED, retry_in=0)], now=NOW) == set()
    assert database.rows("select status, finished_at from pgcron.runs") == [("running", None)]


async def test_a_stale_worker_cannot_finish_a_reaped_run(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    await runs.finish_runs(record, WORKER, [ending(run_id, Status.LOST, retry_in=0, reason="reaped")], now=NOW)
    before = database.rows("select * from pgcron.runs order by id")
    late = ending(run_id, Status.FAILED, retry_in=5, error="late", result=1)
    assert await runs.finish_runs(record, WORKER, [late], now=NOW + minutes(1)) == set()
    assert database.rows("select * from pgcron.runs order by id") == before


@pytest.mark.parametrize("state", ["queued", "succeeded", "cancelled", "skipped"])
async def test_only_a_running_run_can_be_finished(state: str, record: Connection, database: Database) -> None:
    job_id = add_job(database)
    run_id = add_run(database, job_id) if state == "queued" else add_final(database, job_id, state)
    assert await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=0)], now=NOW) == set()
    assert statuses(database, job_id) == [state]


async def test_finishing_twice_changes_once(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    end = ending(add_running(database, job_id), Status.FAILED, retry_in=1)
    assert len(await runs.finish_runs(record, WORKER, [end], now=NOW)) == 1
    assert len(await runs.finish_runs(record, WORKER, [end], now=NOW)) == 0
    assert statuses(database, job_id) == ["failed", "queued"]


async def test_a_run_that_is_being_reaped_is_waited_for_and_then_left(
    control: Connection, record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    async with control.transaction():
        await runs.finish_runs(control, WORKER, [ending(run_id, Status.LOST, retry_in=0)], now=NOW)
        late = asyncio.create_task(runs.finish_runs(record, WORKER, [ending(run_id)], now=NOW))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, record.info.backend_pid))
    assert await late == set()
    assert statuses(database, job_id) == ["lost", "queued"]


async def test_in_a_batch_each_run_is_fenced_for_itself(record: Connection, database: Database) -> None:
    mine, theirs, over = (add_job(database, name) for name in ("mine", "theirs", "over"))
    ids = [add_running(database, mine), add_running(database, theirs, OTHER_WORKER), add_final(database, over)]
    ends = [ending(run_id, Status.FAILED, retry_in=1) for run_id in [*ids, 999_999]]
    assert await runs.finish_runs(record, WORKER, ends, now=NOW) == {ids[0]}
    assert [statuses(database, job_id) for job_id in (mine, theirs, over)] == [
        ["failed", "queued"],
        ["running"],
        ["succeeded"],
    ]


# ---------------------------------------------------------------------------------------- the next attempt


async def test_the_next_attempt_is_a_row_of_its_own(record: Connection, database: Database) -> None:
    job_id = add_job(database, "job", kind="http", queue="mail", priority=3)
    run_id = add_running(database, job_id, attempt=2, args={"a": 1}, state={"row": 70}, progress=Jsonb(40))
    end = ending(run_id, Status.TIMED_OUT, retry_in=90.5, error="slow")
    await runs.finish_runs(record, WORKER, [end], now=NOW)
    assert database.rows(
        """select job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, attempt, status,
                  parent_run_id, args, state, max_running,
                  num_nonnulls(worker_id, started_at, finished_at, error, result, progress, lane)
             from pgcron.runs where id <> %s""",
        (run_id,),
    ) == [
        (job_id, "job", "http", "mail", 3, "retry", NOW - minutes(1), NOW + timedelta(seconds=90.5), 3, "queued",
         run_id, {"a": 1}, {"row": 70}, 1, 0)
    ]  # fmt: skip


async def test_a_retry_can_be_claimed_when_its_pause_is_over(control: Connection, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    await runs.finish_runs(control, WORKER, [ending(run_id, Status.FAILED, retry_in=60)], now=NOW)
    assert (await claim(control, now=NOW + timedelta(seconds=59.999))).tasks == []
    [task] = (await claim(control, now=NOW + timedelta(seconds=60))).tasks
    assert (task.attempt, task.scheduled_for) == (2, NOW - minutes(1))


async def test_without_a_pause_there_is_no_further_attempt(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    await runs.finish_runs(record, WORKER, [ending(add_running(database, job_id), Status.FAILED)], now=NOW)
    assert statuses(database, job_id) == ["failed"]


async def test_the_run_of_a_deleted_job_ends_without_a_next_attempt(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    assert await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW) == {run_id}
    assert database.rows("select job_id, job_name, status from pgcron.runs") == [(None, "job", "failed")]


async def test_a_job_that_is_deleted_at_this_moment_gets_no_next_attempt(
    control: Connection, record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    async with control.transaction():
        await control.execute("delete from pgcron.jobs where id = %s", (job_id,))
        finishing = asyncio.create_task(
            runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW)
        )
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, record.info.backend_pid))
    assert await finishing == {run_id}
    assert database.rows("select job_id, status from pgcron.runs") == [(None, "failed")]


@pytest.mark.parametrize("stopped", [{"enabled": False}, {"paused_until": NOW + minutes(60)}])
async def test_a_job_that_was_disabled_or_paused_while_it_ran_starts_no_next_attempt(
    stopped: dict[str, Any], record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    edit_job(database, job_id, **stopped)
    await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW)
    assert status(database, run_id) == "failed"
    assert "queued" not in statuses(database, job_id)


async def test_a_retry_follows_what_the_job_says_of_overlap_by_now(record: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow")
    run_id = add_running(database, job_id)
    edit_job(database, job_id, overlap="skip")
    await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW)
    assert database.value("select max_running from pgcron.runs where attempt = 2") == 1


async def test_an_attempt_that_exists_already_is_not_made_again(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    add_final(database, job_id, "cancelled", attempt=2)
    run_id = add_running(database, job_id)
    assert await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW) == {run_id}
    assert statuses(database, job_id) == ["failed", "cancelled"]


async def test_the_place_of_a_finished_run_is_free_in_the_same_moment(control: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="queue_all")
    run_id, following = add_running(database, job_id, ago=minutes(2)), add_run(database, job_id)
    await runs.finish_runs(control, WORKER, [ending(run_id)], now=NOW)
    assert [task.run_id for task in (await claim(control)).tasks] == [following]


async def test_five_hundred_runs_end_in_one_statement(record: Connection, database: Database) -> None:
    database.execute(
        """with made as (insert into pgcron.jobs (name, kind, command, schedule, timezone)
             select 'job-' || i, 'sql', 'select 1', '@manual', 'UTC' from generate_series(1, 500) i returning id, name)
           insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running, lane, status,
                                    worker_id, started_at)
             select id, name, 'sql', 'manual', %s, %s, 1, 1, 'running', %s, %s from made""",
        (NOW, NOW, WORKER, NOW),
    )
    ids = [row[0] for row in database.rows("select id from pgcron.runs order by id")]
    ends = [
        ending(run_id, Status.FAILED, retry_in=float(i), exit_code=i % 256) if i % 2 else ending(run_id, result=i)
        for i, run_id in enumerate(ids)
    ]
    assert await runs.finish_runs(record, WORKER, ends, now=NOW) == set(ids)
    assert database.rows("select status, count(*) from pgcron.runs group by 1 order by 1") == [
        ("failed", 250),
        ("queued", 250),
        ("succeeded", 250),
    ]
    assert database.rows("select exit_code from pgcron.runs where id = %s", (ids[77],)) == [(77,)]
    assert database.rows("select run_at - %s from pgcron.runs where parent_run_id = %s", (NOW, ids[77])) == [
        (timedelta(seconds=77),)
    ]


# ------------------------------------------------------------------------------------------------- output


async def test_output_is_stored_while_the_run_is_ones_own(record: Connection, database: Database) -> None:
    mine, theirs = (add_job(database, name) for name in ("mine", "theirs"))
    ids = [add_running(database, mine), add_running(database, theirs, OTHER_WORKER)]
    await runs.store_output(record, WORKER, [(run_id, Output("text", 4000, truncated=True)) for run_id in ids])
    assert database.rows("select output, output_bytes, output_truncated from pgcron.runs order by id") == [
        ("text", 4000, True),
        (None, None, None),
    ]


async def test_late_output_changes_nothing(record: Connection, database: Database) -> None:
    run_id = add_final(database, add_job(database), "lost")
    await runs.store_output(record, WORKER, [(run_id, Output("late", 4, truncated=False))])
    assert database.value("select output from pgcron.runs") is None
