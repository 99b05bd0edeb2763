"""Incidents and their alerts, as the triggers write them in the very statements that end, miss and claim runs."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Connection, Purpose
from pgcron_runner.finish import Finish
from pgcron_runner.model import Finished, Kind, Outcome, RetryPolicy, Status, Task
from pgcron_runner.session import Session
from pgcron_runner.store import runs
from tests.statements.builders import NOW, WORKER, add_job, add_run, add_running, edit_job, ending
from tests.support.databases import Database
from tests.support.waiting import blocked_on_lock, eventually, eventually_async

MINUTE = timedelta(minutes=1)
FAILED = Status.FAILED


def add_channel(database: Database, name: str = "ops", **columns: Any) -> int:
    made: int = database.value(
        "insert into pgcron.channels (name, target, muted_until) values (%s, 'json://127.0.0.1', %s) returning id",
        (name, columns.get("muted_until")),
    )
    return made


def add_route(
    database: Database, channel: int, *, min_failures: int = 1, repeat_every: str | None = None, **more: Any
) -> None:
    database.execute(
        """insert into pgcron.routes (channel_id, min_failures, repeat_every, job_pattern, tags, queue, events)
           values (%s, %s, %s, %s, %s, %s, %s)""",
        (
            channel,
            min_failures,
            repeat_every,
            more.get("job_pattern", "*"),
            more.get("tags", []),
            more.get("queue"),
            more.get("events", ["failed", "timed_out", "lost", "launch_failed", "late", "missed", "recovered"]),
        ),
    )


def incidents(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("select kind, event, failures, closed_at is null, reopened from pgcron.incidents order by id")


def alerts(database: Database) -> list[tuple[Any, ...]]:
    return database.rows(
        """select c.name, a.event, (a.payload ->> 'failures')::int, a.level, a.repeat
             from pgcron.alerts a join pgcron.channels c on c.id = a.channel_id order by a.id"""
    )


async def end(
    record: Connection, database: Database, job_id: int, status: Status = FAILED, *, at: datetime = NOW, **facts: Any
) -> int:
    """An occurrence of the job that was claimed and has ended, with the statements that workers use."""
    retry_in, columns = facts.pop("retry_in", None), facts.pop("columns", {})
    run_id = add_running(database, job_id, scheduled_for=at - MINUTE, **columns)
    database.execute(
        """update pgcron.runs r set in_incident = exists (
             select from pgcron.incidents i where i.job_id = r.job_id and i.closed_at is null) where id = %s""",
        (run_id,),
    )
    await runs.finish_runs(record, WORKER, [ending(run_id, status, retry_in=retry_in, **facts)], now=at)
    return run_id


# --------------------------------------------------------------------------------------------------- failing


async def test_failures_in_a_row_are_one_incident_which_success_closes(record: Connection, database: Database) -> None:
    add_channel(database)
    job_id = add_job(database)
    for minute in range(3):
        await end(record, database, job_id, at=NOW + minute * MINUTE)
    assert incidents(database) == [("failing", "failed", 3, True, 0)]
    await end(record, database, job_id, Status.SUCCEEDED, at=NOW + 4 * MINUTE)
    assert incidents(database) == [("failing", "failed", 3, False, 0)]
    assert alerts(database) == [("ops", "failed", 1, 1, 0), ("ops", "recovered", 3, 1, 0)]


async def test_only_the_last_attempt_counts(record: Connection, database: Database) -> None:
    job_id = add_job(database, max_attempts=2)
    await end(record, database, job_id, retry_in=0)
    assert incidents(database) == []
    database.execute(
        "update pgcron.runs set status = 'running', lane = 1, worker_id = %s, started_at = now() where attempt = 2",
        (WORKER,),
    )
    run_id = database.value("select id from pgcron.runs where attempt = 2")
    await runs.finish_runs(record, WORKER, [ending(run_id, FAILED)], now=NOW)
    assert incidents(database) == [("failing", "failed", 1, True, 0)]


@pytest.mark.parametrize(
    ("status", "error", "event"),
    [
        (Status.FAILED, "boom", "failed"),
        (Status.FAILED, "launch failed: no such file", "launch_failed"),
        (Status.TIMED_OUT, None, "timed_out"),
        (Status.LOST, None, "lost"),
        (Status.INTERRUPTED, None, "failed"),
        (Status.CANCELLED, None, None),
        (Status.SUCCEEDED, None, None),
    ],
)
async def test_each_end_has_its_event(
    status: Status, error: str | None, event: str | None, record: Connection, database: Database
) -> None:
    add_channel(database)
    await end(record, database, add_job(database), status, error=error)
    assert [incident[1] for incident in incidents(database)] == ([event] if event else [])
    assert [alert[1] for alert in alerts(database)] == ([event] if event else [])


async def test_what_ends_nothing_changes_nothing(record: Connection, database: Database) -> None:
    add_channel(database)
    job_id = add_job(database)
    await end(record, database, job_id)
    await end(record, database, job_id, Status.CANCELLED, at=NOW + MINUTE)
    await end(record, database, job_id, Status.SUCCEEDED, at=NOW + MINUTE * 2, columns={"backfill": True})
    await end(record, database, job_id, FAILED, at=NOW + MINUTE * 3, columns={"backfill": True})
    assert incidents(database) == [("failing", "failed", 1, True, 0)]


async def test_a_message_has_the_facts(record: Connection, database: Database) -> None:
    add_channel(database)
    job_id = add_job(database, timezone="Europe/Berlin", max_attempts=3, redact=["secret"], tags=["night"])
    columns = {"attempt": 3, "output": "x" * 5000 + "the end"}
    run_id = await end(record, database, job_id, error="boom", exit_code=3, columns=columns)
    facts = database.value("select payload from pgcron.alerts")
    assert facts | {"incident": 0, "output": ""} == facts | {
        "job": "job", "event": "failed", "kind": "sql", "timezone": "Europe/Berlin", "run": run_id, "attempt": 3,
        "max_attempts": 3, "error": "boom", "exit_code": 3, "failures": 1, "redact": ["secret"], "tags": ["night"],
        "incident": 0, "output": "", "status": "failed", "kind_of_incident": "failing", "repeat": 0,
    }  # fmt: skip
    assert facts["output"] == "x" * 3993 + "the end"
    assert datetime.fromisoformat(facts["finished_at"]) == NOW
    assert datetime.fromisoformat(facts["since"]) == NOW


async def test_a_job_that_is_removed_is_no_longer_wrong(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    await end(record, database, job_id)
    database.execute("delete from pgcron.jobs")
    assert incidents(database) == [("failing", "failed", 1, False, 0)]
    assert database.value("select job_id from pgcron.incidents") is None


async def test_who_was_told_of_a_job_hears_that_it_was_removed(record: Connection, database: Database) -> None:
    add_channel(database)
    await end(record, database, add_job(database))
    database.execute("delete from pgcron.jobs")
    assert [alert[1] for alert in alerts(database)] == ["failed", "recovered"]
    assert database.value("select payload ->> 'because' from pgcron.alerts order by id desc limit 1") == (
        "the job was removed"
    )


async def test_one_more_attempt_by_hand_is_the_same_failure(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    for attempt in (1, 2):
        await end(record, database, job_id, columns={"attempt": attempt})
    assert incidents(database) == [("failing", "failed", 1, True, 0)]
    await end(record, database, job_id, at=NOW + MINUTE)
    assert incidents(database) == [("failing", "failed", 2, True, 0)]


async def test_an_incident_follows_the_name_of_its_job(record: Connection, database: Database) -> None:
    job_id = add_job(database)
    await end(record, database, job_id)
    edit_job(database, job_id, name="renamed")
    await end(record, database, job_id, at=NOW + MINUTE)
    assert database.rows("select job_name, failures from pgcron.incidents") == [("renamed", 2)]


async def test_a_job_is_removed_while_its_run_fails_without_a_deadlock(record: Connection, database: Database) -> None:
    """The removal holds the job and waits for the run; the run's end must not wait for the job."""
    job_id = add_job(database)
    run_id = add_running(database, job_id)
    with (
        psycopg.connect(database.dsn, autocommit=True) as removal,
        psycopg.connect(database.dsn, autocommit=True) as finishing,
    ):
        removal.execute("begin")
        removal.execute("select from pgcron.jobs where id = %s for update", (job_id,))
        finishing.execute("set lock_timeout = '5s'")
        finishing.execute("begin")
        finishing.execute("update pgcron.runs set status = 'failed', finished_at = now() where id = %s", (run_id,))
        with ThreadPoolExecutor(1) as thread:
            removed = thread.submit(removal.execute, "delete from pgcron.jobs where id = %s", (job_id,))
            eventually(lambda: blocked_on_lock(database.dsn, removal.info.backend_pid))
            finishing.execute("commit")
            removed.result(10)
        removal.execute("commit")
    # It was opened while the job was there, and is closed all the same.
    assert incidents(database) == [("failing", "failed", 1, False, 0)]


