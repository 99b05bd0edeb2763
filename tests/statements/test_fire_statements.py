"""Fire: lock due jobs, write their runs, move them on; and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from pgcron_runner.database import Connection, Purpose
from pgcron_runner.decisions import Lane
from pgcron_runner.model import CatchUp, DstGap, DstRepeat, DueJob, Overlap, Status
from pgcron_runner.planning import Plan, PlannedRun
from pgcron_runner.statements import query
from pgcron_runner.store import jobs, runs
from tests.statements.builders import (
    NOW,
    WORKER,
    ZONE_DATA,
    add_final,
    add_job,
    add_planned_job,
    add_run,
    add_running,
    edit_job,
    ending,
    minutes,
    register,
    status,
    statuses,
)
from tests.statements.conftest import Connect
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually_async


async def lock_due(
    connection: Connection, *, zone_data: str = ZONE_DATA, limit: int = 10, now: datetime | None = NOW
) -> list[DueJob]:
    return [job for job, _ in await jobs.lock_due_jobs(connection, zone_data=zone_data, limit=limit, now=now)]


def plan(job_id: int, *planned: PlannedRun, next_run_at: datetime | None = None, problem: str | None = None) -> Plan:
    return Plan(job_id, planned, next_run_at, problem)


def queued(job_id: int, at: datetime = NOW) -> PlannedRun:
    return PlannedRun(job_id, at, at, Status.QUEUED)


# ----------------------------------------------------------------------------------------------- due jobs


async def test_due_jobs_come_oldest_first_up_to_the_limit(control: Connection, database: Database) -> None:
    for name, ago in [("b", 2), ("a", 3), ("c", 0), ("future", -0.01)]:
        add_planned_job(database, name, next_run_at=NOW - minutes(ago))
    assert [job.name for job in await lock_due(control)] == ["a", "b", "c"]
    assert [job.name for job in await lock_due(control, limit=2)] == ["a", "b"]


async def test_the_time_to_plan_by_is_the_one_that_was_asked_with(control: Connection, database: Database) -> None:
    add_planned_job(database)
    [(_, now)] = await jobs.lock_due_jobs(control, zone_data=ZONE_DATA, limit=1, now=NOW)
    assert now == NOW


async def test_disabled_jobs_and_a_paused_installation_are_not_due(control: Connection, database: Database) -> None:
    edit_job(database, add_planned_job(database, "off"), enabled=False)
    assert await lock_due(control) == []
    add_planned_job(database, "on")
    database.execute("update pgcron.settings set paused = true")
    assert await lock_due(control) == []


@pytest.mark.parametrize(
    ("other", "is_left"),
    [
        ({"zone_data": "2026b"}, True),
        ({"zone_data": "2026c"}, True),
        ({"zone_data": "2026a"}, False),
        ({"zone_data": "(unknown)"}, False),
        ({"zone_data": "2026b", "ended_at": NOW}, False),
        ({"zone_data": "2026b", "stopping": True}, False),
        (None, False),
    ],
)
async def test_what_newer_zone_data_has_planned_is_left_to_a_living_worker_that_has_it(
    other: dict[str, Any] | None, is_left: bool, control: Connection, database: Database
) -> None:
    register(database, WORKER, zone_data="2026a")
    if other is not None:
        register(database, **other)
    for name, zone_data in (("new", "2026b"), ("same", "2026a"), ("old", "2025c"), ("never", None)):
        job_id = add_planned_job(database, name)
        database.execute("update pgcron.jobs set zone_data = %s where id = %s", (zone_data, job_id))
    due = {job.name: job.other_zone_data for job in await lock_due(control, zone_data="2026a")}
    assert due == ({} if is_left else {"new": True}) | {"same": False, "old": True, "never": False}
    assert {"new"} <= {job.name for job in await lock_due(control, zone_data="2026b")}


async def test_a_due_job_carries_all_that_planning_needs(control: Connection, database: Database) -> None:
    job_id = add_planned_job(
        database,
        "full",
        schedule="0 3 * * *",
        timezone="Europe/Berlin",
        overlap="queue_one",
        catch_up="all",
        catch_up_window="2 hours",
        catch_up_limit=7,
        dst_gap="skip",
        dst_repeat="both",
        jitter="30 s",
        starts_at=NOW - minutes(9),
        ends_at=NOW + minutes(9),
        paused_until=NOW - minutes(5),
    )
    [job] = await lock_due(control)
    assert (job.id, job.name, job.schedule, job.timezone, job.planned) == (
        job_id,
        "full",
        "0 3 * * *",
        "Europe/Berlin",
        True,
    )
    assert (job.overlap, job.catch_up, job.dst_gap, job.dst_repeat) == (
        Overlap.QUEUE_ONE,
        CatchUp.ALL,
        DstGap.SKIP,
        DstRepeat.BOTH,
    )
    assert (job.catch_up_window, job.catch_up_limit, job.jitter) == (timedelta(hours=2), 7, timedelta(seconds=30))
    assert (job.starts_at, job.ends_at, job.paused_until) == (NOW - minutes(9), NOW + minutes(9), NOW - minutes(5))
    assert (job.next_run_at, job.max_running, job.running_run_ids, job.queued_run_id) == (NOW, None, (), None)


async def test_a_new_job_is_due_at_once_and_not_planned(control: Connection, database: Database) -> None:
    add_job(database)
    [job] = await lock_due(control, now=None)
    assert not job.planned
    assert job.next_run_at == job.anchored_at


async def test_a_due_job_knows_its_live_runs(control: Connection, database: Database) -> None:
    job_id = add_planned_job(database)
    add_final(database, job_id, ago=minutes(9))
    running = add_running(database, job_id, ago=minutes(8))
    oldest, _ = (add_run(database, job_id, ago=minutes(ago)) for ago in (7, 6))
    [job] = await lock_due(control)
    assert (job.running_run_ids, job.queued_run_id) == ((running,), oldest)


async def test_live_runs_are_not_looked_up_where_overlap_is_allowed(control: Connection, database: Database) -> None:
    job_id = add_planned_job(database, overlap="allow", max_running=2)
    add_running(database, job_id, ago=minutes(8))
    add_run(database, job_id, ago=minutes(7))
    [job] = await lock_due(control)
    assert (job.max_running, job.running_run_ids, job.queued_run_id) == (2, (), None)


async def test_jobs_that_another_worker_fires_are_skipped_without_waiting(
    control: Connection, other: Connection, database: Database
) -> None:
    for name, ago in [("a", 3), ("b", 2), ("c", 1)]:
        add_planned_job(database, name, next_run_at=NOW - minutes(ago))
    async with control.transaction():
        assert [job.name for job in await lock_due(control, limit=2)] == ["a", "b"]
        assert [job.name for job in await lock_due(other)] == ["c"]


async def test_a_job_that_was_moved_on_meanwhile_is_not_fired_again(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_planned_job(database)
    async with control.transaction():
        await lock_due(control)
        await jobs.move_jobs_on(control, [plan(job_id, next_run_at=NOW + minutes(1))])
    assert await lock_due(other) == []


# ------------------------------------------------------------------------------------------- planned runs


async def test_planned_runs_take_what_they_are_from_their_job(control: Connection, database: Database) -> None:
    job_id = add_job(database, "mailer", kind="http", queue="mail", priority=4)
    later = PlannedRun(job_id, NOW, NOW + minutes(1), Status.QUEUED)
    assert await jobs.insert_planned_runs(control, [plan(job_id, later)], now=NOW) == {Lane("mail", 4)}
    assert database.rows(
        """select job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, attempt, status, max_running,
                  finished_at, num_nonnulls(worker_id, started_at, lane, args, parent_run_id, missed_count)
             from pgcron.runs"""
    ) == [(job_id, "mailer", "http", "mail", 4, "schedule", NOW, NOW + minutes(1), 1, "queued", 1, None, 0)]


@pytest.mark.parametrize(
    ("columns", "max_running"),
    [
        ({}, 1),
        ({"overlap": "queue_all"}, 1),
        ({"overlap": "replace"}, 1),
        ({"overlap": "allow"}, None),
        ({"overlap": "allow", "max_running": 3}, 3),
    ],
)
async def test_how_many_may_run_is_written_with_the_run(
    columns: dict[str, Any], max_running: int | None, control: Connection, database: Database
) -> None:
    job_id = add_job(database, **columns)
    await jobs.insert_planned_runs(control, [plan(job_id, queued(job_id))], now=NOW)
    assert database.rows("select max_running from pgcron.runs") == [(max_running,)]


async def test_the_limit_of_the_queue_is_told_and_a_paused_queue_is_not(
    control: Connection, database: Database
) -> None:
    database.execute("insert into pgcron.queues values ('mail', 3, false), ('night', null, true)")
    plans = [
        plan(job_id, queued(job_id))
        for job_id in (add_job(database, queue, queue=queue) for queue in ("mail", "night"))
    ]
    assert await jobs.insert_planned_runs(control, plans, now=NOW) == {Lane("mail", 0, 3)}
    assert database.rows("select status from pgcron.runs") == [("queued",)] * 2


async def test_what_did_not_run_is_final_at_once_and_says_why(control: Connection, database: Database) -> None:
    job_id = add_job(database)
    skipped = PlannedRun(job_id, NOW, NOW, Status.SKIPPED, "overlap: run 7 is still running")
    since = NOW - minutes(9)
    missed = PlannedRun(job_id, since, since, Status.MISSED, "nobody was there", 8, NOW - minutes(2))
    assert await jobs.insert_planned_runs(control, [plan(job_id, missed, skipped)], now=NOW) == set()
    assert database.rows(
        """select status, reason, scheduled_for, missed_count, missed_until, finished_at
             from pgcron.runs order by scheduled_for"""
    ) == [
        ("missed", "nobody was there", since, 8, NOW - minutes(2), NOW),
        ("skipped", "overlap: run 7 is still running", NOW, None, None, NOW),
    ]


async def test_an_occurrence_is_written_once_whoever_plans_it_again(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database)
    assert await jobs.insert_planned_runs(control, [plan(job_id, queued(job_id))], now=NOW) == {Lane("default", 0)}
    again = [plan(job_id, queued(job_id), queued(job_id, NOW + minutes(1)))]
    assert await jobs.insert_planned_runs(other, again, now=NOW) == {Lane("default", 0)}
    assert await jobs.insert_planned_runs(other, again, now=NOW) == set()
    assert statuses(database, job_id) == ["queued", "queued"]


async def test_an_occurrence_that_is_over_is_not_queued_again(control: Connection, database: Database) -> None:
    job_id = add_job(database)
    done = add_final(database, job_id, ago=minutes(0))
    assert await jobs.insert_planned_runs(control, [plan(job_id, queued(job_id))], now=NOW) == set()
    assert statuses(database, job_id) == ["succeeded"]
    assert status(database, done) == "succeeded"


async def test_two_that_plan_one_occurrence_at_once_write_it_once(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database)
    async with control.transaction():
        await jobs.insert_planned_runs(control, [plan(job_id, queued(job_id))], now=NOW)
        second = asyncio.create_task(jobs.insert_planned_runs(other, [plan(job_id, queued(job_id))], now=NOW))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, other.info.backend_pid))
    assert await second == set()
    assert statuses(database, job_id) == ["queued"]


async def test_the_runs_of_many_jobs_are_written_in_one_statement(control: Connection, database: Database) -> None:
    ids = [add_job(database, f"job-{i}", queue="odd" if i % 2 else "even") for i in range(10)]
    plans = [plan(job_id, *(queued(job_id, NOW + minutes(i)) for i in range(50))) for job_id in ids]
    assert await jobs.insert_planned_runs(control, plans, now=NOW) == {Lane("odd", 0), Lane("even", 0)}
    assert database.value("select count(*) from pgcron.runs") == 500


async def test_a_plan_without_runs_writes_none(control: Connection, database: Database) -> None:
    assert await jobs.insert_planned_runs(control, [plan(add_job(database))], now=NOW) == set()


# ------------------------------------------------------------------------------------------------ moving on


async def test_jobs_are_moved_on_ended_or_marked(control: Connection, database: Database) -> None:
    on, ended, marked, other_job = (add_job(database, name) for name in ("on", "ended", "marked", "other"))
    await jobs.move_jobs_on(
        control,
        [plan(on, next_run_at=NOW), plan(ended), plan(marked, problem="timezone: 'X' is not a known time zone.")],
    )
    assert database.rows("select id, planned, next_run_at, problem from pgcron.jobs where planned order by id") == [
        (on, True, NOW, None),
        (ended, True, None, None),
        (marked, True, None, "timezone: 'X' is not a known time zone."),
    ]
    assert database.value("select planned from pgcron.jobs where id = %s", (other_job,)) is False


async def test_moving_on_is_no_edit(control: Connection, database: Database) -> None:
    job_id = add_job(database)
    before = database.rows("select anchored_at, updated_at from pgcron.jobs")
    await jobs.move_jobs_on(control, [plan(job_id, next_run_at=NOW)])
    assert database.rows("select anchored_at, updated_at from pgcron.jobs") == before


async def test_replacement_is_asked_of_running_runs_once(control: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow")
    running, asked = (add_running(database, job_id, ago=minutes(ago)) for ago in (9, 8))
    waiting, over = add_run(database, job_id, ago=minutes(7)), add_final(database, job_id, ago=minutes(6))
    database.execute("update pgcron.runs set cancel_requested_at = %s where id = %s", (NOW, asked))
    await jobs.request_replacement(control, [running, asked, waiting, over])
    wanted = "select cancel_requested_at from pgcron.runs where id = %s"
    assert database.value(wanted, (running,)) is not None
    assert database.value(wanted, (asked,)) == NOW
    assert (database.value(wanted, (waiting,)), database.value(wanted, (over,))) == (None, None)


# ---------------------------------------------------------------------------------------------- who is told


@pytest.fixture
async def listener(connect: Connect) -> Connection:
    connection = await connect(Purpose.LISTEN)
    await connection.execute("listen pgcron")
    return connection


async def heard(listener: Connection, database: Database) -> set[str]:
    """All that was said on the channel until now: what comes before a mark of our own."""
    database.execute("notify pgcron, 'mark'")
    said: set[str] = set()
    async for notification in listener.notifies(timeout=10):
        if notification.payload == "mark":
            return said
        said.add(notification.payload)
    raise AssertionError("the mark did not arrive")


async def test_a_new_job_wakes_the_workers(listener: Connection, database: Database) -> None:
    job_id = add_job(database)
    assert await heard(listener, database) == {"jobs"}
    database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    assert await heard(listener, database) == {"jobs"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("schedule", "@hourly"),
        ("timezone", "Europe/Berlin"),
        ("enabled", False),
        ("paused_until", NOW),
        ("starts_at", NOW),
        ("ends_at", NOW),
        ("dst_gap", "skip"),
        ("dst_repeat", "both"),
        ("name", "renamed"),
    ],
)
async def test_an_edit_that_plans_the_job_anew_wakes_the_workers(
    column: str, value: Any, listener: Connection, database: Database
) -> None:
    job_id = add_planned_job(database)
    await heard(listener, database)
    edit_job(database, job_id, **{column: value})
    assert database.value("select planned from pgcron.jobs") is False
    assert "jobs" in await heard(listener, database)


async def test_moving_jobs_on_wakes_nobody(control: Connection, listener: Connection, database: Database) -> None:
    job_id = add_job(database)
    await heard(listener, database)
    await jobs.move_jobs_on(control, [plan(job_id, next_run_at=NOW)])
    assert await heard(listener, database) == set()


async def test_queued_runs_wake_the_workers_and_skipped_ones_do_not(
    control: Connection, listener: Connection, database: Database
) -> None:
    job_id = add_job(database)
    await heard(listener, database)
    await jobs.insert_planned_runs(
        control, [plan(job_id, PlannedRun(job_id, NOW, NOW, Status.SKIPPED, "overlap"))], now=NOW
    )
    assert await heard(listener, database) == set()
    await jobs.insert_planned_runs(control, [plan(job_id, queued(job_id, NOW + minutes(1)))], now=NOW)
    assert await heard(listener, database) == {"runs"}


async def test_run_now_and_retries_wake_the_workers(
    record: Connection, listener: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    await heard(listener, database)
    await runs.finish_runs(record, WORKER, [ending(run_id, Status.FAILED, retry_in=1)], now=NOW)
    assert await heard(listener, database) == {"runs"}
    await record.execute(query("enqueue_run"), {"name": "job", "args": Jsonb({}), "overlap": "queue_all", "now": NOW})
    assert await heard(listener, database) == {"runs"}


async def test_the_end_of_a_run_wakes_nobody(record: Connection, listener: Connection, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    await heard(listener, database)
    await runs.finish_runs(record, WORKER, [ending(run_id)], now=NOW)
    assert await heard(listener, database) == set()


async def test_a_wish_to_stop_a_run_wakes_the_workers(
    control: Connection, listener: Connection, database: Database
) -> None:
    run_id = add_running(database, add_job(database))
    await heard(listener, database)
    await control.execute(query("cancel_run"), {"run_id": run_id, "reason": "by hand"})
    assert await heard(listener, database) == {"cancel"}
    database.execute("update pgcron.runs set cancel_requested_at = null")
    await heard(listener, database)
    await jobs.request_replacement(control, [run_id])
    assert await heard(listener, database) == {"cancel"}


@pytest.mark.parametrize(
    "change",
    [
        lambda database: database.execute("update pgcron.settings set paused = false"),
        lambda database: database.execute("update pgcron.queues set paused = false"),
    ],
)
async def test_a_pause_that_ends_wakes_the_workers(
    change: Callable[[Database], int], listener: Connection, database: Database
) -> None:
    change(database)
    assert await heard(listener, database) <= {"jobs", "runs"}
    change(database)
    assert await heard(listener, database)
