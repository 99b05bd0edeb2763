"""Fire, claim, finish and retry, stepped by hand through a whole morning that the tests set the clock for."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import LiteralString

import pytest

from pgcron_runner.model import Outcome, Overlap, Status
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.store import jobs
from tests.duties.stage import staged
from tests.statements.builders import add_job
from tests.support.databases import Database

NINE = datetime(2035, 3, 14, 9, tzinfo=UTC)
HELD: LiteralString = """select count(*) from pg_locks where locktype = 'advisory'
    and database = (select oid from pg_database where datname = current_database())"""


def story(database: Database) -> list[tuple[object, ...]]:
    return database.rows(
        "select scheduled_for, attempt, trigger, status from pgcron.runs order by scheduled_for, attempt, id"
    )


def later(**duration: float) -> datetime:
    return NINE + timedelta(**duration)


async def test_an_occurrence_is_fired_claimed_and_finished(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        fired = await worker.fire.step(now=later(minutes=-30))
        assert fired.jobs == 1
        assert story(database) == []
        assert database.value("select next_run_at from pgcron.jobs") == NINE
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        assert (task.job_name, task.scheduled_for, task.attempt, task.exclusive) == ("hourly", NINE, 1, True)
        assert await worker.end(task, Outcome(Status.SUCCEEDED, result={"rows": 3}), now=later(seconds=2))
    assert story(database) == [(NINE, 1, "schedule", "succeeded")]
    assert database.rows("select started_at, finished_at, result, lane from pgcron.runs") == [
        (NINE, later(seconds=2), {"rows": 3}, 1)
    ]
    assert database.value("select next_run_at from pgcron.jobs") == later(hours=1)


async def test_firing_twice_at_the_same_time_makes_one_run(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as one, staged(database.dsn) as other:
        for worker in (one, other, one):
            await worker.fire.step(now=NINE)
    assert story(database) == [(NINE, 1, "schedule", "queued")]


async def test_a_failed_attempt_is_tried_again_after_its_pause_until_none_is_left(database: Database) -> None:
    add_job(
        database, "flaky", schedule="0 9 * * *", anchored_at=later(hours=-1), max_attempts=2, retry_delay="10 minutes"
    )
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [first] = await worker.take(now=NINE)
        await worker.end(first, Outcome(Status.FAILED, exit_code=3, error="exited with code 3"), now=NINE)
        assert await worker.take(now=later(minutes=9)) == []
        [second] = await worker.take(now=later(minutes=12))
        assert (second.scheduled_for, second.attempt) == (NINE, 2)
        await worker.end(second, Outcome(Status.FAILED, exit_code=3), now=later(minutes=12))
        assert await worker.take(now=later(days=1)) == []
    assert story(database) == [(NINE, 1, "schedule", "failed"), (NINE, 2, "retry", "failed")]
    [(parent, first_id)] = database.rows(
        "select r.parent_run_id, f.id from pgcron.runs r join pgcron.runs f on f.attempt = 1 where r.attempt = 2"
    )
    assert parent == first_id


async def test_an_occurrence_that_meets_a_running_run_is_skipped_and_says_so(database: Database) -> None:
    add_job(database, "slow", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        await worker.fire.step(now=later(hours=1))
        assert await worker.take(now=later(hours=1)) == []
        await worker.end(task, Outcome(Status.SUCCEEDED), now=later(hours=1, minutes=5))
        await worker.fire.step(now=later(hours=2))
        assert len(await worker.take(now=later(hours=2))) == 1
    assert [row[3] for row in story(database)] == ["succeeded", "skipped", "running"]
    assert database.value("select reason from pgcron.runs where status = 'skipped'") == (
        f"overlap: run {task.run_id} is still running"
    )


async def test_a_job_that_allows_overlap_runs_beside_itself_up_to_its_limit(database: Database) -> None:
    add_job(database, "wide", schedule="0 * * * *", anchored_at=later(minutes=-30), overlap="allow", max_running=2)
    async with staged(database.dsn) as worker:
        for hour in range(3):
            await worker.fire.step(now=later(hours=hour))
            await worker.take(now=later(hours=hour))
        assert [row[3] for row in story(database)] == ["running", "running", "queued"]
        assert sorted(row[0] for row in database.rows("select lane from pgcron.runs where lane is not null")) == [1, 2]
        await worker.end(next(iter(worker.in_hand.values())), Outcome(Status.SUCCEEDED), now=later(hours=3))
        assert len(await worker.take(now=later(hours=3))) == 1


async def test_after_downtime_the_latest_runs_and_the_rest_is_one_row(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=later(minutes=-30))
        await worker.fire.step(now=later(hours=5, minutes=1))
    assert database.rows(
        "select scheduled_for, missed_until, missed_count, status from pgcron.runs order by scheduled_for"
    ) == [(NINE, later(hours=4), 5, "missed"), (later(hours=5), None, None, "queued")]


async def test_a_bad_row_is_marked_and_stops_nobody_else(database: Database) -> None:
    add_job(database, "bad", schedule="61 * * * *", anchored_at=later(hours=-1))
    add_job(database, "bad zone", timezone="Us/Pacific", anchored_at=later(hours=-1))
    add_job(database, "good", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        assert [task.job_name for task in await worker.take(now=NINE)] == ["good"]
    problems = dict(database.rows("select name, problem from pgcron.jobs where problem is not null"))
    assert problems.keys() == {"bad", "bad zone"}
    assert "61" in problems["bad"]
    assert "US/Pacific" in problems["bad zone"]


async def test_mending_a_bad_row_brings_it_back(database: Database) -> None:
    add_job(database, "bad", schedule="61 * * * *")
    async with staged(database.dsn) as worker:
        await worker.fire.step()
        database.execute("update pgcron.jobs set schedule = '1 * * * *'")
        await worker.fire.step()
    assert database.rows("select problem, planned, next_run_at > now() from pgcron.jobs") == [(None, True, True)]


async def test_a_stale_worker_cannot_finish_a_reaped_run(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30), max_attempts=2, retry_delay="0")
    async with staged(database.dsn) as stale, staged(database.dsn) as other:
        await stale.fire.step(now=NINE)
        [task] = await stale.take(now=NINE)
        database.execute("update pgcron.workers set lease = '1 microsecond' where id = %s", (stale.id,))
        await other.reap.step()
        assert await other.reap.step() == 1
        assert not await stale.end(task, Outcome(Status.SUCCEEDED))
        beaten = await stale.beat(list)
        assert not beaten.alive
    assert [row[3] for row in story(database)] == ["lost", "queued"]


async def test_a_worker_that_beats_is_never_reaped(database: Database) -> None:
    async with staged(database.dsn) as one, staged(database.dsn) as other:
        database.execute("update pgcron.workers set lease = '1 microsecond' where id = %s", (one.id,))
        await other.reap.step()
        assert (await one.beat(list)).alive
        await other.reap.step()
        assert database.value("select ended_at from pgcron.workers where id = %s", (one.id,)) is None


async def test_runs_of_a_worker_whose_row_was_deleted_are_closed(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as gone, staged(database.dsn, lease=1.0) as other:
        await gone.fire.step(now=NINE)
        await gone.take(now=NINE)
        database.execute("delete from pgcron.workers where id = %s", (gone.id,))
        reaped = 0
        while not reaped:
            reaped = await other.reap.step()
    assert [row[3] for row in story(database)] == ["lost"]


async def test_a_claim_without_an_answer_is_given_back(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        worker.in_hand.clear()  # the answer was lost
        beaten = await worker.beat(lambda: worker.in_hand, search_until=math.inf)
        assert beaten.given_back == {task.run_id}
    assert database.rows("select status, worker_id, started_at, lane from pgcron.runs") == [
        ("queued", None, None, None)
    ]


async def test_after_a_failover_a_run_that_nobody_has_in_hand_is_lost_and_not_begun_again(database: Database) -> None:
    for job, attempts in (("once", 1), ("twice", 2)):
        add_job(database, job, schedule="0 * * * *", anchored_at=later(minutes=-30), max_attempts=attempts)
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        begun = {task.run_id for task in await worker.take(now=NINE)}
        worker.in_hand.clear()  # their ends were recorded by a server that is no more
        beaten = await worker.beat(lambda: worker.in_hand, search_until=math.inf, doubt_until=math.inf)
        assert beaten.given_back == set()
        assert beaten.lost == begun
    assert database.rows("select job_name, attempt, status from pgcron.runs order by job_name, attempt") == [
        ("once", 1, "lost"),
        ("twice", 1, "lost"),
        ("twice", 2, "queued"),
    ]


async def test_a_run_that_its_own_transaction_recorded_is_not_taken_for_lost(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        database.execute("update pgcron.runs set status = 'succeeded', finished_at = now()")
        beaten = await worker.beat(lambda: [task.run_id])
        assert beaten.taken == frozenset()


async def test_a_cancelled_run_is_told_at_the_next_beat(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        database.execute("update pgcron.runs set cancel_requested_at = now()")
        beaten = await worker.beat(lambda: [task.run_id])
        assert beaten.cancelled == {task.run_id}


async def test_the_locks_of_finished_runs_are_free_again(database: Database) -> None:
    for number in range(5):
        add_job(database, f"job-{number}", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        tasks = await worker.take(now=NINE)
        assert database.value(HELD) == len(tasks) == 5
        for task in tasks:
            await worker.end(task, Outcome(Status.SUCCEEDED))
        assert database.value(HELD) == 0


async def test_locks_that_no_run_in_hand_accounts_for_are_given_back(database: Database) -> None:
    for number in range(3):
        add_job(database, f"job-{number}", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [kept, *dropped] = await worker.take(now=NINE)
        for task in dropped:
            del worker.in_hand[task.run_id]
        async with worker.control.use() as connection:
            assert await worker.claim.release_strays(connection) == 1
        assert database.value(HELD) == 1
        assert worker.in_hand.keys() == {kept.run_id}


async def test_old_history_goes_in_batches_and_the_last_run_stays(database: Database) -> None:
    job_id = add_job(database, "hourly", keep_for="7 days")
    database.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, finished_at)
           select %s, 'hourly', 'sql', 'schedule', t, t, 'succeeded', t
             from generate_series(%s::timestamptz - interval '400 hours', %s, interval '1 hour') t""",
        (job_id, NINE, NINE),
    )
    week_ago = "select count(*) from pgcron.runs where scheduled_for < %s - interval '7 days'"
    async with staged(database.dsn) as worker:
        assert await worker.prune.step(now=NINE) == 200
        assert database.value(week_ago, (NINE,)) == 32
        # The second step begins again with the first job.
        await worker.prune.step(now=NINE)
        await worker.prune.step(now=NINE)
        assert database.value(week_ago, (NINE,)) == 0
        for _ in range(3):
            await worker.prune.step(now=later(days=900))
    assert story(database) == [(NINE, 1, "schedule", "succeeded")]


