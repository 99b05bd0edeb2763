"""Thousands of jobs due in the same second, and locks of the application that look like ours."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

from tests.faults.stage import WORK, Stage

pytestmark = pytest.mark.faults

JOBS, WORKERS, SLOTS = 5000, 4, 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_five_thousand_jobs_of_one_second_run_once_each_without_an_error_in_the_servers_log(own_stage: Stage) -> None:
    stage = own_stage
    log = stage.database.server.log
    logged = log.stat().st_size
    workers = [stage.ready("--slots", str(SLOTS), lease="6s") for _ in range(WORKERS)]
    stage.database.execute(
        "insert into pgcron.jobs (name, kind, command, schedule, timezone, max_attempts) select 'job-' || n, 'sql', %s,"
        " to_char(now() + interval '6 s', '\"@at \"YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), 'UTC', 2"
        " from generate_series(1, %s) as n",
        [WORK, JOBS],
    )
    sessions: list[int] = []

    def all_have_run() -> bool:
        sessions.append(
            stage.database.value("select count(*) from pg_stat_activity where application_name like 'pgcron %%'")
        )
        return bool(
            stage.database.value(
                "select count(*) = %s from pgcron.runs where status not in ('queued', 'running')", [JOBS]
            )
        )

    stage.wait_for(all_have_run, "all have run", timeout=200)
    runs = stage.runs()
    assert Counter(run.status for run in runs) == {"succeeded": JOBS}
    assert len({(run.job, run.scheduled_for) for run in runs}) == JOBS
    # Its own three, one for each slot, and a cancel that is on its way.
    assert max(sessions) <= WORKERS * (SLOTS + 4)
    assert "ERROR" not in log.read_text(errors="replace")[logged:]
    for worker in workers:
        assert [event for event in worker.events() if event["level"] != "info"] == []
    stage.check()


def test_advisory_locks_of_the_application_are_in_nobodys_way(stage: Stage) -> None:
    with psycopg.connect(stage.database.dsn, autocommit=True) as application:
        application.execute("select pg_advisory_lock(n) from generate_series(1, 1000) as n")
        application.execute(
            "select pg_advisory_lock(a, b) from generate_series(0, 30) as a, generate_series(1, 30) as b"
        )
        worker = stage.ready()
        end = stage.database.value("select clock_timestamp() + '4 seconds'")
        for number in range(5):
            stage.add_sql(f"report-{number}", schedule="@every 1s", ends_at=end)
        stage.add_shell("backup", schedule="@every 1s", seconds=0.1, ends_at=end)
        stage.wait_quiet()
        assert {run.status for run in stage.runs()} == {"succeeded"}
        assert [event for event in worker.events() if event["level"] != "info"] == []
        stage.database.execute("select pg_stat_clear_snapshot()")
    stage.check()
