"""Retention: what goes, and what must stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgcron_runner.database import Connection
from pgcron_runner.store import retention
from tests.statements.builders import (
    NOW,
    add_final,
    add_job,
    add_run,
    add_running,
    edit_job,
    minutes,
    status,
)
from tests.support.databases import Database

_DAY = timedelta(days=1)


def ids(database: Database) -> set[int]:
    return {row[0] for row in database.rows("select id from pgcron.runs")}


async def prune(connection: Connection, *, limit: int = 100) -> int:
    _, removed = await retention.prune_runs(connection, after_id=0, jobs=100, limit=limit, now=NOW)
    return removed


async def test_finished_runs_go_after_the_time_of_the_installation(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    old = add_final(database, job_id, ago=30 * _DAY + minutes(1))
    kept = {add_final(database, job_id, ago=30 * _DAY - minutes(1)), add_final(database, job_id, ago=_DAY)}
    assert await prune(record) == 1
    assert ids(database) == kept
    database.execute("update pgcron.settings set keep_for = '2 days'")
    assert await prune(record) == 1
    assert old not in ids(database)


async def test_a_jobs_own_time_comes_first(record: Connection, database: Database) -> None:
    short, long = add_job(database, "short", keep_for="1 hour"), add_job(database, "long", keep_for="1 year")
    add_final(database, short, ago=minutes(61))
    kept = {add_final(database, short, ago=minutes(59))}
    kept |= {add_final(database, long, ago=300 * _DAY), add_final(database, long, ago=299 * _DAY)}
    assert await prune(record) == 1
    assert ids(database) == kept


async def test_the_last_run_of_a_job_stays_however_old(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    last = add_final(database, job_id, "failed", ago=900 * _DAY, attempt=2)
    add_final(database, job_id, "failed", ago=900 * _DAY)
    add_final(database, job_id, ago=901 * _DAY)
    assert await prune(record) == 2
    assert ids(database) == {last}


async def test_the_last_finished_run_stays_while_a_newer_one_is_running(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    kept = {add_final(database, job_id, ago=900 * _DAY), add_running(database, job_id, ago=_DAY)}
    assert await prune(record) == 0
    assert ids(database) == kept


async def test_what_is_queued_or_running_stays_however_old(record: Connection, database: Database) -> None:
    job_id = add_job(database, overlap="allow")
    kept = {add_run(database, job_id, ago=900 * _DAY), add_running(database, job_id, ago=901 * _DAY)}
    kept.add(add_final(database, job_id, ago=minutes(1)))
    assert await prune(record) == 0
    assert ids(database) == kept


async def test_the_end_counts_not_the_beginning(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    long_run = add_final(database, job_id, ago=31 * _DAY)
    database.execute("update pgcron.runs set finished_at = %s where id = %s", (NOW - 29 * _DAY, long_run))
    last = add_final(database, job_id, ago=_DAY)
    assert await prune(record) == 0
    assert ids(database) == {long_run, last}


@pytest.mark.parametrize(
    ("state", "goes"),
    [
        ("succeeded", True),
        ("skipped", True),
        ("failed", False),
        ("timed_out", False),
        ("lost", False),
        ("cancelled", False),
    ],
)
async def test_with_history_of_failures_success_goes_after_an_hour(
    state: str, goes: bool, record: Connection, database: Database
) -> None:
    job_id = add_job(database, history="failures")
    run_id = add_final(database, job_id, state, ago=minutes(61))
    fresh = add_final(database, job_id, ago=minutes(59))
    assert await prune(record) == int(goes)
    assert ids(database) == ({fresh} if goes else {run_id, fresh})


async def test_with_history_of_failures_the_last_success_stays_and_old_failures_go(
    record: Connection, database: Database
) -> None:
    job_id = add_job(database, history="failures")
    add_final(database, job_id, "failed", ago=31 * _DAY)
    last = add_final(database, job_id, ago=29 * _DAY)
    assert await prune(record) == 1
    assert ids(database) == {last}


async def test_with_history_of_failures_a_time_of_less_than_an_hour_is_kept_to(
    record: Connection, database: Database
) -> None:
    job_id = add_job(database, history="failures", keep_for="10 minutes")
    add_final(database, job_id, "failed", ago=minutes(11))
    fresh = add_final(database, job_id, ago=minutes(9))
    assert await prune(record) == 1
    assert ids(database) == {fresh}


async def test_each_job_gives_at_most_the_limit_oldest_first(record: Connection, database: Database) -> None:
    kept = set()
    for name in ("a", "b"):
        job_id = add_job(database, name)
        made = [add_final(database, job_id, ago=ago * _DAY) for ago in (35, 34, 33, 32, 1)]
        kept |= set(made[2:])
    assert await prune(record, limit=2) == 4
    assert ids(database) == kept


async def test_jobs_are_looked_at_in_turn(record: Connection, database: Database) -> None:
    jobs = [add_job(database, f"job-{i}") for i in range(5)]
    for job_id in jobs:
        for ago in (40, 1):
            add_final(database, job_id, ago=ago * _DAY)
    seen = []
    after_id: int | None = 0
    while after_id is not None:
        after_id, removed = await retention.prune_runs(record, after_id=after_id, jobs=2, limit=10, now=NOW)
        seen.append((after_id, removed))
    assert seen == [(jobs[1], 2), (jobs[3], 2), (jobs[4], 1), (None, 0)]


async def test_rows_that_somebody_holds_are_left_for_the_next_time(
    record: Connection, other: Connection, database: Database
) -> None:
    job_id = add_job(database)
    held, free, last = (add_final(database, job_id, ago=ago * _DAY) for ago in (40, 39, 1))
    async with other.transaction():
        await other.execute("select from pgcron.runs where id = %s for update", (held,))
        assert await prune(record) == 1
    assert ids(database) == {held, last}
    assert free not in ids(database)


@pytest.mark.parametrize("columns", [{}, {"history": "failures"}, {"keep_for": "1 hour"}])
async def test_pruning_an_empty_history_is_nothing(
    columns: dict[str, Any], record: Connection, database: Database
) -> None:
    job_id = add_job(database, **columns)
    assert await retention.prune_runs(record, after_id=0, jobs=10, limit=10, now=NOW) == (job_id, 0)


# ------------------------------------------------------------------------------------ what deleted jobs left


async def test_the_history_of_a_deleted_job_goes_after_its_time(record: Connection, database: Database) -> None:
    job_id, other = add_job(database), add_job(database, "other")
    old = [add_final(database, job_id, ago=ago * _DAY) for ago in (33, 32, 31)]
    fresh, theirs = add_final(database, job_id, ago=_DAY), add_final(database, other, ago=40 * _DAY)
    running = add_running(database, job_id, ago=50 * _DAY)
    database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    assert await retention.prune_orphaned_runs(record, limit=2, now=NOW) == 2
    assert ids(database) == {old[2], fresh, theirs, running}
    assert await retention.prune_orphaned_runs(record, limit=2, now=NOW) == 1
    assert await retention.prune_orphaned_runs(record, limit=2, now=NOW) == 0
    assert status(database, running) == "running"


async def test_what_was_withdrawn_with_its_job_stays_for_its_time(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    run_id = add_run(database, job_id)
    edit_job(database, job_id, enabled=False)
    database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    assert await retention.prune_orphaned_runs(record, limit=10, now=NOW) == 0
    assert status(database, run_id) == "cancelled"


# --------------------------------------------------------------------------------------------------- alerts


async def test_the_outbox_has_a_bound_and_what_was_never_told_is_marked_first(
    record: Connection, database: Database
) -> None:
    """One that was sent goes after keep_for; one that nobody took is given up then, and goes as long after that."""
    database.execute("insert into pgcron.channels (name, target, enabled) values ('ops', 'json://127.0.0.1', false)")
    database.execute(
        """insert into pgcron.alerts (channel_id, event, job_name, dedup_key, payload, created_at, sent_at, send_at)
           select c.id, 'failed', 'backup', d.key, '{}', %(now)s::timestamptz - d.age,
                  %(now)s::timestamptz - d.sent, %(now)s
             from pgcron.channels c,
                  (values ('sent', interval '31 days', interval '31 days'), ('fresh', '1 day', '1 day'),
                          ('waits', '31 days', null), ('waits 2', '31 days', null), ('new', '1 day', null))
                    d (key, age, sent)""",
        {"now": NOW},
    )
    left = "select dedup_key from pgcron.alerts order by id"
    given_up = "select dedup_key from pgcron.alerts where given_up_at is not null and error like %s order by id"
    assert await retention.prune_alerts(record, limit=1, now=NOW) == 1
    assert [row[0] for row in database.rows(left)] == ["fresh", "waits", "waits 2", "new"]
    assert database.rows(given_up, ("it waited longer%",)) == [("waits",)]
    assert await retention.prune_alerts(record, limit=10, now=NOW) == 0
    assert database.rows(given_up, ("it waited longer%",)) == [("waits",), ("waits 2",)]
    assert await retention.prune_alerts(record, limit=10, now=NOW + 31 * _DAY) == 3
    assert [row[0] for row in database.rows(left)] == ["new"]