async def test_a_channel_that_is_being_removed_keeps_no_run_from_ending(record: Connection, database: Database) -> None:
    channel = add_channel(database)
    run_id = add_running(database, add_job(database))
    with (
        psycopg.connect(database.dsn, autocommit=True) as removal,
        psycopg.connect(database.dsn, autocommit=True) as finishing,
    ):
        removal.execute("begin")
        removal.execute("delete from pgcron.channels where id = %s", (channel,))
        with ThreadPoolExecutor(1) as thread:
            ended = thread.submit(
                finishing.execute,
                "update pgcron.runs set status = 'failed', finished_at = now() where id = %s",
                (run_id,),
            )
            eventually(lambda: blocked_on_lock(database.dsn, finishing.info.backend_pid))
            removal.execute("commit")
            ended.result(10)
    assert incidents(database) == [("failing", "failed", 1, True, 0)]
    assert alerts(database) == []


async def test_a_batch_locks_the_incidents_of_its_jobs_in_their_order(record: Connection, database: Database) -> None:
    """Else two workers that end runs of the same jobs, each in its own order, would wait for each other."""
    first, second = add_job(database, "first"), add_job(database, "second")
    for job_id in (first, second):
        await end(record, database, job_id)
    runs_of = {job_id: add_running(database, job_id, scheduled_for=NOW) for job_id in (first, second)}
    session = Session(sessions.Database(database.dsn, "finish"), Purpose.RECORD)
    finish = Finish(session, session, WORKER)
    batch = [_finished(runs_of[job_id], job_id) for job_id in (second, first)]
    with (
        psycopg.connect(database.dsn, autocommit=True) as holder,
        psycopg.connect(database.dsn, autocommit=True) as watcher,
    ):
        holder.execute("begin")
        holder.execute("select from pgcron.incidents where job_id = %s for update", (first,))
        step = asyncio.create_task(finish.step(batch))

        async def waits() -> bool:
            return bool(watcher.execute("select from pg_stat_activity where wait_event_type = 'Lock'").fetchall())

        await eventually_async(waits)
        free = "select job_id from pgcron.incidents for update skip locked"
        assert watcher.execute(free).fetchall() == [(second,)]
        holder.execute("commit")
        assert await step == set()
    await session.close()
    assert [incident[2] for incident in incidents(database)] == [2, 2]