async def test_history_of_failures_only_drops_what_went_well(database: Database) -> None:
    job_id = add_job(database, "busy", history="failures")
    database.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, finished_at)
           select %s, 'busy', 'sql', 'schedule', t, t,
                  case when extract(minute from t) = 0 then 'failed' else 'succeeded' end, t
             from generate_series(%s::timestamptz - interval '3 hours', %s - interval '61 min', interval '1 min') t""",
        (job_id, NINE, NINE),
    )
    async with staged(database.dsn) as worker:
        await worker.prune.step(now=NINE)
    statuses = [row[3] for row in story(database)]
    assert statuses == ["failed", "failed", "succeeded"]


async def test_what_deleted_jobs_left_goes_as_well(database: Database) -> None:
    job_id = add_job(database, "gone")
    database.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, finished_at)
           values (%s, 'gone', 'sql', 'schedule', %s, %s, 'failed', %s)""",
        (job_id, NINE, NINE, NINE),
    )
    database.execute("delete from pgcron.jobs")
    async with staged(database.dsn) as worker:
        assert await worker.prune.step(now=later(days=29)) == 0
        assert await worker.prune.step(now=later(days=31)) == 1


async def test_a_run_that_waited_too_long_for_a_slot_is_missed(database: Database) -> None:
    add_job(database, "patient", schedule="0 9 * * *", anchored_at=later(hours=-1))
    add_job(database, "urgent", schedule="0 9 * * *", anchored_at=later(hours=-1), catch_up_window="5 minutes")
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        assert await worker.tidy.step(now=later(minutes=5)) == 0
        assert [task.job_name for task in await worker.take(now=later(minutes=6))] == ["patient"]
        assert await worker.tidy.step(now=later(minutes=6)) == 1
    assert database.rows("select job_name, status, missed_count, missed_until from pgcron.runs order by job_name") == [
        ("patient", "running", None, None),
        ("urgent", "missed", 1, NINE),
    ]


