"""Workers behind a real PgBouncer: one that lends sessions is refused in words, one that keeps them apart will do."""

from __future__ import annotations

from collections import Counter

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose, poolers, session_settings
from pgcron_runner.errors import DatabaseUnavailable
from tests.faults.stage import Stage
from tests.support.pooler import Mode, needs_pgbouncer, pgbouncer

pytestmark = [pytest.mark.faults, needs_pgbouncer]

ADVISORY = "select count(*) from pg_locks where locktype = 'advisory'"


@pytest.mark.parametrize("forgets_settings", [True, False])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_lends_sessions_is_refused_before_anything_starts(
    mode: Mode, forgets_settings: bool, stage: Stage
) -> None:
    for number in range(20):
        stage.add_sql(f"job-{number}", schedule="@every 1s")
    with pgbouncer(stage.database, mode, forgets_settings=forgets_settings) as dsn:
        workers = [stage.start(dsn=dsn) for _ in range(2)]
        assert [worker.wait() for worker in workers] == [1, 1]
    for worker in workers:
        assert "Error: A connection pooler in transaction or statement mode is in between" in worker.log()
        assert "pool_mode=session" in worker.log()
    assert stage.database.value("select count(*) from pgcron.runs") == 0
    assert stage.database.value("select count(*) from pgcron.workers") == 0
    assert stage.database.value(ADVISORY) == 0


@pytest.mark.slow
@pytest.mark.parametrize("forgets_settings", [True, False])
def test_two_workers_behind_a_pool_of_sessions_start_each_time_once(forgets_settings: bool, stage: Stage) -> None:
    end = stage.database.value("select clock_timestamp() + '10 seconds'")
    for number in range(20):
        stage.add_sql(f"job-{number}", schedule="@every 1s", ends_at=end)
    with pgbouncer(stage.database, "session", forgets_settings=forgets_settings, size=60) as dsn:
        workers = [stage.ready(dsn=dsn) for _ in range(2)]
        stage.wait_quiet()
        for worker in workers:
            worker.terminate()
        assert [worker.wait() for worker in workers] == [0, 0]
        history = stage.check()
    started = Counter((run.job, run.scheduled_for) for run in history.runs if run.started_at)
    assert set(started.values()) == {1}
    assert len(started) >= 100
    assert {run.worker_id for run in history.runs if run.started_at} == {worker.ids[0] for worker in workers}
    assert stage.database.value(ADVISORY) == 0


def test_behind_a_pool_of_sessions_runs_can_be_cancelled_and_are_taken_over(stage: Stage) -> None:
    stage.add_sql("report", seconds=300)
    stage.add_shell("backup")
    with pgbouncer(stage.database, "session") as dsn:
        first = stage.ready(dsn=dsn)
        report, backup = stage.run_now("report"), stage.run_now("backup")
        stage.wait_begun("backup", backup)
        at_work = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%' and state = 'active'"
        stage.wait_for(lambda: stage.database.value(at_work), "the report is at work")
        stage.database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", (report,))
        stage.wait_status(report, "cancelled")
        stage.wait_for(lambda: not stage.database.value(at_work), "and the server has given it up")
        second = stage.ready(dsn=dsn)
        first.kill()
        stage.wait_status(backup, "lost")
        stage.open_gate("backup")
        assert stage.wait_attempt("backup", 2, "succeeded").worker_id == second.ids[0]
        second.terminate()
        assert second.wait() == 0
        stage.check(unrecorded=True)


@pytest.mark.parametrize("forgets_settings", [True, False])
@pytest.mark.parametrize("purpose", Purpose)
async def test_a_session_behind_a_pooler_has_its_settings_and_knows_its_own_number(
    purpose: Purpose, forgets_settings: bool, stage: Stage
) -> None:
    with pgbouncer(stage.database, "session", forgets_settings=forgets_settings) as dsn:
        database = sessions.Database(dsn)
        connection = await database.connect(purpose)
        direct = await sessions.Database(stage.database.tcp_dsn).connect(purpose)
        for name in session_settings(purpose, database.lease):
            shown = "select current_setting(%s)"
            here, there = [await (await c.execute(shown, [name])).fetchone() for c in (connection, direct)]
            assert here == there, name
        pid = await (await connection.execute("select pg_backend_pid()")).fetchone()
        assert pid == (connection.server_pid,)
        await connection.close()
        await direct.close()


async def test_a_pool_that_is_too_small_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poolers, "_PATIENCE", 0.5)
    told = pytest.raises(DatabaseUnavailable, match=r"has no second session to give.*default_pool_size")
    with pgbouncer(stage.database, "session", size=1) as dsn, told:
        await sessions.Database(dsn).connect(Purpose.CONTROL)