def _finished(run_id: int, job_id: int) -> Finished:
    task = Task(
        run_id, job_id, "job", Kind.SQL, "select 1", {}, NOW, 1, True, MINUTE, MINUTE, RetryPolicy(max_attempts=1)
    )
    return Finished(task, Outcome(FAILED))


# ------------------------------------------------------------------------------------------------ who is told


async def test_a_louder_channel_hears_of_it_when_it_goes_on(record: Connection, database: Database) -> None:
    quiet, loud = add_channel(database, "quiet"), add_channel(database, "loud")
    add_route(database, quiet)
    add_route(database, loud, min_failures=3)
    job_id = add_job(database)
    for minute in range(5):
        await end(record, database, job_id, at=NOW + minute * MINUTE)
    assert alerts(database) == [("quiet", "failed", 1, 1, 0), ("loud", "failed", 3, 3, 0)]
    await end(record, database, job_id, Status.SUCCEEDED, at=NOW + 9 * MINUTE)
    assert sorted(alerts(database)[2:]) == [("loud", "recovered", 5, 1, 0), ("quiet", "recovered", 5, 1, 0)]


async def test_who_was_not_told_hears_of_no_recovery(record: Connection, database: Database) -> None:
    add_route(database, add_channel(database), min_failures=3)
    add_route(database, add_channel(database, "deaf"), events=["failed"])
    job_id = add_job(database)
    await end(record, database, job_id)
    await end(record, database, job_id, Status.SUCCEEDED, at=NOW + MINUTE)
    assert alerts(database) == [("deaf", "failed", 1, 1, 0)]


@pytest.mark.parametrize(
    ("route", "matches"),
    [
        ({"job_pattern": "night*"}, True),
        ({"job_pattern": "night"}, False),
        ({"job_pattern": "*_100%"}, True),
        ({"job_pattern": "nightly__100%"}, False),
        ({"tags": ["a"]}, True),
        ({"tags": ["a", "c"]}, False),
        ({"queue": "reports"}, True),
        ({"queue": "default"}, False),
        ({"events": ["timed_out"]}, False),
    ],
)
async def test_routes_choose_by_name_tags_queue_and_event(
    route: dict[str, Any], matches: bool, record: Connection, database: Database
) -> None:
    add_route(database, add_channel(database), **route)
    await end(record, database, add_job(database, "nightly_100%", tags=["a", "b"], queue="reports"))
    assert len(alerts(database)) == matches