async def test_newer_zone_data_has_its_jobs_planned_anew_without_a_double(database: Database) -> None:
    add_job(database, "daily", schedule="0 9 * * *", timezone="Europe/Berlin", anchored_at=later(hours=-2))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        before = database.rows("select next_run_at, zone_data = %s from pgcron.jobs", (zone_data_version(),))
        database.execute("update pgcron.jobs set zone_data = '2001a', next_run_at = next_run_at + interval '1 hour'")
        assert await worker.tidy.step(now=NINE) == 1
        await worker.fire.step(now=NINE)
        assert database.rows("select next_run_at, zone_data = %s from pgcron.jobs", (zone_data_version(),)) == before
        assert await worker.tidy.step(now=NINE) == 0
    assert [row[3] for row in story(database)] == ["queued"]


async def test_older_zone_data_fires_nothing_that_a_living_newer_one_has_planned(database: Database) -> None:
    add_job(database, "daily", schedule="0 9 * * *", timezone="Europe/Berlin", anchored_at=later(hours=-2))
    row = "select next_run_at, zone_data from pgcron.jobs"
    eight, tomorrow = later(hours=-1), later(hours=23)
    async with staged(database.dsn, zone_data="2025a") as older:
        await older.fire.step(now=later(hours=-2))
        assert database.rows(row) == [(eight, "2025a")]
        async with staged(database.dsn, zone_data="2026b") as newer:
            assert await newer.tidy.step(now=later(minutes=-90)) == 1
            assert (await older.fire.step(now=later(minutes=-90))).jobs == 0
            assert (await newer.fire.step(now=later(minutes=-90))).jobs == 1
            assert database.rows(row) == [(eight, "2026b")]
            for worker in (older, newer, older):
                await worker.fire.step(now=eight)
            assert database.rows(row) == [(tomorrow, "2026b")]
            # It drains: from now on nobody else is there to do it.
            database.execute("update pgcron.workers set stopping = true where id = %s", (newer.id,))
        await older.fire.step(now=tomorrow)
        assert database.rows(row) == [(tomorrow + timedelta(days=1), "2025a")]
    assert story(database) == [(eight, 1, "schedule", "queued"), (tomorrow, 1, "schedule", "skipped")]


