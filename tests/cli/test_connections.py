"""Other databases are named when a worker is started; what leads to them is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgcron_runner.cli.connections import parse_connections
from pgcron_runner.errors import InvalidInput
from pgcron_runner.settings import WorkerSettings
from tests.support.databases import Database, new_database
from tests.support.waiting import eventually
from tests.support.workers import WorkerProcess

SECRET = "hush-hush"
DSN = f"postgresql://reader:{SECRET}@db/reporting"


def test_a_connection_is_given_by_itself_or_by_the_name_of_a_variable() -> None:
    environ = {"REPORTING_DSN": DSN, "OTHER": "x"}
    assert parse_connections([f"a={DSN}", "b=env:REPORTING_DSN", "c=host=x dbname=y"], environ) == {
        "a": DSN,
        "b": DSN,
        "c": "host=x dbname=y",
    }


def test_the_environment_names_connections_too_and_an_option_wins() -> None:
    environ = {"PGCRON_CONNECTION_WARE_HOUSE": DSN, "PGCRON_CONNECTION_B": "env:B", "B": "host=b", "PGCRON_DSN": "x"}
    assert parse_connections([], environ) == {"ware_house": DSN, "b": "host=b"}
    assert parse_connections(["b=host=c"], environ) == {"ware_house": DSN, "b": "host=c"}
    assert parse_connections([], {"PGCRON_CONNECTION_B": ""}) == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["reporting"], "is not NAME=DSN or NAME=env:VARIABLE"),
        (["reporting="], "is not NAME=DSN or NAME=env:VARIABLE"),
        ([DSN], "is not NAME=DSN or NAME=env:VARIABLE"),
        ([f"{DSN}?sslmode=require"], "is not the name of a connection"),
        (["Reporting=host=x"], "is not the name of a connection"),
        (["=host=x"], "is not the name of a connection"),
        (["a=host=x", "a=host=y"], "is given twice"),
        (["a=env:MISSING"], "names the variable MISSING, which is not set"),
        (["a=env:"], "names no variable"),
    ],
)
def test_a_wrong_one_is_told_without_its_secret(given: list[str], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_connections(given, {})
    assert problem in str(caught.value)
    assert "For example: --connection reporting=env:REPORTING_DSN" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_settings_do_not_show_them() -> None:
    assert SECRET not in repr(WorkerSettings(connections={"a": DSN}))


def test_what_is_no_connection_string_stops_the_worker_at_its_start(database: Database, tmp_path: Path) -> None:
    with WorkerProcess(database.dsn, "--connection", f"reporting=wrong {SECRET}", folder=tmp_path) as worker:
        assert worker.wait() == 2
    assert "connection reporting: '(not shown)' is not a connection string" in worker.log()
    assert SECRET not in worker.log()


def test_a_worker_runs_jobs_on_another_database_and_tells_nobody_how_it_gets_there(
    database: Database, tmp_path: Path
) -> None:
    with new_database(database.server) as there:
        there.execute("create table work (run bigint)")
        command = "insert into work values (current_setting('pgcron.run_id')::bigint) returning current_database()"
        for name, connection in (("good", "reporting"), ("unknown", "nowhere"), ("wrong", "broken")):
            database.execute(
                "insert into pgcron.jobs (name, schedule, timezone, kind, command, args)"
                " values (%s, '@manual', 'UTC', 'sql', %s, jsonb_build_object('connection', %s::text))",
                (name, command, connection),
            )
            database.execute(
                "insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)"
                " select id, name, kind, 'manual', now(), now(), 1 from pgcron.jobs where name = %s",
                (name,),
            )
        broken = f"host=127.0.0.1 port={database.server.port} dbname=nowhere user=nobody password={SECRET}"
        env = {"REPORTING": there.dsn, "PGCRON_CONNECTION_BROKEN": broken}
        arguments = ("--connection", "reporting=env:REPORTING", "--log-level", "debug")
        with WorkerProcess(database.dsn, *arguments, folder=tmp_path, env=env) as worker:
            eventually(
                lambda: database.value("select count(*) from pgcron.runs where finished_at is not null") == 3, 30
            )
        found = database.rows("select job_name, status, result ->> 'value', error from pgcron.runs order by job_name")
        assert there.value("select run from work") == database.value(
            "select id from pgcron.runs where job_name = 'good'"
        )
    assert [row[:3] for row in found] == [
        ("good", "succeeded", there.name),
        ("unknown", "failed", None),
        ("wrong", "failed", None),
    ]
    assert "it knows: broken, reporting;" in found[1][3]
    assert found[2][3].startswith("launch failed: connection broken: Postgres refuses")
    said = worker.log() + str(database.rows("select * from pgcron.runs"))
    assert SECRET not in said
    assert there.dsn not in said
