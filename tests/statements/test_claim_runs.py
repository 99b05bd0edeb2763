"""Claim: queued -> running, with the job's advisory lock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import LiteralString

import pytest

from pgcron_runner.database import Connection, UniqueViolation
from pgcron_runner.decisions import Lane
from pgcron_runner.model import Kind, RetryPolicy
from pgcron_runner.store import runs
from pgcron_runner.store.runs import LockedJob
from tests.statements.builders import (
    NOW,
    OTHER_WORKER,
    WORKER,
    add_final,
    add_job,
    add_run,
    add_running,
    claim,
    claimed_ids,
    edit_job,
    job_locks,
    minutes,
    status,
    statuses,
    take_job_lock,
)
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually_async

# --------------------------------------------------------------------------------- which runs, and how many


async def test_a_run_is_claimed_when_it_is_due_and_not_before(control: Connection, database: Database) -> None:
    due = add_run(database, add_job(database, "due"), ago=minutes(0))
    early = add_run(database, add_job(database, "early"), run_at=NOW + timedelta(microseconds=1))
    assert claimed_ids(await claim(control)) == [due]
    assert status(database, early) == "queued"


async def test_without_a_set_clock_the_databases_own_counts(control: Connection, database: Database) -> None:
    past = add_run(database, add_job(database, "past"), run_at="2020-01-01 00:00Z")
    add_run(database, add_job(database, "future"), ago=minutes(1))  # NOW lies in the future of every server
    assert claimed_ids(await claim(control, now=None)) == [past]
    assert database.value(
        "select abs(extract(epoch from clock_timestamp() - started_at)) < 60 from pgcron.runs r where id = %s", (past,)
    )


async def test_the_oldest_go_first_and_the_limit_holds(control: Connection, database: Database) -> None:
    by_age = [add_run(database, add_job(database, f"job-{ago}"), ago=minutes(ago)) for ago in (1, 5, 3, 2, 4)]
    claimed = await claim(control, limit=2)
    assert claimed_ids(claimed) == sorted([by_age[1], by_age[4]])
    assert claimed.more
    rest = await claim(control, limit=4)
    assert claimed_ids(rest) == sorted([by_age[0], by_age[2], by_age[3]])
    assert not rest.more


async def test_nothing_due_is_nothing(control: Connection, database: Database) -> None:
    add_final(database, add_job(database))
    claimed = await claim(control)
    assert (claimed.tasks, claimed.refused, claimed.more) == ([], frozenset(), False)


async def test_a_claim_takes_one_queue_at_one_priority(control: Connection, database: Database) -> None:
    wanted = add_run(database, add_job(database, "wanted", queue="mail", priority=5))
    add_run(database, add_job(database, "other-queue", priority=5))
    add_run(database, add_job(database, "other-priority", queue="mail"))
    assert claimed_ids(await claim(control, lane=Lane("mail", 5))) == [wanted]


async def test_kinds_that_the_worker_does_not_run_are_left(control: Connection, database: Database) -> None:
    ids = {kind: add_run(database, add_job(database, kind, kind=kind)) for kind in Kind}
    assert claimed_ids(await claim(control, kinds=(Kind.SQL, Kind.HTTP))) == sorted([ids[Kind.SQL], ids[Kind.HTTP]])
    assert status(database, ids[Kind.SHELL]) == "queued"


async def test_a_worker_never_gets_a_kind_that_it_does_not_run_even_if_the_job_was_edited(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database, kind="sql", command="select 1")
    add_run(database, job_id)
    edit_job(database, job_id, kind="shell", command="rm -rf /")
    claimed = await claim(control, kinds=(Kind.SQL,))
    assert [task.kind for task in claimed.tasks] in ([], [Kind.SQL])


async def test_a_claimed_run_belongs_to_its_worker(control: Connection, database: Database) -> None:
    run_id = add_run(database, add_job(database))
    await claim(control)
    assert database.rows(
        "select status, worker_id, started_at, lane, finished_at from pgcron.runs where id = %s", (run_id,)
    ) == [("running", WORKER, NOW, 1, None)]


async def test_a_task_carries_the_jobs_definition(control: Connection, database: Database) -> None:
    job_id = add_job(
        database,
        "nightly",
        kind="shell",
        command="backup",
        args={"a": 1},
        timeout="90 s",
        kill_grace="3 s",
        max_attempts=4,
        retry_delay="5 s",
        retry_backoff=1.5,
        retry_max_delay="1 min",
        env={"LEVEL": "info"},
        env_from=["TOKEN"],
        working_dir="/srv",
        memory_limit_mb=100,
        output_limit_kb=7,
    )
    run_id = add_run(database, job_id, attempt=2)
    [task] = (await claim(control)).tasks
    assert (task.run_id, task.job_id, task.job_name, task.kind) == (run_id, job_id, "nightly", Kind.SHELL)
    assert (task.command, task.args, task.scheduled_for, task.attempt) == ("backup", {"a": 1}, NOW - minutes(1), 2)
    assert (task.timeout, task.kill_grace, task.exclusive) == (timedelta(seconds=90), timedelta(seconds=3), True)
    assert task.retry == RetryPolicy(4, timedelta(seconds=5), 1.5, timedelta(minutes=1))
    assert (task.env, task.env_from, task.working_dir) == ({"LEVEL": "info"}, ("TOKEN",), "/srv")
    assert (task.memory_limit_mb, task.output_limit_kb) == (100, 7)


async def test_a_runs_own_args_stand_in_for_the_jobs(control: Connection, database: Database) -> None:
    add_run(database, add_job(database, args={"a": 1}), args={"b": 2})
    [task] = (await claim(control)).tasks
    assert task.args == {"b": 2}


# ----------------------------------------------------------------------------------------- exclusive jobs


async def test_of_an_exclusive_job_one_run_is_claimed_however_many_wait(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="queue_all")
    oldest, *_ = [add_run(database, job_id, ago=minutes(ago)) for ago in (3, 2, 1)]
    assert claimed_ids(await claim(control)) == [oldest]
    assert statuses(database, job_id) == ["running", "queued", "queued"]
    assert job_locks(database, control) == 1


async def test_a_running_run_of_an_exclusive_job_blocks_the_next(control: Connection, database: Database) -> None:
    job_id = add_job(database)
    add_running(database, job_id, OTHER_WORKER, ago=minutes(2))
    waiting = add_run(database, job_id)
    claimed = await claim(control)
    assert (claimed.tasks, claimed.refused) == ([], frozenset())
    assert status(database, waiting) == "queued"
    assert job_locks(database, control) == 0


async def test_a_blocked_job_takes_no_place_from_the_others(control: Connection, database: Database) -> None:
    blocked = add_job(database, "blocked", overlap="queue_all")
    add_running(database, blocked, ago=minutes(60))
    for ago in range(20, 30):
        add_run(database, blocked, ago=minutes(ago))
    free = add_run(database, add_job(database, "free"))
    assert claimed_ids(await claim(control, limit=3)) == [free]


@pytest.mark.parametrize("shared", [False, True])
async def test_a_strangers_lock_keeps_the_run_queued_and_is_told(
    shared: bool, control: Connection, database: Database
) -> None:
    job_id = add_job(database, "held")
    held = add_run(database, job_id, ago=minutes(2))
    free = add_run(database, add_job(database, "free"))
    take_job_lock(database, job_id, shared=shared)
    claimed = await claim(control)
    assert (claimed_ids(claimed), set(claimed.refused)) == ([free], {job_id})
    assert status(database, held) == "queued"
    assert (
        database.value("select num_nonnulls(worker_id, started_at, lane) from pgcron.runs where id = %s", (held,)) == 0
    )
    assert job_locks(database, control) == 1


async def test_a_claim_that_was_only_refused_still_says_whether_there_is_more(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database)
    add_run(database, job_id)
    take_job_lock(database, job_id)
    assert (await claim(control, limit=1)).more
    assert not (await claim(control, limit=2)).more


async def test_refused_jobs_are_left_out_so_that_others_get_their_places(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database, "held", overlap="queue_all")
    for ago in range(2, 12):
        add_run(database, job_id, ago=minutes(ago))
    free = add_run(database, add_job(database, "free"))
    take_job_lock(database, job_id)
    first = await claim(control, limit=3)
    assert (first.tasks, set(first.refused)) == ([], {job_id})
    assert claimed_ids(await claim(control, limit=3, refused=(job_id,))) == [free]


async def test_the_lock_of_a_claimed_job_can_be_seen_and_joined_by_anybody(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database)
    add_run(database, job_id)
    await claim(control)
    tried = "select pg_try_advisory_lock('pgcron'::regnamespace::oid::int, %s)"
    assert database.value(tried, (job_id,)) is False
    assert await runs.list_own_locks(control) == [LockedJob(job_id, exclusive=True)]
    assert await runs.release_job_locks(control, [LockedJob(job_id, exclusive=True)]) == 1
    assert database.value(tried, (job_id,)) is True


# ------------------------------------------------------------- as many advisory locks as claimed rows, never more

_PLANS: dict[str, tuple[LiteralString, ...]] = {
    "as a worker plans": (),
    "sequential scans": ("set enable_seqscan = on", "set enable_indexscan = off", "set enable_bitmapscan = off"),
    "bitmaps": ("set enable_indexscan = off", "set enable_seqscan = off"),
    "index scans": ("set enable_bitmapscan = off", "set enable_seqscan = off"),
    "nested loops": ("set enable_hashjoin = off", "set enable_mergejoin = off", "set enable_seqscan = on"),
    "merges": ("set enable_hashjoin = off", "set enable_nestloop = off", "set enable_seqscan = on"),
    "hashes": ("set enable_nestloop = off", "set enable_mergejoin = off", "set enable_seqscan = on"),
    "generic plans": ("set plan_cache_mode = force_generic_plan",),
    "no sorts, no materials": ("set enable_sort = off", "set enable_material = off", "set enable_memoize = off"),
}


@pytest.mark.parametrize("plan", _PLANS)
async def test_no_plan_takes_more_locks_than_it_claims_runs(plan: str, control: Connection, database: Database) -> None:
    database.execute(
        """with made as (insert into pgcron.jobs (name, kind, command, schedule, timezone, overlap)
             select 'job-' || i, 'sql', 'select 1', '@manual', 'UTC',
                    case when i %% 10 = 0 then 'allow' else 'queue_all' end
               from generate_series(1, 300) i returning id, name, overlap)
           insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
             select id, name, 'sql', 'schedule', %(now)s - n * interval '1 min', %(now)s - n * interval '1 min',
                    case when overlap = 'allow' then 2 else 1 end from made, generate_series(1, 3) n""",
        {"now": NOW},
    )
    for statement in _PLANS[plan]:
        await control.execute(statement)
    held = 0
    for limit in (3, 1, 50):
        claimed = await claim(control, limit=limit)
        held += len(claimed.tasks)
        assert 0 < len(claimed.tasks) <= limit
        assert job_locks(database, control) == held
    assert database.value("select count(*) from pgcron.runs where status = 'running'") == held


async def test_a_claim_with_held_locks_among_its_candidates_leaves_no_lock_behind(
    control: Connection, database: Database
) -> None:
    jobs = [add_job(database, f"job-{i}") for i in range(6)]
    for job_id in jobs:
        add_run(database, job_id)
    for job_id in jobs[::2]:
        take_job_lock(database, job_id)
    claimed = await claim(control)
    assert (len(claimed.tasks), set(claimed.refused)) == (3, set(jobs[::2]))
    assert job_locks(database, control) == 3


# ------------------------------------------------------------------------------------- jobs that allow overlap


async def test_allowed_overlap_fills_its_places_and_no_more(control: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow", max_running=2)
    for ago in range(4):
        add_run(database, job_id, ago=minutes(ago))
    claimed = await claim(control)
    assert [task.exclusive for task in claimed.tasks] == [False, False]
    assert statuses(database, job_id) == ["running", "running", "queued", "queued"]
    assert database.rows("select lane from pgcron.runs where status = 'running' order by scheduled_for") == [(1,), (2,)]
    again = await claim(control)
    assert (again.tasks, again.refused) == ([], frozenset())
    assert await runs.release_job_locks(control, [LockedJob(job_id, exclusive=False)] * 3) == 2


async def test_a_place_that_became_free_is_taken_again(control: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow", max_running=3)
    for lane, ago in ((1, 9), (3, 8)):
        add_running(database, job_id, ago=minutes(ago), lane=lane)
    add_run(database, job_id)
    await claim(control)
    assert database.rows("select lane from pgcron.runs order by lane") == [(1,), (2,), (3,)]


async def test_a_job_at_its_max_running_holds_up_nobody_else(control: Connection, database: Database) -> None:
    full = add_job(database, "full", overlap="allow", max_running=2)
    for lane in (1, 2):
        add_running(database, full, ago=minutes(60 + lane), lane=lane)
    for ago in range(10, 20):
        add_run(database, full, ago=minutes(ago))
    free = add_run(database, add_job(database, "free"))
    assert claimed_ids(await claim(control, limit=5)) == [free]


async def test_two_sessions_that_choose_one_place_are_told_apart_by_the_constraint(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="allow", max_running=2)
    first, second = (add_run(database, job_id, ago=minutes(ago)) for ago in (2, 1))
    async with control.transaction():
        assert claimed_ids(await claim(control, limit=1)) == [first]
        late = asyncio.create_task(claim(other, OTHER_WORKER, limit=1))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, other.info.backend_pid))
    with pytest.raises(UniqueViolation):
        await late
    assert (status(database, first), status(database, second)) == ("running", "queued")
    # The rollback has undone the row, not the session's lock: whoever claims must give it back.
    assert await runs.list_own_locks(other) == [LockedJob(job_id, exclusive=False)]
    assert await runs.release_job_locks(other, [LockedJob(job_id, exclusive=False)]) == 1
    assert claimed_ids(await claim(other, OTHER_WORKER)) == [second]


async def test_a_place_that_the_other_gave_up_is_taken(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="allow", max_running=2)
    first, second = (add_run(database, job_id, ago=minutes(ago)) for ago in (2, 1))
    async with control.transaction(force_rollback=True):
        await claim(control, limit=1)
        late = asyncio.create_task(claim(other, OTHER_WORKER, limit=1))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, other.info.backend_pid))
    assert claimed_ids(await late) == [second]
    assert status(database, first) == "queued"


async def test_overlap_without_a_bound_takes_all(control: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow")
    ids = [add_run(database, job_id, ago=minutes(ago)) for ago in range(5)]
    assert claimed_ids(await claim(control)) == sorted(ids)
    assert database.rows("select distinct lane, max_running from pgcron.runs") == [(None, None)]
    # A session lock is counted: it is free only when each run has given its share back.
    locks = [LockedJob(job_id, exclusive=False)]
    assert [await runs.release_job_locks(control, locks) for _ in ids] == [1] * 5
    assert await runs.list_own_locks(control) == []


async def test_shared_locks_let_other_workers_in_and_strangers_out(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="allow")
    for ago in (2, 1):
        add_run(database, job_id, ago=minutes(ago))
    assert len((await claim(control, limit=1)).tasks) == 1
    assert len((await claim(other, OTHER_WORKER, limit=1)).tasks) == 1
    assert database.value("select pg_try_advisory_lock('pgcron'::regnamespace::oid::int, %s)", (job_id,)) is False


async def test_a_strangers_exclusive_lock_stops_allowed_overlap_too(control: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow", max_running=2)
    add_run(database, job_id)
    take_job_lock(database, job_id)
    claimed = await claim(control)
    assert (claimed.tasks, set(claimed.refused)) == ([], {job_id})


async def test_after_an_edit_to_exclusive_the_overlapping_runs_end_first(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="allow")
    add_running(database, job_id, ago=minutes(2))
    edit_job(database, job_id, overlap="skip")
    add_run(database, job_id)
    assert (await claim(control)).tasks == []


@pytest.mark.parametrize("max_running", [None, 3])
async def test_after_an_edit_to_exclusive_a_run_queued_before_it_does_not_run_beside_another(
    max_running: int | None, control: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="allow", max_running=max_running)
    before = add_run(database, job_id, ago=minutes(1), run_at=NOW)
    edit_job(database, job_id, overlap="queue_all", max_running=None)
    after = add_run(database, job_id, ago=minutes(2))
    assert claimed_ids(await claim(control, limit=1)) == [after]
    # The same session: its own advisory lock does not keep it out.
    assert (await claim(control)).tasks == []
    assert status(database, before) == "queued"


# --------------------------------------------------------------------------------------------- two workers


async def test_two_workers_claim_disjoint_runs_without_waiting(
    control: Connection, other: Connection, database: Database
) -> None:
    ids = [add_run(database, add_job(database, f"job-{ago}"), ago=minutes(ago)) for ago in (4, 3, 2, 1)]
    async with control.transaction():
        mine = claimed_ids(await claim(control, limit=2))
        theirs = claimed_ids(await claim(other, OTHER_WORKER, limit=10))
    assert (mine, theirs) == (sorted(ids[:2]), sorted(ids[2:]))


async def test_a_row_that_another_transaction_holds_is_skipped_and_its_lock_not_taken(
    control: Connection, other: Connection, database: Database
) -> None:
    held = add_run(database, add_job(database, "held"), ago=minutes(2))
    free = add_run(database, add_job(database, "free"))
    async with other.transaction():
        await other.execute("select from pgcron.runs where id = %s for update", (held,))
        claimed = await claim(control)
    assert (claimed_ids(claimed), claimed.refused) == ([free], frozenset())
    assert job_locks(database, control) == 1


async def test_the_next_run_of_a_job_waits_for_a_claim_that_is_not_committed_yet(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database, overlap="queue_all")
    first, second = (add_run(database, job_id, ago=minutes(ago)) for ago in (2, 1))
    async with control.transaction():
        assert claimed_ids(await claim(control, limit=1)) == [first]
        theirs = await claim(other, OTHER_WORKER)
        assert (theirs.tasks, set(theirs.refused)) == ([], {job_id})
    assert status(database, second) == "queued"
    assert job_locks(database, other) == 0


async def test_the_runs_of_a_deleted_job_are_cancelled_and_never_claimed(
    control: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_run(database, job_id)
    database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    claimed = await claim(control)
    assert (claimed.tasks, claimed.refused) == ([], frozenset())
    assert database.rows("select job_id, job_name, status, reason from pgcron.runs where id = %s", (run_id,)) == [
        (None, "job", "cancelled", "the job was removed")
    ]


async def test_a_job_can_be_deleted_while_its_run_is_being_claimed(
    control: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database)
    run_id = add_run(database, job_id)
    async with control.transaction():
        await claim(control)
        deleting = asyncio.create_task(other.execute("delete from pgcron.jobs where id = %s", (job_id,)))
        await eventually_async(lambda: asyncio.to_thread(blocked_on_lock, database.dsn, other.info.backend_pid))
    await deleting
    assert database.rows("select job_id, status from pgcron.runs where id = %s", (run_id,)) == [(None, "running")]


async def test_a_running_run_whose_job_was_deleted_holds_up_nobody(control: Connection, database: Database) -> None:
    add_running(database, add_job(database, "gone"))
    database.execute("delete from pgcron.jobs where name = 'gone'")
    run_id = add_run(database, add_job(database, "other"))
    assert [task.run_id for task in (await claim(control)).tasks] == [run_id]