async def test_newer_zone_data_leaves_a_pause_after_the_end_as_it_is(database: Database) -> None:
    add_job(database, "steady", schedule="@every 10m after finish", anchored_at=NINE)
    async with staged(database.dsn, zone_data="2025a") as older:
        await older.fire.step(now=NINE)
    async with staged(database.dsn, zone_data="2026b") as newer:
        assert await newer.tidy.step(now=later(minutes=9)) == 0
        await newer.fire.step(now=later(minutes=10))
    assert [row[0] for row in story(database)] == [later(minutes=10)]


async def test_a_worker_with_older_zone_data_leaves_newer_times_alone(database: Database) -> None:
    add_job(database, "daily", schedule="0 9 * * *", anchored_at=later(hours=-2))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=later(hours=-2))
        database.execute("update pgcron.jobs set zone_data = '2999z', next_run_at = next_run_at + interval '1 hour'")
        assert await worker.tidy.step(now=later(hours=-2)) == 0
    assert database.value("select next_run_at from pgcron.jobs") == later(hours=1)


async def test_a_backfill_fills_in_what_was_missed_once(database: Database) -> None:
    job_id = add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=later(minutes=-30))
        await worker.fire.step(now=later(hours=3, minutes=1))
        times = [later(hours=hour) for hour in range(3)]
        async with worker.record.use() as connection:
            made = [
                await jobs.insert_backfill(connection, job_id, times, overlap=Overlap.QUEUE_ALL, now=later(hours=4))
                for _ in range(2)
            ]
        assert made == [3, 0]
        begun = []
        while tasks := await worker.take(now=later(hours=4)):
            begun += [task.scheduled_for for task in tasks]
            assert len(tasks) == 1
            await worker.end(tasks[0], Outcome(Status.SUCCEEDED))
    assert sorted(begun) == [*times, later(hours=3)]
    assert database.value("select count(*) from pgcron.runs where backfill and trigger = 'backfill'") == 3


async def test_a_backfill_that_allows_overlap_runs_side_by_side(database: Database) -> None:
    job_id = add_job(database, "hourly", schedule="0 * * * *")
    async with staged(database.dsn) as worker:
        async with worker.record.use() as connection:
            await jobs.insert_backfill(
                connection, job_id, [later(hours=-h) for h in range(3)], overlap=Overlap.ALLOW, now=NINE
            )
        assert len(await worker.take(now=NINE)) == 3


