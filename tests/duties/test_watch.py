"""Watch: what is late, long, muted, repeated; with a set clock on real rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import LiteralString

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose
from pgcron_runner.session import Session
from pgcron_runner.watch import Watch
from tests.statements.builders import NOW, WORKER, add_final, add_job, add_planned_job, add_run, add_running
from tests.statements.test_incidents import add_channel, add_route, alerts, incidents
from tests.support.databases import Database

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def called() -> list[str]:
    """The addresses that were called."""
    return []


@pytest.fixture
async def watch(database: Database, called: list[str]) -> AsyncIterator[Watch]:
    session = Session(sessions.Database(database.dsn, "watch"), Purpose.RECORD)
    yield Watch(session, called.append)
    await session.close()


def fail(database: Database, job_id: int, *, at: datetime = NOW) -> None:
    """An occurrence that fails for good."""
    run_id = add_running(database, job_id, scheduled_for=at)
    database.execute("update pgcron.runs set status = 'failed', finished_at = %s where id = %s", (at, run_id))


async def test_one_worker_watches_and_once_in_a_while(watch: Watch) -> None:
    assert await watch.step(now=NOW)
    assert not await watch.step(now=NOW + 9 * SECOND)
    assert await watch.step(now=NOW + 10 * SECOND)
    # The database's clock was set back by an hour: the watch goes on.
    assert await watch.step(now=NOW - HOUR)


async def test_a_run_that_waits_too_long_is_late_until_it_starts(watch: Watch, database: Database) -> None:
    add_route(database, add_channel(database))
    job_id = add_planned_job(database, next_run_at=NOW + HOUR, late_after="5 minutes")
    run_id = add_run(database, job_id, scheduled_for=NOW, run_at=NOW)
    await watch.step(now=NOW + 4 * MINUTE)
    assert incidents(database) == []
    for minute in (6, 7):
        await watch.step(now=NOW + minute * MINUTE)
    assert incidents(database) == [("late", "late", 1, True, 0)]
    assert alerts(database) == [("ops", "late", 1, 1, 0)]
    assert database.value("select payload -> 'run' from pgcron.alerts") == run_id
    database.execute(
        "update pgcron.runs set status = 'running', lane = 1, worker_id = %s, started_at = %s, in_incident = true",
        (WORKER, NOW + 8 * MINUTE),
    )
    assert incidents(database) == [("late", "late", 1, False, 0)]
    assert [alert[1] for alert in alerts(database)] == ["late", "recovered"]


async def test_so_is_a_job_that_nobody_fires(watch: Watch, database: Database) -> None:
    add_planned_job(database, "unwatched", next_run_at=NOW)
    add_planned_job(database, "paused", next_run_at=NOW, late_after="5 minutes", paused_until=NOW + HOUR)
    add_planned_job(database, "due", next_run_at=NOW, late_after="5 minutes")
    await watch.step(now=NOW + 6 * MINUTE)
    assert database.rows("select job_name, event from pgcron.incidents") == [("due", "late")]


async def test_nothing_is_late_while_everything_is_paused(watch: Watch, database: Database) -> None:
    add_planned_job(database, next_run_at=NOW, late_after="5 minutes")
    database.execute("update pgcron.settings set paused = true")
    await watch.step(now=NOW + 6 * MINUTE)
    assert incidents(database) == []


async def test_a_run_that_takes_too_long_is_told_while_it_runs(watch: Watch, database: Database) -> None:
    add_route(database, add_channel(database), events=["long", "recovered"])
    job_id = add_job(database, long_after="5 minutes")
    run_id = add_running(database, job_id, run_at=NOW, scheduled_for=NOW)
    await watch.step(now=NOW + 4 * MINUTE)
    assert incidents(database) == []
    for minute in (6, 7):
        await watch.step(now=NOW + minute * MINUTE)
    assert incidents(database) == [("long", "long", 1, True, 0)]
    end = NOW + 8 * MINUTE
    database.execute("update pgcron.runs set status = 'cancelled', finished_at = %s where id = %s", (end, run_id))
    assert incidents(database) == [("long", "long", 1, False, 0)]
    assert [alert[1] for alert in alerts(database)] == ["long", "recovered"]


async def test_the_end_of_another_run_does_not_close_it(watch: Watch, database: Database) -> None:
    job_id = add_job(database, long_after="5 minutes", overlap="allow", max_running=2)
    long = add_running(database, job_id, run_at=NOW, scheduled_for=NOW)
    await watch.step(now=NOW + 6 * MINUTE)
    other = add_running(database, job_id, run_at=NOW, scheduled_for=NOW + 6 * MINUTE, lane=2, in_incident=True)
    for run_id, is_open in ((other, True), (long, False)):
        database.execute("update pgcron.runs set status = 'succeeded', finished_at = now() where id = %s", (run_id,))
        assert [incident[3] for incident in incidents(database)] == [is_open]


@pytest.mark.parametrize(
    ("edit", "because"),
    [
        ("enabled = false", "the job was disabled"),
        ("paused_until = '2036-01-01'", "the job was paused"),
        ("late_after = late_after", None),
    ],
)
async def test_what_will_never_start_is_late_no_longer(
    edit: LiteralString, because: str | None, watch: Watch, database: Database
) -> None:
    add_route(database, add_channel(database))
    add_planned_job(database, next_run_at=NOW, late_after="5 minutes")
    await watch.step(now=NOW + 6 * MINUTE)
    database.execute(f"update pgcron.jobs set {edit}")
    await watch.step(now=NOW + 7 * MINUTE)
    assert [incident[3] for incident in incidents(database)] == [because is None]
    if because:
        assert database.value("select payload ->> 'because' from pgcron.alerts order by id desc limit 1") == because


async def test_a_start_that_did_not_know_of_the_incident_closes_it_all_the_same(
    watch: Watch, database: Database
) -> None:
    """It was claimed in the very moment in which it was found to be late."""
    job_id = add_planned_job(database, next_run_at=NOW + HOUR, late_after="5 minutes")
    run_id = add_run(database, job_id, scheduled_for=NOW, run_at=NOW)
    await watch.step(now=NOW + 6 * MINUTE)
    database.execute(
        "update pgcron.runs set status = 'running', lane = 1, worker_id = %s, started_at = %s where id = %s",
        (WORKER, NOW + 7 * MINUTE, run_id),
    )
    assert incidents(database) == [("late", "late", 1, True, 0)]
    await watch.step(now=NOW + 8 * MINUTE)
    assert incidents(database) == [("late", "late", 1, False, 0)]


async def test_of_a_job_that_somebody_has_disabled_nothing_is_repeated(watch: Watch, database: Database) -> None:
    add_route(database, add_channel(database), repeat_every="1 hour")
    fail(database, add_job(database))
    database.execute("update pgcron.jobs set enabled = false")
    await watch.step(now=NOW + 2 * HOUR)
    assert len(alerts(database)) == 1
    database.execute("update pgcron.jobs set enabled = true")
    await watch.step(now=NOW + 3 * HOUR)
    assert len(alerts(database)) == 2


async def test_what_is_being_closed_is_not_said_to_be_open_after_that(watch: Watch, database: Database) -> None:
    add_route(database, add_channel(database), repeat_every="1 hour")
    job_id = add_job(database)
    fail(database, job_id)
    run_id = add_running(database, job_id, scheduled_for=NOW + HOUR, in_incident=True)
    with psycopg.connect(database.dsn) as ending:
        ending.execute(
            "update pgcron.runs set status = 'succeeded', finished_at = %s where id = %s", (NOW + HOUR, run_id)
        )
        await watch.step(now=NOW + 2 * HOUR)
    assert [alert[1] for alert in alerts(database)] == ["failed", "recovered"]


async def test_without_a_limit_its_own_usual_time_decides(watch: Watch, database: Database) -> None:
    usual, new = add_job(database, "usual"), add_job(database, "new")
    for day in range(1, 4):
        at = NOW - timedelta(days=day)
        run_id = add_final(database, usual, scheduled_for=at, run_at=at)
        database.execute(
            "update pgcron.runs set finished_at = started_at + interval '10 minutes' where id = %s", (run_id,)
        )
    for job_id in (usual, new):
        add_running(database, job_id, run_at=NOW, scheduled_for=NOW)
    await watch.step(now=NOW + 29 * MINUTE)
    assert incidents(database) == []
    await watch.step(now=NOW + 31 * MINUTE)
    assert database.rows("select job_name from pgcron.incidents") == [("usual",)]


async def test_it_is_said_again_as_the_route_says_more_and_more_seldom(watch: Watch, database: Database) -> None:
    add_route(database, add_channel(database), repeat_every="1 hour")
    fail(database, add_job(database))
    told: list[float] = []
    for minute in range(0, 60 * 24 * 3, 10):
        await watch.step(now=NOW + minute * MINUTE)
        if len(alerts(database)) > len(told):
            told.append(minute / 60)
    assert told == [0, 1, 3, 7, 15, 31, 55]
    assert [alert[4] for alert in alerts(database)] == list(range(7))


async def test_without_such_a_route_it_is_said_once(watch: Watch, database: Database) -> None:
    add_channel(database)
    fail(database, add_job(database))
    await watch.step(now=NOW + timedelta(days=9))
    assert len(alerts(database)) == 1


async def test_who_has_taken_it_on_is_left_in_peace(watch: Watch, database: Database) -> None:
    loud = add_channel(database, "loud")
    add_route(database, add_channel(database), repeat_every="1 hour")
    add_route(database, loud, min_failures=2)
    job_id = add_job(database)
    fail(database, job_id)
    database.execute("update pgcron.incidents set acknowledged_at = now(), acknowledged_by = 'ann'")
    fail(database, job_id, at=NOW + MINUTE)
    await watch.step(now=NOW + 5 * HOUR)
    # A louder channel has not heard of it yet; nobody is told twice.
    assert alerts(database) == [("ops", "failed", 1, 1, 0), ("loud", "failed", 2, 2, 0)]


@pytest.mark.parametrize("which", ["job", "channel", "everything"])
async def test_what_is_still_wrong_when_a_mute_ends_is_told_then(which: str, watch: Watch, database: Database) -> None:
    until = NOW + HOUR
    add_channel(database, muted_until=until if which == "channel" else None)
    job_id = add_job(database, muted_until=until if which == "job" else None)
    if which == "everything":
        database.execute("update pgcron.settings set muted_until = %s", (until,))
    fail(database, job_id)
    await watch.step(now=NOW + 59 * MINUTE)
    assert alerts(database) == []
    await watch.step(now=NOW + 61 * MINUTE)
    assert alerts(database) == [("ops", "failed", 1, 1, 0)]


async def test_a_flapping_job_that_stays_broken_is_told_when_it_has_cooled_down(
    watch: Watch, database: Database
) -> None:
    add_channel(database)
    job_id = add_job(database)
    fail(database, job_id)
    run_id = add_running(database, job_id, scheduled_for=NOW + MINUTE, in_incident=True)
    database.execute(
        "update pgcron.runs set status = 'succeeded', finished_at = %s where id = %s", (NOW + MINUTE, run_id)
    )
    fail(database, job_id, at=NOW + 2 * MINUTE)
    await watch.step(now=NOW + 10 * MINUTE)
    assert [alert[1] for alert in alerts(database)] == ["failed", "recovered"]
    await watch.step(now=NOW + 12 * MINUTE)
    assert [alert[1] for alert in alerts(database)] == ["failed", "recovered", "failed"]


async def test_a_job_that_fails_too_often_is_disabled_and_says_why(watch: Watch, database: Database) -> None:
    add_channel(database)
    job_id = add_job(database, pause_after=3)
    for minute in range(3):
        assert database.value("select enabled from pgcron.jobs")
        fail(database, job_id, at=NOW + minute * MINUTE)
        await watch.step(now=NOW + minute * MINUTE)
    assert database.rows("select enabled, paused_reason from pgcron.jobs") == [
        (False, "disabled after 3 failures in a row, the last one failed")
    ]
    told = database.rows("select event, payload ->> 'paused_reason' from pgcron.alerts order by id")
    assert told == [("failed", None), ("failed", "disabled after 3 failures in a row, the last one failed")]
    database.execute("update pgcron.jobs set enabled = true")
    assert database.rows("select enabled, paused_reason from pgcron.jobs") == [(True, None)]


async def test_more_incidents_than_one_batch_are_all_looked_at(
    watch: Watch, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgcron_runner.watch.BATCH", 2)
    for number in range(5):
        fail(database, add_job(database, f"job-{number}"))
    add_channel(database)
    await watch.step(now=NOW + HOUR)
    assert len(alerts(database)) == 5


async def test_the_installation_tells_a_monitor_once_a_minute_that_it_lives(
    watch: Watch, called: list[str], database: Database
) -> None:
    await watch.step(now=NOW)
    assert called == []
    database.execute("update pgcron.settings set heartbeat_url = 'https://hc.example.org/uuid'")
    for second in range(10, 190, 10):
        await watch.step(now=NOW + second * SECOND)
    assert called == ["https://hc.example.org/uuid"] * 3
