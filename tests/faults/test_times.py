"""Real workers over the times that schedulers get wrong: kills and restarts at due moments, outages, edits."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

from pgcron_runner.schedule import parse_schedule
from tests.conftest import StartWorker
from tests.support.databases import Database
from tests.support.waiting import eventually

pytestmark = pytest.mark.faults

LEASE = ("--lease", "3s", "--poll", "1s")
TICK = timedelta(microseconds=1)


def add(database: Database, name: str, schedule: str, *, catch_up: str = "latest", overlap: str = "skip") -> None:
    database.execute(
        """insert into pgcron.jobs (name, schedule, timezone, kind, command, catch_up, overlap, max_attempts)
           values (%s, %s, 'Europe/Berlin', 'sql', 'select 1', %s, %s, 3)""",
        (name, schedule, catch_up, overlap),
    )


def finished(database: Database) -> int:
    return int(database.value("select count(*) from pgcron.runs where status = 'succeeded'"))


def assert_each_time_is_accounted_for_once(database: Database, name: str) -> None:
    """Every nominal time from the making of the job up to its next one stands in exactly one first row."""
    schedule, zone, anchor, until = database.rows(
        "select schedule, timezone, anchored_at, next_run_at from pgcron.jobs where name = %s", (name,)
    )[0]
    times = parse_schedule(schedule, zone, name=name)
    found: Counter[datetime] = Counter()
    for first, last in database.rows(
        """select scheduled_for, coalesce(missed_until, scheduled_for) from pgcron.runs
            where job_name = %s and attempt = 1""",
        (name,),
    ):
        found.update(times.between(first - TICK, last))
    assert found == Counter(times.between(anchor, until - TICK))


@pytest.mark.slow
def test_a_worker_killed_over_due_times_loses_and_doubles_none(database: Database, start_worker: StartWorker) -> None:
    add(database, "often", "* * * * * *")
    start_worker(*LEASE)
    for _ in range(3):
        seen = finished(database)
        eventually(lambda seen=seen: finished(database) > seen, 20)  # type: ignore[misc]
        victim = start_worker(*LEASE)
        eventually(lambda: database.value("select count(*) > 1 from pgcron.workers where ended_at is null"), 20)
        victim.kill()
    eventually(lambda: database.value("select count(*) from pgcron.workers where ended_at is null") == 1, 20)
    seen = finished(database)
    eventually(lambda: finished(database) > seen + 1, 20)
    database.execute("update pgcron.settings set paused = true")
    eventually(lambda: not database.value("select count(*) from pgcron.runs where status in ('queued', 'running')"), 20)
    assert_each_time_is_accounted_for_once(database, "often")


@pytest.mark.slow
def test_rolling_restarts_across_twenty_borders_lose_and_double_none(
    database: Database, start_worker: StartWorker
) -> None:
    add(database, "often", "* * * * * *", overlap="queue_all")
    worker = start_worker(*LEASE)
    for _ in range(20):
        seen = finished(database)
        eventually(lambda seen=seen: finished(database) > seen, 20)  # type: ignore[misc]
        worker.terminate()
        successor = start_worker(*LEASE)
        assert worker.wait(20) == 0
        worker = successor
    seen = finished(database)
    eventually(lambda: finished(database) > seen, 20)
    database.execute("update pgcron.settings set paused = true")
    eventually(lambda: not database.value("select count(*) from pgcron.runs where status in ('queued', 'running')"), 20)
    assert_each_time_is_accounted_for_once(database, "often")
    assert database.value("select count(*) from pgcron.runs where status not in ('succeeded', 'missed')") == 0


def test_all_workers_suspended_is_an_outage_like_any_other(database: Database, start_worker: StartWorker) -> None:
    add(database, "often", "* * * * * *")
    worker = start_worker(*LEASE)
    eventually(lambda: finished(database) > 1, 20)
    worker.stop()
    asleep = database.value("select clock_timestamp()")
    eventually(lambda: database.value("select clock_timestamp() > %s + interval '4 s'", (asleep,)), 20)
    worker.cont()
    eventually(lambda: database.value("select count(*) from pgcron.runs where status = 'missed'"), 20)
    seen = finished(database)
    eventually(lambda: finished(database) > seen, 20)
    database.execute("update pgcron.settings set paused = true")
    eventually(lambda: not database.value("select count(*) from pgcron.runs where status in ('queued', 'running')"), 20)
    assert_each_time_is_accounted_for_once(database, "often")


@pytest.mark.parametrize(("catch_up", "made_up"), [("skip", 0), ("latest", 1), ("all", 100)])
def test_after_a_week_of_outage_the_policy_decides(
    database: Database, start_worker: StartWorker, catch_up: str, made_up: int
) -> None:
    add(database, "hourly", "30 * * * *", catch_up=catch_up, overlap="queue_all")
    start_worker(*LEASE, "--once").wait(20)
    # As if nobody had been there for a week; 'skip' calls a time late after a minute.
    database.execute(
        """update pgcron.jobs set next_run_at = next_run_at - interval '7 days',
                  anchored_at = anchored_at - interval '8 days', fired_until = null, planned = true"""
    )
    database.execute(
        "update pgcron.jobs set planned = true, next_run_at = next_run_at - interval '7 days' where planned"
    )
    week_ago = database.value("select next_run_at from pgcron.jobs")
    start_worker(*LEASE)
    eventually(lambda: database.value("select next_run_at > now() from pgcron.jobs"), 20)
    eventually(lambda: finished(database) == made_up, 30)
    [(rows, count)] = database.rows("select count(*), sum(missed_count)::int from pgcron.runs where status = 'missed'")
    due = len(list(parse_schedule("30 * * * *", "Europe/Berlin").between(week_ago - TICK, _now(database))))
    assert (rows, count) == (1, due - made_up)


def test_an_edit_while_a_time_is_due_never_fires_the_past(database: Database, start_worker: StartWorker) -> None:
    add(database, "hourly", "0 * * * *")
    start_worker(*LEASE)
    eventually(lambda: database.value("select planned from pgcron.jobs"), 20)
    database.execute("update pgcron.settings set paused = true")
    database.execute("update pgcron.jobs set next_run_at = now() - interval '1 second'")
    database.execute("update pgcron.jobs set schedule = '59 23 31 12 *'")
    database.execute("update pgcron.settings set paused = false")
    eventually(lambda: database.value("select planned and next_run_at > now() from pgcron.jobs"), 20)
    assert database.value("select count(*) from pgcron.runs") == 0


def test_due_jobs_that_it_may_not_fire_do_not_keep_a_worker_asking(
    database: Database, start_worker: StartWorker
) -> None:
    database.execute(
        """insert into pgcron.jobs (name, schedule, timezone, kind, command, anchored_at)
           values ('slow', '@every 1s', 'UTC', 'shell', 'sleep 3', now() - interval '10 s')"""
    )
    looks = "select xact_commit from pg_stat_database where datname = current_database()"
    before = database.value(looks)
    # It fires once, and waits three seconds for the run while the job falls due again and again.
    assert start_worker(*LEASE, "--once").wait(30) == 0
    eventually(lambda: database.value(looks) > before, 20)
    assert database.value(looks) - before < 400


def _now(database: Database) -> datetime:
    now = database.value("select now()")
    assert isinstance(now, datetime)
    return now
