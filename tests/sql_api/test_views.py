"""The views: how each job is doing, and what it did; and that they read little of a long history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgcron_runner.embedded import Server
from pgcron_runner.statements import migrations, query
from tests.statements.builders import NOW, add_job, add_planned_job, minutes
from tests.statements.test_explain import fill
from tests.support.databases import Database, new_database

_SECOND = timedelta(seconds=1)


def ended(database: Database, job_id: int, status: str, *, ago: int, took: int = 1) -> None:
    """A run of so many minutes ago that took so many seconds."""
    start = NOW - minutes(ago)
    database.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, started_at,
                                    finished_at, error)
           values (%s, 'job', 'sql', 'schedule', %s, %s, %s, %s, %s, case when %s = 'failed' then 'it broke' end)""",
        (job_id, start, start, status, start + _SECOND, start + (1 + took) * _SECOND, status),
    )


def status_of(database: Database, columns: str) -> tuple[Any, ...]:
    [row] = database.rows(f"select {columns} from pgcron.job_status")
    return row


def test_a_job_that_has_not_run_is_new(database: Database) -> None:
    add_planned_job(database)
    columns = "state, last_status, next_run_at, recent_runs, success_rate, failures_in_row, queued"
    assert status_of(database, columns) == ("new", None, NOW, 0, None, 0, 0)


def test_figures_are_over_what_was_tried(database: Database) -> None:
    job_id = add_planned_job(database)
    for n in range(1, 10):
        ended(database, job_id, "succeeded", ago=n + 1, took=n)
    ended(database, job_id, "failed", ago=1, took=100)
    ended(database, job_id, "cancelled", ago=20)
    columns = "recent_runs, success_rate, p50_duration, last_status, last_error"
    assert status_of(database, columns) == (10, 0.9, 5 * _SECOND, "failed", "it broke")


def test_a_job_with_an_open_incident_is_failing(database: Database) -> None:
    job_id = add_planned_job(database)
    database.execute(
        """insert into pgcron.incidents (job_id, job_name, kind, event, failures)
           values (%s, 'job', 'failing', 'failed', 3)""",
        (job_id,),
    )
    assert status_of(database, "state, failures_in_row") == ("failing", 3)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("enabled = false", "disabled"),
        ("paused_until = now() + interval '1 h'", "paused"),
        ("problem = 'x'", "problem"),
    ],
)
def test_the_state_is_one_word(change: str, state: str, database: Database) -> None:
    add_planned_job(database)
    database.execute(f"update pgcron.jobs set {change}")
    assert status_of(database, "state") == (state,)


def test_history_tells_how_long_a_run_waited_and_took(database: Database) -> None:
    ended(database, add_job(database), "succeeded", ago=5, took=7)
    assert database.rows("select job_name, status, waited, duration from pgcron.run_history") == [
        ("job", "succeeded", _SECOND, 7 * _SECOND)
    ]


def test_before_postgres_15_whoever_is_under_row_security_sees_nothing(database: Database) -> None:
    """The branch of the migration for servers whose views cannot be told to look with the caller's eyes."""
    text = next(migration.text for migration in migrations() if migration.name == "sql_api")
    branch = text[text.rindex("do $$") :].replace(">= 150000", ">= 999999")
    database.execute("alter view pgcron.job_status reset (security_invoker)")
    database.execute(branch)
    add_job(database)
    assert database.value("select count(*) from pgcron.job_status") == 1
    database.execute("grant usage on schema pgcron to worker")
    database.execute("grant select on pgcron.job_status to worker")
    database.execute("alter table pgcron.jobs enable row level security")
    database.execute("grant select on pgcron.jobs to worker")
    database.execute("set role worker")
    assert database.value("select count(*) from pgcron.job_status") == 0
    database.execute("reset role")


# ------------------------------------------------------------------------------------------- EXPLAIN guards


@pytest.fixture(scope="module")
def big(server: Server, migrated_template: str) -> Any:
    with new_database(server, template=migrated_template) as database:
        fill(database, jobs=1_000, history=100_000, later=1_000)
        database.execute("vacuum (analyze) pgcron.jobs, pgcron.runs, pgcron.workers, pgcron.incidents")
        yield database


def pages(database: Database, statement: str) -> int:
    [(plan,)] = database.rows(f"explain (analyze, buffers, format json) {statement}")
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


@pytest.mark.parametrize(
    "statement",
    [
        "select * from pgcron.job_status where job_id = 700",
        "select * from pgcron.job_status where name = 'job-700'",
        "select * from pgcron.run_history where job_id = 700 order by scheduled_for desc limit 20",
        "select * from pgcron.run_history order by run_id desc limit 50",
    ],
)
def test_one_job_and_one_screen_cost_a_few_pages_of_a_long_history(statement: str, big: Database) -> None:
    assert pages(big, statement) < 400


def test_all_jobs_cost_their_last_hundred_runs_each(big: Database) -> None:
    assert pages(big, "select * from pgcron.job_status") < 1_000 * 150


def test_the_figures_of_a_review_cost_the_last_hundred_runs_of_each_job(big: Database) -> None:
    assert pages(big, query("list_check_figures").decode()) < 1_000 * 150