async def test_one_channel_with_two_routes_is_told_once(record: Connection, database: Database) -> None:
    channel = add_channel(database)
    add_route(database, channel)
    add_route(database, channel, job_pattern="j*")
    await end(record, database, add_job(database))
    assert alerts(database) == [("ops", "failed", 1, 1, 0)]


@pytest.mark.parametrize("which", ["job", "channel", "everything"])
async def test_a_mute_is_silent(which: str, record: Connection, database: Database) -> None:
    until = NOW + MINUTE
    add_channel(database, muted_until=until if which == "channel" else None)
    job_id = add_job(database, muted_until=until if which == "job" else None)
    if which == "everything":
        database.execute("update pgcron.settings set muted_until = %s", (until,))
    await end(record, database, job_id)
    assert alerts(database) == []
    # What is still wrong when it ends is told then.
    await end(record, database, job_id, at=NOW + 2 * MINUTE)
    assert alerts(database) == [("ops", "failed", 2, 1, 0)]


async def test_a_job_that_flaps_is_one_incident_and_each_channel_hears_little_of_it(
    record: Connection, database: Database
) -> None:
    add_channel(database)
    job_id = add_job(database)
    for minute in range(0, 60, 2):
        await end(record, database, job_id, at=NOW + minute * MINUTE)
        await end(record, database, job_id, Status.SUCCEEDED, at=NOW + (minute + 1) * MINUTE)
    assert incidents(database) == [("failing", "failed", 1, False, 29)]
    told = [alert[1] for alert in alerts(database)]
    assert told == ["failed", "recovered"] * 5
    await end(record, database, job_id, at=NOW + timedelta(hours=2))
    assert len(incidents(database)) == 2
    assert [alert[1] for alert in alerts(database)][-1] == "failed"


# ------------------------------------------------------------------------------------------ missed and invalid


async def test_what_was_missed_is_an_incident_until_a_run_starts(record: Connection, database: Database) -> None:
    add_route(database, add_channel(database))
    job_id = add_job(database)
    missed: dict[str, Any] = {"status": "missed", "missed_count": 5, "missed_until": NOW, "finished_at": NOW}
    add_run(database, job_id, scheduled_for=NOW - 5 * MINUTE, **missed)
    assert incidents(database) == [("late", "missed", 1, True, 0)]
    assert alerts(database) == [("ops", "missed", 1, 1, 0)]
    await end(record, database, job_id, Status.FAILED, at=NOW + MINUTE)
    assert incidents(database)[0] == ("late", "missed", 1, True, 0)
    run_id = add_run(database, job_id, scheduled_for=NOW + 2 * MINUTE)
    database.execute(
        """update pgcron.runs set status = 'running', lane = 1, worker_id = %s, started_at = %s, in_incident = true
            where id = %s""",
        (WORKER, NOW + 2 * MINUTE, run_id),
    )
    assert incidents(database)[0] == ("late", "missed", 1, False, 0)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"enabled": False}, []),
        ({"paused_until": NOW + MINUTE}, []),
        ({"paused_until": NOW}, []),
        ({"paused_until": NOW - MINUTE}, [("late", "missed", 1, True, 0)]),
    ],
    ids=["disabled", "paused", "pause just over", "paused before"],
)
def test_what_fell_due_while_a_job_was_held_is_no_incident(
    columns: dict[str, Any], expected: list[Any], database: Database
) -> None:
    job_id = add_job(database)
    edit_job(database, job_id, **columns)
    add_run(
        database,
        job_id,
        scheduled_for=NOW - 5 * MINUTE,
        status="missed",
        missed_count=5,
        missed_until=NOW,
        finished_at=NOW,
    )
    assert incidents(database) == expected


def test_a_job_that_cannot_be_scheduled_is_an_incident_until_it_can(database: Database) -> None:
    add_channel(database)
    job_id = add_job(database)
    planned = "update pgcron.jobs set planned = true, next_run_at = null, problem = %s where id = %s"
    database.execute(planned, ("no such zone", job_id))
    assert incidents(database) == [("invalid", "invalid", 1, True, 0)]
    edit_job(database, job_id, schedule="0 4 * * *")
    assert incidents(database) == [("invalid", "invalid", 1, True, 0)]
    database.execute(planned, (None, job_id))
    assert incidents(database) == [("invalid", "invalid", 1, False, 0)]
    assert [alert[1] for alert in alerts(database)] == ["invalid", "recovered"]
    assert database.value("select payload ->> 'problem' from pgcron.alerts order by id limit 1") == "no such zone"
