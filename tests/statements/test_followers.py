"""What follows a run that has ended: chained jobs, and the runs that it asked for itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgcron_runner.database import Connection
from pgcron_runner.model import NextRun, Status
from pgcron_runner.store import runs
from tests.statements.builders import (
    NOW,
    OTHER_WORKER,
    WORKER,
    add_job,
    add_run,
    add_running,
    ending,
    statuses,
)
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually_async

MINUTE = timedelta(minutes=1)


def chain(database: Database, upstream: int, downstream: int, on: str = "succeeded", delay: str = "0") -> None:
    database.execute("insert into pgcron.chains values (%s, %s, %s, %s)", (upstream, downstream, on, delay))


def made_runs(database: Database, job_id: int, columns: str = "trigger, status, reason") -> list[tuple[Any, ...]]:
    """Of a job's runs, the oldest first."""
    rows = database.rows("select row_to_json(r) from pgcron.runs r where job_id = %s order by id", (job_id,))
    return [tuple(row[0][name.strip()] for name in columns.split(",")) for row in rows]


# ----------------------------------------------------------------------------------------------------- chains


@pytest.mark.parametrize(
    ("on", "starters"),
    [
        ("succeeded", {Status.SUCCEEDED}),
        ("failed", {Status.FAILED, Status.TIMED_OUT, Status.LOST, Status.INTERRUPTED}),
        ("finished", {Status.SUCCEEDED, Status.FAILED, Status.TIMED_OUT, Status.LOST, Status.INTERRUPTED}),
    ],
)
async def test_a_chain_starts_after_the_ends_that_it_names(
    on: str, starters: set[Status], record: Connection, database: Database
) -> None:
    for final in [one for one in Status if one.is_final and one not in (Status.MISSED, Status.SKIPPED)]:
        upstream, downstream = add_job(database, f"up {final}"), add_job(database, f"down {final}")
        chain(database, upstream, downstream, on)
        run_id = add_running(database, upstream)
        await runs.finish_runs(record, WORKER, [ending(run_id, final)], now=NOW)
        expected = [("chain", "queued", run_id)] if final in starters else []
        assert made_runs(database, downstream, "trigger, status, parent_run_id") == expected, final


async def test_a_chain_waits_for_the_last_attempt(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down")
    chain(database, upstream, downstream, "failed")
    run_id = add_running(database, upstream)
    await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=5)], now=NOW)
    assert made_runs(database, downstream) == []