async def test_an_excluded_day_is_skipped_with_its_calendars_name(database: Database) -> None:
    database.execute("insert into pgcron.calendars (name) values ('holidays')")
    database.execute("insert into pgcron.calendar_days values ('holidays', '2035-03-14', '2035-03-15', 'Pi')")
    add_job(database, "daily", schedule="0 9 * * *", anchored_at=later(hours=-2), exclude=["holidays"])
    async with staged(database.dsn) as worker:
        for day in range(3):
            await worker.fire.step(now=later(days=day))
    assert [(row[0], row[3]) for row in story(database)] == [
        (NINE, "skipped"),
        (later(days=1), "skipped"),
        (later(days=2), "queued"),
    ]
    assert set(database.rows("select reason from pgcron.runs where status = 'skipped'")) == {("calendar holidays: Pi",)}


@pytest.mark.parametrize(("catch_up", "missed", "queued"), [("skip", 168, 0), ("latest", 167, 1), ("all", 68, 100)])
async def test_a_week_of_outage_leaves_exactly_what_the_policy_says(
    database: Database, catch_up: str, missed: int, queued: int
) -> None:
    add_job(
        database, "hourly", schedule="30 * * * *", anchored_at=later(minutes=-1), catch_up=catch_up, overlap="queue_all"
    )
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        await worker.fire.step(now=later(days=7))
        await worker.fire.step(now=later(days=7, minutes=1))
    counts = dict(database.rows("select status, sum(coalesce(missed_count, 1))::int from pgcron.runs group by status"))
    assert counts == {status: count for status, count in (("missed", missed), ("queued", queued)) if count}
    assert database.value("select count(*) from pgcron.runs where status = 'missed'") == 1
    assert database.value("select next_run_at from pgcron.jobs") == later(days=7, minutes=30)


async def test_twenty_rolling_restarts_across_minute_borders_lose_and_double_nothing(database: Database) -> None:
    add_job(database, "minutely", schedule="* * * * *", anchored_at=later(seconds=-1), overlap="queue_all")
    for minute in range(20):
        # The old worker goes two seconds before the border, the next one comes a second after it.
        async with staged(database.dsn) as worker:
            await worker.fire.step(now=later(minutes=minute, seconds=1))
            for task in await worker.take(now=later(minutes=minute, seconds=1)):
                await worker.end(task, Outcome(Status.SUCCEEDED), now=later(minutes=minute, seconds=58))
    assert story(database) == [(later(minutes=minute), 1, "schedule", "succeeded") for minute in range(20)]


async def test_an_edit_while_a_slot_is_due_never_fires_the_past(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *")
    async with staged(database.dsn) as worker:
        await worker.fire.step()
        database.execute("update pgcron.jobs set next_run_at = now() - interval '1 minute'")
        database.execute("update pgcron.jobs set schedule = '30 * * * *'")
        await worker.fire.step()
    assert story(database) == []
    assert database.value("select planned and next_run_at > now() from pgcron.jobs")


@pytest.mark.parametrize("catches_up", [False, True])
async def test_a_resume_does_not_catch_up_unless_it_says_so(database: Database, catches_up: bool) -> None:
    add_job(database, "often", schedule="@every 1s")
    async with staged(database.dsn) as worker:
        await worker.fire.step()
        database.execute("update pgcron.jobs set enabled = false")
        database.execute("update pgcron.jobs set anchored_at = anchored_at - interval '1 hour', fired_until = null")
        if catches_up:
            database.execute(
                "update pgcron.jobs set enabled = true, anchored_at = anchored_at + interval '1 microsecond'"
            )
        else:
            database.execute("update pgcron.jobs set enabled = true")
        await worker.fire.step()
    missed = database.value("select coalesce(sum(missed_count), 0) from pgcron.runs")
    assert (missed > 3500) is catches_up


async def test_a_pause_after_the_end_is_kept_however_long_a_run_takes(database: Database) -> None:
    add_job(database, "steady", schedule="@every 10m after finish", anchored_at=later(minutes=-10))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=later(minutes=-10))
        for begins, ends in ((0, 25), (35, 36), (46, 47)):
            for minute in range(begins - 10, begins + 1):
                await worker.fire.step(now=later(minutes=minute))
            [task] = await worker.take(now=later(minutes=begins))
            for minute in range(begins, ends):
                await worker.fire.step(now=later(minutes=minute))
            await worker.end(task, Outcome(Status.SUCCEEDED), now=later(minutes=ends))
    assert [row[0] for row in story(database)] == [later(minutes=m) for m in (0, 35, 46)]
