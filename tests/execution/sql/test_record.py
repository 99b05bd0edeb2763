"""The work of a SQL job and its record are one: what is kept of it, in whatever encoding."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.embedded import Server
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.migrate import migrate_database
from pgcron_runner.model import Status
from tests.execution.sql.stage import (
    DONE,
    WORK,
    work,
)
from tests.execution.tasks import (
    claimed_task,
    text_of,
    value_of,
)
from tests.statements.builders import WORKER
from tests.support.databases import Database, drop_database


async def test_the_work_and_succeeded_are_one_transaction(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, "insert into work values (1); insert into work values (2)")
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.recorded) == (Status.SUCCEEDED, True)
    [(status, finished, result, output)] = database.rows(
        "select status, finished_at is not null, result, output from pgcron.runs where id = %s", (task.run_id,)
    )
    assert (status, finished, output) == ("succeeded", True, "INSERT 0 1\nINSERT 0 1\n")
    assert result == outcome.result
    transactions = database.rows("select xmin from work union select xmin from pgcron.runs where status = 'succeeded'")
    assert len(transactions) == 1


async def test_every_statement_is_counted(database: Database, runner: SqlRunner) -> None:
    command = "insert into work select generate_series(1, 3); update work set n = 9 where n > 1; create table t ()"
    outcome = await runner.run(claimed_task(database, command), Stop(), Live())
    assert outcome.result == {
        "value": None,
        "statements": [
            {"command": "INSERT 0 3", "rows": 3},
            {"command": "UPDATE 2", "rows": 2},
            {"command": "CREATE TABLE", "rows": None},
        ],
    }


async def test_of_many_statements_the_first_hundred_are_listed(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, "select 1;" * 120), Stop(), Live())
    assert len(outcome.result["statements"]) == 100
    assert outcome.result["statements_left_out"] == 20


VALUES: list[tuple[str, object]] = [
    ("select 42", 42),
    ("select -9223372036854775808", -9223372036854775808),
    ("select true", True),
    ("select false", False),
    ("select 'text'", "text"),
    ("select ''", ""),
    ("select 1.50", "1.50"),
    ("select 'NaN'::float8", "NaN"),
    ("select 'infinity'::timestamptz", "infinity"),
    ("select '{1,2}'::int[]", "{1,2}"),
    ("""select '{"a": [1, null, "x"]}'::jsonb""", {"a": [1, None, "x"]}),
    ("select null", None),
    ("select where false", None),
    ("select pg_sleep(0); select 9", 9),
    ("select 7 where false; select 8", 8),
    ("select null; select 8; select 9", 8),
    ("create table t (); select 5, 6 union all select 7, 8", 5),
    ("insert into work values (3) returning n", 3),
    ("select 'a' || chr(1) || 'b'", "a\x01b"),
    ("select U&'\\+01F389'", "🎉"),
    ("select '100% of %s and %(x)s'", "100% of %s and %(x)s"),
    ("select 7 % 4", 3),
    ("do $x$ begin perform ';'; end $x$; select $$it's;$$", "it's;"),
    ("-- a remark\rselect 1", 1),
]


async def test_the_first_value_keeps_its_type(database: Database, runner: SqlRunner) -> None:
    found = []
    for number, (command, _) in enumerate(VALUES):
        task = claimed_task(database, command, name=f"job {number}")
        found.append(value_of(await runner.run(task, Stop(), Live())))
        assert database.value("select result -> 'value' from pgcron.runs where id = %s", (task.run_id,)) == found[-1]
    assert list(map(repr, found)) == [repr(value) for _, value in VALUES]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("""'{"a\\u0000": "b\\u0000"}'::json""", {"a␀": "b␀"}),
        ("""'["\\ud800"]'::json""", ["\\ud800"]),
        ("'1e999'::json", None),
        ("repeat('x', 2000000)", None),
        ("(repeat('[', 3000) || repeat(']', 3000))::json", None),
        ("('1' || repeat('0', 5000))::json", None),
    ],
)
async def test_a_value_that_cannot_be_kept_does_not_undo_the_work(
    database: Database, runner: SqlRunner, expression: str, value: object
) -> None:
    outcome = await runner.run(claimed_task(database, f"{DONE}; select {expression}"), Stop(), Live())
    assert value_of(outcome) == value
    assert work(database) == 1
    assert ("its value was not kept" in text_of(outcome)) == (value is None)


async def test_notices_are_kept_in_their_order(database: Database, runner: SqlRunner) -> None:
    command = "do $$begin raise notice 'half done: 50%%'; end$$; select 1; do $$begin raise warning 'ä🎉'; end$$"
    outcome = await runner.run(claimed_task(database, command), Stop(), Live())
    assert text_of(outcome) == "NOTICE: half done: 50%\nDO\nSELECT 1\nWARNING: ä🎉\nDO\n"
    assert database.value("select output from pgcron.runs") == text_of(outcome)


async def test_of_many_notices_head_and_tail_are_kept(database: Database, runner: SqlRunner) -> None:
    command = "do $$begin for i in 1 .. 2000 loop raise notice 'line %', i; end loop; end$$"
    outcome = await runner.run(claimed_task(database, command, output_limit_kb=1), Stop(), Live())
    assert outcome.output is not None
    assert outcome.output.truncated
    assert database.rows("select output_bytes, output_truncated from pgcron.runs") == [
        (outcome.output.total_bytes, True)
    ]
    assert len(text_of(outcome)) < 1200


@pytest.fixture
def latin(server: Server) -> Any:
    name = f"latin_{uuid4().hex[:8]}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding 'LATIN1' locale 'C'")
    database = Database(server, name)
    try:
        migrate_database(database.dsn)
        database.execute(WORK)
        yield database
    finally:
        database.close()
        drop_database(server, name)


async def test_a_result_beyond_the_databases_encoding_does_not_undo_the_work(latin: Database) -> None:
    runner = SqlRunner(sessions.Database(latin.dsn), WORKER, sessions=1)
    task = claimed_task(latin, f"""{DONE}; select '["\\ud83c\\udf89"]'::json""")
    plain = claimed_task(latin, "select 'é'; do $$begin raise notice 'é'; end$$", name="plain")
    outcome, second = await runner.run(task, Stop(), Live()), await runner.run(plain, Stop(), Live())
    await runner.close()
    assert (outcome.status, outcome.recorded, outcome.result) == (Status.SUCCEEDED, True, None)
    assert work(latin) == 1
    assert latin.rows("select status, result, output from pgcron.runs where id = %s", (task.run_id,)) == [
        ("succeeded", None, text_of(outcome))
    ]
    assert (value_of(second), second.recorded, text_of(second)) == ("é", True, "SELECT 1\nNOTICE: é\nDO\n")