async def test_the_pause_of_a_chain_is_kept(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down")
    chain(database, upstream, downstream, delay="5 minutes")
    await runs.finish_runs(record, WORKER, [ending(add_running(database, upstream))], now=NOW)
    assert database.rows("select run_at, scheduled_for from pgcron.runs where job_id = %s", (downstream,)) == [
        (NOW + 5 * MINUTE, NOW + 5 * MINUTE)
    ]


async def test_a_backfill_starts_no_other_job(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down")
    chain(database, upstream, downstream, "finished")
    run_id = add_running(database, upstream, backfill=True, trigger="backfill")
    await runs.finish_runs(record, WORKER, [ending(run_id)], now=NOW)
    assert made_runs(database, downstream) == []


async def test_who_no_longer_holds_the_run_starts_nothing(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down")
    chain(database, upstream, downstream)
    run_id = add_running(database, upstream)
    end = ending(run_id, next_runs=(NextRun("down"),))
    assert await runs.finish_runs(record, OTHER_WORKER, [end], now=NOW) == set()
    assert made_runs(database, downstream) == []


async def test_two_that_end_in_one_batch_start_a_job_once_by_its_overlap_rule(
    record: Connection, database: Database
) -> None:
    first, second, downstream = (add_job(database, name) for name in ("a", "b", "down"))
    chain(database, first, downstream)
    chain(database, second, downstream)
    ends = [ending(add_running(database, job_id)) for job_id in (first, second)]
    await runs.finish_runs(record, WORKER, ends, now=NOW)
    [one, other] = made_runs(database, downstream, "id, status, reason")
    assert one[1:] == ("queued", None)
    assert other[1:] == ("skipped", f"overlap: run {one[0]} is still queued")


async def test_two_that_end_on_two_workers_start_it_once_too(
    record: Connection, control: Connection, database: Database
) -> None:
    first, second, downstream = (add_job(database, name) for name in ("a", "b", "down"))
    chain(database, first, downstream)
    chain(database, second, downstream)
    ends = [ending(add_running(database, first)), ending(add_running(database, second, worker_id=OTHER_WORKER))]
    async with record.transaction():
        await runs.finish_runs(record, WORKER, ends[:1], now=NOW)
        other = asyncio.create_task(runs.finish_runs(control, OTHER_WORKER, ends[1:], now=NOW))

        async def is_waiting() -> bool:
            return blocked_on_lock(database.dsn, control.info.backend_pid)

        await eventually_async(is_waiting)
    await other
    assert sorted(run[1] for run in made_runs(database, downstream)) == ["queued", "skipped"]


@pytest.mark.parametrize(
    ("overlap", "live", "status", "reason"),
    [
        ("skip", "running", "skipped", "overlap: run {} is still running"),
        ("skip", "queued", "skipped", "overlap: run {} is still queued"),
        ("queue_one", "running", "queued", None),
        ("queue_one", "queued", "skipped", "overlap: run {} is still queued"),
        ("queue_all", "queued", "queued", None),
        ("allow", "running", "queued", None),
        ("replace", "running", "queued", None),
    ],
)
async def test_the_overlap_rule_of_the_started_job_decides(
    overlap: str, live: str, status: str, reason: str | None, record: Connection, database: Database
) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down", overlap=overlap)
    chain(database, upstream, downstream)
    add = add_running if live == "running" else add_run
    in_the_way = add(database, downstream, max_running=None if overlap == "allow" else 1)
    await runs.finish_runs(record, WORKER, [ending(add_running(database, upstream))], now=NOW)
    expected = ("chain", status, reason.format(in_the_way) if reason else None)
    assert made_runs(database, downstream)[-1] == expected
    asked = database.value("select cancel_requested_at is not null from pgcron.runs where id = %s", (in_the_way,))
    assert asked == (overlap == "replace")


async def test_queue_all_has_its_bound(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down", overlap="queue_all", catch_up_limit=2)
    chain(database, upstream, downstream)
    for minute in range(2):
        add_run(database, downstream, ago=minute * MINUTE)
    await runs.finish_runs(record, WORKER, [ending(add_running(database, upstream))], now=NOW)
    assert made_runs(database, downstream)[-1] == ("chain", "skipped", "overlap: 2 runs are queued already")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [({"enabled": False}, "the job is disabled"), ({"paused_until": NOW + MINUTE}, "the job is paused")],
)
async def test_a_job_that_is_stopped_is_not_started_and_the_row_says_why(
    columns: dict[str, Any], reason: str, record: Connection, database: Database
) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down", **columns)
    chain(database, upstream, downstream)
    await runs.finish_runs(record, WORKER, [ending(add_running(database, upstream))], now=NOW)
    assert made_runs(database, downstream) == [("chain", "skipped", reason)]


async def test_runs_with_the_same_nominal_time_are_told_apart(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down", overlap="allow")
    chain(database, upstream, downstream)
    add_run(database, downstream, ago=timedelta(0), max_running=None)
    await runs.finish_runs(record, WORKER, [ending(add_running(database, upstream))], now=NOW)
    times = database.rows("select scheduled_for from pgcron.runs where job_id = %s order by id", (downstream,))
    assert times == [(NOW,), (NOW + timedelta(microseconds=1),)]


def test_a_circle_of_chains_is_refused(database: Database) -> None:
    a, b, c = (add_job(database, name) for name in "abc")
    chain(database, a, b)
    chain(database, b, c)
    with pytest.raises(psycopg.errors.CheckViolation, match="'c' would come after itself") as refused:
        chain(database, c, a)
    assert refused.value.diag.message_hint is not None
    assert "@every 10m after finish" in refused.value.diag.message_hint
    with pytest.raises(psycopg.errors.CheckViolation):
        chain(database, a, a)


# ---------------------------------------------------------------------------------------- what a run asks for


async def test_the_next_slice_finds_what_this_one_has_saved(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id, args={"table": "users"})
    end = ending(run_id, state={"cursor": 40}, next_runs=(NextRun(after=timedelta(seconds=10)),))
    await runs.finish_runs(record, WORKER, [end], now=NOW)
    assert statuses(database, job_id) == ["succeeded", "queued"]
    columns = "state, parent_run_id, trigger, attempt"
    assert made_runs(database, job_id, columns)[1] == ({"cursor": 40}, run_id, "chain", 1)
    assert database.value("select run_at from pgcron.runs order by id desc limit 1") == NOW + timedelta(seconds=10)


async def test_state_that_was_stored_while_it_ran_goes_to_the_next_slice_and_attempt(
    record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    for end in ({"next_runs": (NextRun(),)}, {"ended_as": Status.LOST, "retry_in": 0.0}):
        run_id = add_running(database, job_id, state={"cursor": 7})
        await runs.finish_runs(record, WORKER, [ending(run_id, **end)], now=NOW + MINUTE)
        assert made_runs(database, job_id, "status, state")[-1] == ("queued", {"cursor": 7})
        database.execute("delete from pgcron.runs")


async def test_another_job_gets_the_arguments_and_no_state(record: Connection, database: Database) -> None:
    job_id, other = add_job(database, "up"), add_job(database, "down", args={"day": "today"})
    asked = (NextRun("down", args={"day": "yesterday"}), NextRun("down"))
    database.execute("update pgcron.jobs set overlap = 'allow' where id = %s", (other,))
    end = ending(add_running(database, job_id), state={"cursor": 1}, next_runs=asked)
    await runs.finish_runs(record, WORKER, [end], now=NOW)
    assert made_runs(database, other, "args, state") == [({"day": "yesterday"}, None), (None, None)]


async def test_slices_start_the_chain_after_the_last_of_them(record: Connection, database: Database) -> None:
    upstream, downstream = add_job(database, "up"), add_job(database, "down")
    chain(database, upstream, downstream)
    first = ending(add_running(database, upstream), next_runs=(NextRun("up"),))
    await runs.finish_runs(record, WORKER, [first], now=NOW)
    assert made_runs(database, downstream) == []
    [slice_id] = database.rows("select id from pgcron.runs where status = 'queued'")[0]
    database.execute(
        "update pgcron.runs set status = 'running', lane = 1, worker_id = %s, started_at = now() where id = %s",
        (WORKER, slice_id),
    )
    await runs.finish_runs(record, WORKER, [ending(slice_id)], now=NOW)
    assert made_runs(database, downstream) == [("chain", "queued", None)]


async def test_what_has_failed_goes_on_with_nothing(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    end = ending(add_running(database, job_id), Status.FAILED, next_runs=(NextRun(),))
    await runs.finish_runs(record, WORKER, [end], now=NOW)
    assert statuses(database, job_id) == ["failed"]


async def test_a_job_that_does_not_exist_is_named_in_the_reason(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    asked = (NextRun("gone"), NextRun("lost"), NextRun("gone"))
    await runs.finish_runs(record, WORKER, [ending(add_running(database, job_id), next_runs=asked)], now=NOW)
    assert made_runs(database, job_id) == [
        ("schedule", "succeeded", "there is no job 'gone', 'lost' to run next"),
    ]


async def test_progress_and_state_are_kept_where_the_end_says_nothing_of_them(
    record: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id, progress={"percent": 40}, state={"a": 1})
    await runs.finish_runs(record, WORKER, [ending(run_id)], now=NOW)
    assert made_runs(database, job_id, "progress, state") == [({"percent": 40}, {"a": 1})]
