"""Workers: registered, beating, silent, reaped; and what happens to their sessions and runs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from pgcron_runner.database import Connection, Purpose
from pgcron_runner.leases import Beat
from pgcron_runner.model import Kind, RetryPolicy, Status
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.store import retention, runs, workers
from pgcron_runner.store.runs import LostRun
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
    register,
    status,
    statuses,
)
from tests.statements.conftest import Connect
from tests.support.databases import Database
from tests.support.waiting import eventually

# -------------------------------------------------------------------------------------- register and beat


async def test_a_worker_enters_what_it_is(control: Connection, database: Database) -> None:
    settings = WorkerSettings("web-1", ("a", "b"), (Kind.SQL, Kind.HTTP), 7, timedelta(seconds=20))
    facts = {"host": "h", "pid": 42, "version": "1.2", "zone_data": "2026a"}
    await workers.register_worker(control, WORKER, settings, facts)
    assert database.rows(
        """select id, name, host, pid, version, zone_data, queues, kinds, slots, lease, beat, stopping, ended_at
             from pgcron.workers"""
    ) == [
        (
            WORKER,
            "web-1",
            "h",
            42,
            "1.2",
            "2026a",
            ["a", "b"],
            ["sql", "http"],
            7,
            timedelta(seconds=20),
            0,
            False,
            None,
        )
    ]


async def test_a_worker_of_all_queues_names_none(control: Connection, database: Database) -> None:
    facts = {"host": "h", "pid": 42, "version": "1.2", "zone_data": "2026a"}
    await workers.register_worker(control, WORKER, WorkerSettings(), facts)
    assert database.rows("select queues, kinds from pgcron.workers") == [(None, ["shell", "sql", "http", "python"])]


async def test_entering_once_more_is_a_heartbeat(control: Connection, database: Database) -> None:
    """The first COMMIT got no answer, and others may be counting the lease from then on."""
    facts = {"host": "h", "pid": 42, "version": "1.2", "zone_data": "2026a"}
    for beat in (0, 1, 2):
        await workers.register_worker(control, WORKER, WorkerSettings(), facts)
        assert [known.beat for known in await workers.list_beats(control)] == [beat]


LEASE = timedelta(seconds=30)


async def test_the_server_that_was_there_from_the_start_holds_up_nothing(control: Connection) -> None:
    here, held_for = await workers.note_timeline(control, LEASE)
    assert held_for == 0
    assert re.fullmatch(r"\d+/[0-9A-F]{8}", here)
    assert await workers.note_timeline(control, LEASE) == (here, 0)


async def test_who_finds_another_server_begins_nothing_for_the_longest_lease(
    control: Connection, database: Database
) -> None:
    here, _ = await workers.note_timeline(control, LEASE)
    database.execute("update pgcron.timeline set server = 'the old one'")
    assert await workers.note_timeline(control, LEASE) == (here, 30)
    # Those who come later wait for the rest of it; their own lease may be longer.
    for lease, least, most in ((LEASE, 1, 30), (timedelta(hours=1), 3000, 3600)):
        _, held_for = await workers.note_timeline(control, lease)
        assert least < held_for < most
    register(database, WORKER, lease=timedelta(hours=2))
    register(database, OTHER_WORKER, lease=timedelta(hours=9), ended_at=NOW, end_reason="stopped")
    _, held_for = await workers.note_timeline(control, LEASE)
    assert 7000 < held_for < 7200
    database.execute("update pgcron.timeline set noticed_at = clock_timestamp() - interval '2 hours'")
    assert await workers.note_timeline(control, LEASE) == (here, 0)


async def test_a_server_that_was_seen_in_the_future_is_not_believed(control: Connection, database: Database) -> None:
    await workers.note_timeline(control, LEASE)
    database.execute("update pgcron.timeline set noticed_at = clock_timestamp() + interval '1 minute'")
    _, held_for = await workers.note_timeline(control, LEASE)
    assert held_for == 30


async def test_a_heartbeat_is_a_new_beat_and_brings_the_databases_clock(
    control: Connection, database: Database
) -> None:
    register(database, WORKER)
    register(database, OTHER_WORKER)
    beats = [0]
    for _ in range(3):
        now = await workers.beat_worker(control, WORKER, stopping=False)
        assert now is not None
        assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
        beats.append(database.value("select beat from pgcron.workers where id = %s", (WORKER,)))
    assert beats == sorted(set(beats))
    assert database.value("select beat from pgcron.workers where id = %s", (OTHER_WORKER,)) == 0
    assert await workers.beat_worker(control, WORKER, stopping=True)
    assert database.rows("select stopping from pgcron.workers order by id") == [(True,), (False,)]


async def test_a_heartbeat_after_a_failover_that_forgot_some_is_not_taken_for_one_of_them(
    control: Connection, database: Database
) -> None:
    register(database, WORKER)
    seen = set()
    for _ in range(5):
        await workers.beat_worker(control, WORKER, stopping=False)
        seen |= {beat.beat for beat in await workers.list_beats(control)}
    database.execute("update pgcron.workers set beat = 1")
    await workers.beat_worker(control, WORKER, stopping=False)
    (after,) = await workers.list_beats(control)
    assert len(seen) == 5
    assert after.beat not in seen


async def test_a_heartbeat_is_a_new_beat_although_the_databases_clock_was_set_back(
    control: Connection, database: Database
) -> None:
    register(database, WORKER, beat=10**17)
    await workers.beat_worker(control, WORKER, stopping=False)
    assert database.value("select beat from pgcron.workers") == 10**17 + 1


async def test_a_worker_that_was_ended_or_is_unknown_beats_no_more(control: Connection, database: Database) -> None:
    register(database, WORKER)
    assert await workers.end_worker(control, WORKER, "lost")
    assert await workers.beat_worker(control, WORKER, stopping=False) is None
    assert await workers.beat_worker(control, OTHER_WORKER, stopping=False) is None
    assert database.value("select beat from pgcron.workers") == 0


async def test_a_worker_ends_once(control: Connection, database: Database) -> None:
    register(database, WORKER)
    assert await workers.end_worker(control, WORKER, "stopped")
    ended = database.rows("select ended_at, end_reason, stopping from pgcron.workers")
    assert ended[0][1:] == ("stopped", True)
    assert not await workers.end_worker(control, WORKER, "lost")
    assert database.rows("select ended_at, end_reason, stopping from pgcron.workers") == ended


async def test_a_heartbeat_leaves_the_sessions_durability_as_it_was(control: Connection, database: Database) -> None:
    register(database, WORKER)
    await workers.beat_worker(control, WORKER, stopping=False)
    cursor = await control.execute("show synchronous_commit")
    assert await cursor.fetchone() == ("on",)


# ---------------------------------------------------------------------------------------------- own runs


async def test_a_heartbeat_hears_of_all_runs_under_its_id(control: Connection, database: Database) -> None:
    names = ("in-hand", "stop", "unknown-to-it", "theirs", "lost", "queued")
    jobs = {name: add_job(database, name) for name in names}
    mine, stop, unknown = (add_running(database, jobs[name]) for name in names[:3])
    theirs = add_running(database, jobs["theirs"], OTHER_WORKER)
    lost = add_final(database, jobs["lost"], "lost")
    queued = add_run(database, jobs["queued"])
    database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", (stop,))
    own = await runs.read_own_runs(control, WORKER, [mine, stop, theirs, lost, queued, 999])
    assert own == {mine: False, stop: True, unknown: False}


async def test_a_run_that_its_own_transaction_recorded_is_not_taken(control: Connection, database: Database) -> None:
    done = add_final(database, add_job(database), "succeeded")
    assert await runs.read_own_runs(control, WORKER, [done]) == {done: False}
    assert await runs.read_own_runs(control, WORKER, []) == {}
    assert await runs.read_own_runs(control, OTHER_WORKER, [done]) == {}


async def test_runs_that_were_claimed_and_never_begun_are_queued_again(control: Connection, database: Database) -> None:
    mine, theirs, over = (add_job(database, name) for name in ("mine", "theirs", "over"))
    ids = [add_running(database, mine), add_running(database, theirs, OTHER_WORKER), add_final(database, over)]
    await runs.give_back_runs(control, WORKER, ids)
    assert [status(database, run_id) for run_id in ids] == ["queued", "running", "succeeded"]
    assert [task.run_id for task in (await claim(control)).tasks] == [ids[0]]


@pytest.mark.parametrize("how", ["removed", "disabled"])
async def test_a_run_is_not_queued_again_for_a_job_that_was_stopped_meanwhile(
    how: str, control: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    if how == "removed":
        database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    else:
        edit_job(database, job_id, enabled=False)
    await runs.give_back_runs(control, WORKER, [run_id])
    assert status(database, run_id) != "queued"


async def test_a_queued_run_without_a_job_stops_nobody_else(control: Connection, database: Database) -> None:
    gone, other = add_job(database, "gone"), add_job(database, "other")
    orphan = add_running(database, gone)
    database.execute("delete from pgcron.jobs where id = %s", (gone,))
    await runs.give_back_runs(control, WORKER, [orphan])
    free = add_run(database, other)
    first = await claim(control, limit=1)
    assert None not in first.refused
    second = await claim(control, refused=tuple(first.refused))
    assert [task.run_id for task in (*first.tasks, *second.tasks)] == [free]


# ------------------------------------------------------------------------------------------------- beats


async def test_the_living_are_listed_with_their_beat_and_lease(record: Connection, database: Database) -> None:
    register(database, WORKER, beat=9, lease=timedelta(seconds=12.5))
    ended = register(database)
    await workers.end_worker(record, ended, "stopped")
    assert await workers.list_beats(record) == [Beat(WORKER, 9, 12.5)]


async def test_running_runs_of_workers_without_a_living_row_are_listed_once(
    record: Connection, database: Database
) -> None:
    ended = register(database)
    await workers.end_worker(record, ended, "stopped")
    deleted = uuid4()
    for i, worker_id in enumerate([ended, deleted, deleted]):
        add_running(database, add_job(database, f"job-{i}"), worker_id)
    add_final(database, add_job(database, "over"))
    beats = await workers.list_beats(record)
    assert {beat.worker_id for beat in beats} == {ended, deleted}
    assert [(beat.beat, beat.lease) for beat in beats] == [(None, None)] * 2


# -------------------------------------------------------------------------------------------------- reap


async def test_only_an_unchanged_beat_lets_a_worker_be_reaped(
    record: Connection, control: Connection, database: Database
) -> None:
    register(database, WORKER)
    [seen] = await workers.list_beats(record)
    await workers.beat_worker(control, WORKER, stopping=False)
    assert not await workers.lock_silent_worker(record, seen)
    [seen] = await workers.list_beats(record)
    assert await workers.lock_silent_worker(record, seen)


async def test_a_worker_that_another_reaps_is_left_to_it(
    record: Connection, other: Connection, database: Database
) -> None:
    register(database, WORKER)
    [seen] = await workers.list_beats(record)
    async with other.transaction():
        assert await workers.lock_silent_worker(other, seen)
        assert not await workers.lock_silent_worker(record, seen)
        await workers.end_worker(other, WORKER, "lost")
    assert not await workers.lock_silent_worker(record, seen)


async def test_the_runs_of_a_dead_worker_come_with_what_decides_on_their_retry(
    record: Connection, database: Database
) -> None:
    job_id = add_job(database, max_attempts=5, retry_delay="7 s", retry_backoff=3, retry_max_delay="1 min")
    gone = add_job(database, "gone")
    add_final(database, job_id, ago=minutes(9))
    with_job, without = add_running(database, job_id, attempt=2), add_running(database, gone)
    database.execute("delete from pgcron.jobs where id = %s", (gone,))
    add_running(database, add_job(database, "theirs"), OTHER_WORKER)
    policy = RetryPolicy(5, timedelta(seconds=7), 3.0, timedelta(minutes=1))
    assert await runs.lock_lost_runs(record, WORKER, limit=10) == [
        LostRun(with_job, "job", 2, policy),
        LostRun(without, "gone", 1, None),
    ]
    assert [run.run_id for run in await runs.lock_lost_runs(record, WORKER, limit=1)] == [with_job]


async def test_lost_runs_that_somebody_else_closes_are_skipped(
    record: Connection, other: Connection, database: Database
) -> None:
    held, free = (add_running(database, add_job(database, name)) for name in ("held", "free"))
    async with other.transaction():
        await runs.finish_runs(other, WORKER, [ending(held)], now=NOW)
        assert [run.run_id for run in await runs.lock_lost_runs(record, WORKER, limit=10)] == [free]


async def test_a_reaped_run_is_lost_and_tried_again_and_the_dead_change_nothing(
    record: Connection, control: Connection, database: Database
) -> None:
    register(database, WORKER)
    job_id = add_job(database, max_attempts=2)
    run_id = add_running(database, job_id)
    [seen] = await workers.list_beats(record)
    async with record.transaction():
        assert await workers.lock_silent_worker(record, seen)
        [lost] = await runs.lock_lost_runs(record, WORKER, limit=10)
        assert await runs.finish_runs(record, WORKER, [ending(lost.run_id, Status.LOST, retry_in=0)], now=NOW) == {
            run_id
        }
        assert await workers.end_worker(record, WORKER, "lost")
    assert statuses(database, job_id) == ["lost", "queued"]
    assert await workers.list_beats(record) == []
    assert await workers.beat_worker(control, WORKER, stopping=False) is None
    assert await runs.read_own_runs(control, WORKER, [run_id]) == {}
    assert await runs.finish_runs(control, WORKER, [ending(run_id)], now=NOW) == set()
    [task] = (await claim(record, OTHER_WORKER)).tasks
    assert (task.job_id, task.attempt) == (job_id, 2)


# ---------------------------------------------------------------------------------------------- sessions


async def test_all_sessions_of_a_dead_worker_are_ended_and_no_others(connect: Connect, database: Database) -> None:
    record = await connect(Purpose.RECORD, name=workers.application_name(OTHER_WORKER))
    dead = [await connect(purpose, name=workers.application_name(WORKER)) for purpose in (Purpose.CONTROL, Purpose.JOB)]
    alive = await connect(name=workers.application_name(uuid4()))
    job_id = add_job(database)
    add_run(database, job_id)
    await claim(dead[0])
    assert await workers.terminate_sessions(record, WORKER) == (2, 2)
    pids = [connection.info.backend_pid for connection in (*dead, alive)]
    assert database.rows("select pid from pg_stat_activity where pid = any(%s)", (pids,)) == [(pids[2],)]
    assert database.value("select count(*) from pg_locks where locktype = 'advisory' and objid = %s", (job_id,)) == 0
    assert await workers.terminate_sessions(record, WORKER) == (0, 0)


async def test_a_dead_workers_open_transaction_is_rolled_back(
    connect: Connect, record: Connection, database: Database
) -> None:
    dead = await connect(Purpose.JOB, name=workers.application_name(WORKER))
    await dead.execute("begin")
    await dead.execute("create table public.work ()")
    assert await workers.terminate_sessions(record, WORKER) == (1, 1)
    assert database.value("select to_regclass('public.work')") is None


async def test_one_never_ends_ones_own_session(connect: Connect) -> None:
    mine = await connect(Purpose.RECORD, name=workers.application_name(WORKER))
    assert await workers.terminate_sessions(mine, WORKER) == (0, 0)


async def test_sessions_of_roles_that_one_may_not_end_are_left(connect: Connect, database: Database) -> None:
    ordinary = await connect(Purpose.RECORD, dsn=database.worker_dsn)
    above = await connect(name=workers.application_name(WORKER))
    own = await connect(dsn=database.worker_dsn, name=workers.application_name(WORKER))
    assert await workers.terminate_sessions(ordinary, WORKER) == (1, 1)
    await above.execute("select 1")
    eventually(
        lambda: database.value("select count(*) from pg_stat_activity where pid = %s", (own.info.backend_pid,)) == 0
    )


# ------------------------------------------------------------------------------------------------- prune


async def test_ended_workers_are_kept_for_a_day(record: Connection, database: Database) -> None:
    alive = register(database, started_at=NOW - timedelta(days=99), heartbeat_at=NOW - timedelta(days=99))
    recent = register(database, ended_at=NOW - timedelta(days=1))
    register(database, ended_at=NOW - timedelta(days=1, seconds=1))
    await retention.prune_workers(record, now=NOW)
    assert {row[0] for row in database.rows("select id from pgcron.workers")} == {alive, recent}
