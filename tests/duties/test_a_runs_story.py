"""Fire, claim, finish and retry, stepped by hand through a whole morning that the tests set the clock for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import LiteralString

from pgcron_runner.model import Outcome, Status
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
        beaten = await stale.heartbeat.step(list, stopping=False)
        assert not beaten.alive
    assert [row[3] for row in story(database)] == ["lost", "queued"]


async def test_a_worker_that_beats_is_never_reaped(database: Database) -> None:
    async with staged(database.dsn) as one, staged(database.dsn) as other:
        database.execute("update pgcron.workers set lease = '1 microsecond' where id = %s", (one.id,))
        await other.reap.step()
        assert (await one.heartbeat.step(list, stopping=False)).alive
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
        beaten = await worker.heartbeat.step(lambda: worker.in_hand, stopping=False, search=True)
        assert beaten.given_back == {task.run_id}
    assert database.rows("select status, worker_id, started_at, lane from pgcron.runs") == [
        ("queued", None, None, None)
    ]


async def test_a_run_that_its_own_transaction_recorded_is_not_taken_for_lost(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        database.execute("update pgcron.runs set status = 'succeeded', finished_at = now()")
        beaten = await worker.heartbeat.step(lambda: [task.run_id], stopping=False)
        assert beaten.taken == frozenset()


async def test_a_cancelled_run_is_told_at_the_next_beat(database: Database) -> None:
    add_job(database, "hourly", schedule="0 * * * *", anchored_at=later(minutes=-30))
    async with staged(database.dsn) as worker:
        await worker.fire.step(now=NINE)
        [task] = await worker.take(now=NINE)
        database.execute("update pgcron.runs set cancel_requested_at = now()")
        beaten = await worker.heartbeat.step(lambda: [task.run_id], stopping=False)
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
