"""SQL jobs on a real server: work and record are one, and nothing of a job reaches the next."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.embedded import Server
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.sql.script import copies_to_client, split_statements, transaction_end
from pgcron_runner.execution.stop import Stop
from pgcron_runner.migrate import migrate_database
from pgcron_runner.model import Status, StopReason
from tests.execution.tasks import (
    AT_THE_GATE,
    SESSION_NAME,
    claimed_task,
    next_task,
    recorded_status,
    running,
    session_pids,
    shut_gate,
    some_task,
    someone_waits,
    stopped,
    terminate_sessions,
    text_of,
    value_of,
)
from tests.statements.builders import OTHER_WORKER, WORKER
from tests.support.databases import Database, drop_database
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

WORK = "create table work (n int)"
DONE = "insert into work values (1)"


@pytest.fixture
def database(database: Database) -> Database:
    database.execute(WORK)
    return database


@pytest.fixture
async def make_runner(database: Database) -> AsyncIterator[Callable[..., SqlRunner]]:
    """Makes runners; after they are closed there is no session left."""
    made: list[SqlRunner] = []

    def make(dsn: str = database.dsn, *, sessions_: int = 2, **options: Any) -> SqlRunner:
        target = sessions.Database(dsn, application_name=SESSION_NAME)
        made.append(SqlRunner(target, WORKER, sessions=sessions_, **options))
        return made[-1]

    yield make
    for runner in made:
        await runner.close()
    eventually(lambda: not session_pids(database), message="no session is left")


@pytest.fixture
def runner(make_runner: Callable[..., SqlRunner]) -> SqlRunner:
    return make_runner()


def work(database: Database) -> int:
    return int(database.value("select count(*) from work"))


def add_deferred_trigger(database: Database, body: LiteralString) -> None:
    """Runs at COMMIT of whoever inserts into `work`."""
    database.execute(
        """create function at_commit() returns trigger language plpgsql as $$begin
           """
        + body
        + """; return null; end$$"""
    )
    database.execute(
        """create constraint trigger at_commit after insert on work deferrable initially deferred
           for each row execute function at_commit()"""
    )


# The record


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


def readable(text: str) -> object:
    """The value of a JSON text, None where this Python cannot read it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("""'{"a\\u0000": "b\\u0000"}'::json""", {"a␀": "b␀"}),
        ("""'["\\ud800"]'::json""", ["\\ud800"]),
        ("'1e999'::json", None),
        ("repeat('x', 2000000)", None),
        # As deep as the Python of the worker reads: newer ones keep it.
        ("(repeat('[', 3000) || repeat(']', 3000))::json", readable("[" * 3000 + "]" * 3000)),
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


# Failure


async def test_a_failing_statement_undoes_those_before_it(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, f"{DONE}; select 1/0; {DONE}")
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.recorded) == (Status.FAILED, False)
    assert outcome.error is not None
    assert outcome.error.startswith("22012: division by zero")
    assert text_of(outcome) == "INSERT 0 1\n"
    assert work(database) == 0
    assert recorded_status(database, task) == "running"


async def test_the_error_has_code_detail_hint_and_context(database: Database, runner: SqlRunner) -> None:
    raised = "raise exception 'no stock' using errcode = 'P0042', detail = 'two left', hint = 'order more'"
    outcome = await runner.run(claimed_task(database, f"do $$begin {raised}; end$$"), Stop(), Live())
    assert outcome.error == (
        "P0042: no stock\nDETAIL: two left\nHINT: order more\n"
        "CONTEXT: PL/pgSQL function inline_code_block line 1 at RAISE"
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (";", "no SQL statement"),
        ("-- later", "no SQL statement"),
        ("copy work from stdin", "COPY FROM STDIN"),
        ("COPY (select 'x; y') /* ; */ TO STDOUT", "COPY TO STDOUT"),
    ],
)
async def test_a_command_that_no_server_could_run_fails_before_anything_is_done(
    database: Database, runner: SqlRunner, command: str, words: str
) -> None:
    outcome = await runner.run(claimed_task(database, command), Stop(), Live())
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: ")
    assert words in outcome.error


async def test_transaction_must_be_true_or_false(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, DONE, args={"transaction": "false"}), Stop(), Live())
    assert outcome.error == "launch failed: args.transaction is 'false', not true or false"
    assert work(database) == 0


async def test_a_server_that_refuses_is_told_in_words(
    database: Database, make_runner: Callable[..., SqlRunner], server: Server
) -> None:
    runner = make_runner(server.dsn(database.name, "nobody"))
    outcome = await runner.run(claimed_task(database, DONE), Stop(), Live())
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: ")
    assert '"nobody"' in outcome.error


async def test_an_error_of_a_deferred_constraint_undoes_all(database: Database, runner: SqlRunner) -> None:
    add_deferred_trigger(database, "raise exception 'too late'")
    task = claimed_task(database, DONE)
    outcome = await runner.run(task, Stop(), Live())
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("P0001: too late")
    assert (work(database), recorded_status(database, task)) == (0, "running")


async def test_a_division_by_zero_at_commit_is_told_as_one(database: Database, runner: SqlRunner) -> None:
    add_deferred_trigger(database, "perform 1 / 0")
    task = claimed_task(database, DONE)
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.error) == (Status.FAILED, "22012: division by zero")
    assert outcome.reason == "a deferred trigger failed at COMMIT"
    assert (work(database), recorded_status(database, task)) == (0, "running")


async def test_a_transaction_made_read_only_says_so(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, "set transaction read only; select 1")
    outcome = await runner.run(task, Stop(), Live())
    assert outcome.status is Status.FAILED
    assert outcome.error == "25006: cannot execute SELECT FOR NO KEY UPDATE in a read-only transaction"
    assert outcome.reason == "a read-only transaction cannot record that the job succeeded"
    assert recorded_status(database, task) == "running"


# Ending the transaction

ENDS = [
    "commit",
    "COMMIT AND CHAIN",
    "end",
    "abort",
    "rollback",
    "Rollback And Chain",
    "rollback work",
    "prepare transaction 'p'",
    "/* to /* it */ */ -- now\r commit",
]


async def test_a_command_that_would_end_its_transaction_is_refused_before_it_begins(
    database: Database, runner: SqlRunner
) -> None:
    for number, end in enumerate(ENDS):
        task = claimed_task(database, f"{DONE}; {end}; {DONE}", name=f"job {number}")
        outcome = await runner.run(task, Stop(), Live())
        assert outcome.status is Status.FAILED
        assert outcome.error is not None
        assert outcome.error.startswith("launch failed: ")
        assert "nothing was begun" in outcome.error
    assert (work(database), session_pids(database)) == (0, [])


@pytest.mark.parametrize("end", ENDS[:-1])
async def test_one_that_ended_it_all_the_same_is_never_recorded_as_succeeded(
    database: Database, runner: SqlRunner, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("pgcron_runner.execution.sql.runner.transaction_end", lambda statement: None)
    task = claimed_task(database, f"{DONE}; {end}")
    outcome = await runner.run(task, Stop(), Live())
    for (name,) in database.rows("select gid from pg_prepared_xacts"):
        assert name == "p"
        database.execute("rollback prepared 'p'")
    assert outcome.status is Status.FAILED
    assert outcome.reason is not None
    assert outcome.reason.startswith("the command ended its own transaction")
    assert recorded_status(database, task) == "running"


@pytest.mark.parametrize(
    "command",
    [
        f"{DONE}; savepoint a; {DONE}; rollback to savepoint a; release a",
        f"{DONE}; savepoint a; {DONE}; rollback to a",
        f"{DONE}; savepoint a; {DONE}; ROLLBACK TRANSACTION TO SAVEPOINT a",
        f"begin; {DONE}",
        f"prepare rollback as select 1; execute rollback; {DONE}",
        f"do $$begin begin {DONE}; exception when others then null; end; end$$",
    ],
)
async def test_savepoints_and_the_like_are_the_jobs_own_business(
    database: Database, runner: SqlRunner, command: str
) -> None:
    task = claimed_task(database, command)
    outcome = await runner.run(task, Stop(), Live())
    assert outcome.recorded, outcome
    assert (work(database), recorded_status(database, task)) == (1, "succeeded")


@pytest.mark.parametrize("command", ["discard all", "vacuum work", "call ends_it()", "do $$begin commit; end$$"])
async def test_what_cannot_be_done_in_a_transaction_fails_and_undoes_all(
    database: Database, runner: SqlRunner, command: str
) -> None:
    database.execute("create procedure ends_it() language plpgsql as $$begin commit; end$$")
    outcome = await runner.run(claimed_task(database, f"{DONE}; {command}"), Stop(), Live())
    assert outcome.status is Status.FAILED
    assert work(database) == 0


@pytest.mark.parametrize(
    ("statement", "ends"),
    [
        ("commit", "COMMIT"),
        ("End", "END"),
        ("-- x\nabort", "ABORT"),
        ("rollback and chain", "ROLLBACK"),
        ("rollback prepared 'x'", "ROLLBACK"),
        ("prepare transaction 'x'", "PREPARE TRANSACTION"),
        ("rollback to a", None),
        ("rollback work to savepoint a", None),
        ("prepare p as select 1", None),
        ("begin", None),
        ("select 'commit'", None),
        ('"commit"', None),
        ("", None),
    ],
)
def test_the_words_that_end_a_transaction(statement: str, ends: str | None) -> None:
    assert transaction_end(statement) == ends


@pytest.mark.parametrize(
    ("statement", "is_one"),
    [
        ("copy t from stdin", True),
        ('copy "T" (a, b) from /* x */ stdin with (format csv)', True),
        ("copy (select $$;$$, 'a') to stdout", True),
        ("copy t from '/dev/stdin'", False),
        ("copy t to program 'cat > stdout'", False),
        ("select stdin from stdin", False),
        ("", False),
    ],
)
def test_a_copy_from_or_to_a_client_is_known(statement: str, is_one: bool) -> None:
    assert copies_to_client(statement) is is_one


def test_a_remark_ends_with_its_line_whatever_ends_the_line() -> None:
    assert split_statements("-- one; two\rselect 1;\r\nselect 2") == ["-- one; two\rselect 1", "select 2"]


# The lock


async def test_the_jobs_transaction_keeps_a_second_one_out(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    first = claimed_task(database, f"select pg_advisory_unlock_all(); {DONE}; {AT_THE_GATE}")
    with shut_gate(database) as open_gate:
        async with running(make_runner().run, first) as going:
            await someone_waits(database)
            second = next_task(database, first)
            refused = await make_runner(lock_patience=0).run(second, Stop(), Live())
            assert refused.status is Status.FAILED
            assert refused.reason == "another transaction of this job is still running; nothing was done"
            assert not await own_transactions_left(database)
            open_gate()
            # Closed as lost meanwhile: it may not commit.
            assert (await going).status is Status.LOST
    assert work(database) == 0


async def own_transactions_left(database: Database) -> int:
    count = "select count(*) from pg_stat_activity where application_name = %s and state like 'idle in%%'"
    return int(database.value(count, (SESSION_NAME,)))


async def test_a_retry_waits_for_the_transaction_that_a_dead_worker_left(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    first = claimed_task(database, f"{DONE}; {AT_THE_GATE}")
    with shut_gate(database) as open_gate:
        async with running(make_runner().run, first) as going:
            await someone_waits(database)
            async with running(make_runner().run, next_task(database, first)) as retry:
                await asyncio.sleep(0.3)
                assert not retry.done()
                open_gate()
                assert (await going).status is Status.LOST
                assert (await retry).recorded
    assert work(database) == 1


async def test_a_run_that_waits_for_the_lock_can_be_stopped(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    first = claimed_task(database, AT_THE_GATE)
    stop = Stop()
    with shut_gate(database):
        async with running(make_runner().run, first):
            await someone_waits(database)
            async with running(make_runner().run, next_task(database, first), stop) as second:
                stop.request(StopReason.CANCEL)
                async with asyncio.timeout(2):
                    assert (await second).status is Status.FAILED


async def test_a_job_that_allows_overlap_has_no_lock(database: Database, make_runner: Callable[..., SqlRunner]) -> None:
    database.execute("select pg_advisory_lock(('pgcron'::regnamespace::oid::bigint << 32) | 1)")
    task = replace(claimed_task(database, DONE), exclusive=False)
    assert task.job_id == 1
    assert (await make_runner(lock_patience=0).run(task, Stop(), Live())).recorded


# Whose run it is


TAKEN: list[LiteralString] = [
    f"update pgcron.runs set worker_id = '{OTHER_WORKER}' where id = %s",
    "update pgcron.runs set status = 'lost', finished_at = now() where id = %s",
    "delete from pgcron.runs where id = %s",
]


@pytest.mark.parametrize("taking", TAKEN)
async def test_a_run_that_was_taken_before_it_begins_does_nothing(
    database: Database, runner: SqlRunner, taking: LiteralString
) -> None:
    task = claimed_task(database, DONE)
    database.execute(taking, (task.run_id,))
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(database) == 0


@pytest.mark.parametrize("taking", TAKEN)
async def test_a_run_that_was_taken_meanwhile_is_rolled_back(
    database: Database, runner: SqlRunner, taking: LiteralString
) -> None:
    task = claimed_task(database, f"{DONE}; {AT_THE_GATE}")
    with shut_gate(database) as open_gate:
        async with running(runner.run, task) as going:
            await someone_waits(database)
            database.execute(taking, (task.run_id,))
            open_gate()
            outcome = await going
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(database) == 0


async def test_a_role_without_rights_on_the_schedule_can_be_used_by_a_job(
    database: Database, runner: SqlRunner
) -> None:
    role = f"r{uuid4().hex}"
    database.execute(f"create role {role}")
    try:
        database.execute(f"grant insert on work to {role}")
        for setting in ("set role", "set local role", "set session authorization", "SET LOCAL SESSION AUTHORIZATION"):
            task = claimed_task(database, f"{setting} {role}; {DONE}; select current_user::text", name=setting)
            outcome = await runner.run(task, Stop(), Live())
            assert (value_of(outcome), outcome.recorded) == (role, True)
        after = await runner.run(claimed_task(database, "select current_user::text"), Stop(), Live())
        assert value_of(after) == database.value("select current_user::text")
    finally:
        database.execute(f"drop owned by {role}; drop role {role}")


async def test_another_encoding_of_the_client_is_the_jobs_alone(database: Database, runner: SqlRunner) -> None:
    command = "set client_encoding to 'LATIN1'; do $$begin raise notice '€'; end$$"
    first = await runner.run(claimed_task(database, "select 1", name="first"), Stop(), Live())
    assert first.recorded
    outcome = await runner.run(claimed_task(database, command.replace("€", "x")), Stop(), Live())
    assert outcome.recorded
    after = await runner.run(claimed_task(database, "show client_encoding", name="after"), Stop(), Live())
    assert value_of(after) == "UTF8"


# What the job is told


@pytest.mark.parametrize("args", [{}, {"transaction": False}])
async def test_the_job_can_see_which_run_it_is(database: Database, runner: SqlRunner, args: dict[str, Any]) -> None:
    names = ("run_id", "job", "scheduled_for", "attempt")
    command = "select jsonb_build_array({})".format(", ".join(f"current_setting('pgcron.{name}')" for name in names))
    task = replace(claimed_task(database, command, args=args), attempt=3)
    assert value_of(await runner.run(task, Stop(), Live())) == [
        str(task.run_id),
        "nightly",
        "2026-03-01T18:00:00+00:00",
        "3",
    ]
    after = await runner.run(claimed_task(database, command, name="it's after; '", args=args), Stop(), Live())
    assert value_of(after)[1] == "it's after; '"


# What a job leaves behind

LEFTOVERS = {
    "a setting": ("set statement_timeout = '1ms'", "select current_setting('statement_timeout') = '1ms'"),
    "a setting of its own": ("set my.own = 'x'", "select coalesce(current_setting('my.own', true), '') = 'x'"),
    "the search path": ("set search_path = 'pg_temp'", "select current_setting('search_path') = 'pg_temp'"),
    "the zone": ("set timezone = 'Asia/Tokyo'", "select current_setting('timezone') = 'Asia/Tokyo'"),
    "read only": (
        "set session characteristics as transaction read only",
        "select current_setting('transaction_read_only') = 'on'",
    ),
    "a temporary table": ("create temp table t ()", "select to_regclass('pg_temp.t') is not null"),
    "a prepared statement": ("prepare p as select 1", "select exists (select from pg_prepared_statements)"),
    "a cursor": ("declare c cursor with hold for select 1", "select exists (select from pg_cursors where name = 'c')"),
    "a subscription": ("listen news", "select exists (select from pg_listening_channels())"),
    "an advisory lock": (
        "select pg_advisory_lock(12)",
        "select exists (select from pg_locks where locktype = 'advisory' and objid = 12)",
    ),
    "a sequence's value": (
        "select setval('s', 9)",
        "select exists (select from pg_sequences where false)",
    ),
}


@pytest.mark.parametrize("args", [{}, {"transaction": False}])
async def test_nothing_that_a_job_leaves_reaches_the_next_on_its_session(
    database: Database, make_runner: Callable[..., SqlRunner], args: dict[str, Any]
) -> None:
    database.execute("create sequence s")
    runner = make_runner(sessions_=1)
    pids, found = set(), []
    for name, (leave, look) in LEFTOVERS.items():
        left = claimed_task(database, f"select pg_backend_pid(); {leave}", name=name, args=args)
        pids.add(value_of(await runner.run(left, Stop(), Live())))
        if value_of(await runner.run(claimed_task(database, look, name=f"after {name}", args=args), Stop(), Live())):
            found.append(name)
    assert found == []
    assert len(pids) == 1


async def test_a_failed_job_leaves_nothing_either(database: Database, make_runner: Callable[..., SqlRunner]) -> None:
    runner = make_runner(sessions_=1)
    failing = "set timezone = 'Asia/Tokyo'; select pg_advisory_lock(12); select 1/0"
    assert (await runner.run(claimed_task(database, failing), Stop(), Live())).status is Status.FAILED
    [pid] = session_pids(database)
    looking = "select pg_backend_pid(), current_setting('timezone')"
    assert value_of(await runner.run(claimed_task(database, looking, name="after"), Stop(), Live())) == pid
    assert database.value("select count(*) from pg_locks where locktype = 'advisory'") == 0


# Without a transaction

ALONE = {"transaction": False}


async def test_statements_that_refuse_a_transaction_can_be_run(database: Database, runner: SqlRunner) -> None:
    command = "vacuum work; create index concurrently work_n on work (n); reindex table concurrently work"
    task = claimed_task(database, command, args=ALONE)
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.recorded) == (Status.SUCCEEDED, False)
    assert [count["command"] for count in outcome.result["statements"]] == ["VACUUM", "CREATE INDEX", "REINDEX"]
    assert recorded_status(database, task) == "running"


async def test_without_a_transaction_what_was_done_stays(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, f"{DONE}; select 1/0; {DONE}", args=ALONE), Stop(), Live())
    assert outcome.status is Status.FAILED
    assert work(database) == 1


async def test_without_a_transaction_the_job_may_have_its_own(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, f"begin; {DONE}; commit; {DONE}", args=ALONE), Stop(), Live())
    assert (outcome.status, work(database)) == (Status.SUCCEEDED, 2)


async def test_a_transaction_that_it_left_open_is_no_success(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, f"begin; {DONE}", args=ALONE), Stop(), Live())
    assert (outcome.status, outcome.reason) == (
        Status.FAILED,
        "the command left a transaction open; it was rolled back",
    )
    assert work(database) == 0


async def test_without_a_transaction_a_lost_session_is_not_called_rolled_back(
    database: Database, runner: SqlRunner
) -> None:
    task = claimed_task(database, f"{DONE}; {AT_THE_GATE}", args=ALONE)
    with shut_gate(database):
        async with running(runner.run, task) as going:
            await someone_waits(database)
            terminate_sessions(database)
            outcome = await going
    assert outcome.status is Status.LOST
    assert outcome.reason is not None
    assert "stays" in outcome.reason
    assert work(database) == 1


# Limits of the role (O12)


LIMITS = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"]


async def test_the_roles_own_limits_do_not_end_a_job(database: Database, runner: SqlRunner) -> None:
    held = claimed_task(database, f"select pg_sleep(1); {DONE}; {AT_THE_GATE}", timeout=timedelta(seconds=60))
    alone = claimed_task(database, f"select pg_sleep(1); {DONE}", name="alone", args=ALONE)
    for name in LIMITS:
        set_limit(database, name, "300ms")
    with shut_gate(database) as open_gate:
        async with running(runner.run, held) as going, running(runner.run, alone) as going_alone:
            assert (await going_alone).status is Status.SUCCEEDED
            await someone_waits(database)
            await asyncio.sleep(0.4)
            open_gate()
            assert (await going).recorded
    assert work(database) == 2


async def test_nor_does_the_roles_limit_of_a_transaction(database: Database, runner: SqlRunner) -> None:
    if database.value("select current_setting('server_version_num')::int") < 170000:
        pytest.skip("this server has no transaction_timeout")
    set_limit(database, "transaction_timeout", "300ms")
    task = claimed_task(database, f"select pg_sleep(0.5); {DONE}", args=ALONE)
    assert (await runner.run(task, Stop(), Live())).status is Status.SUCCEEDED


def set_limit(database: Database, name: str, value: str) -> None:
    role = database.value("select current_user::text")
    database.execute(f"alter role {role} in database {database.name} set {name} = '{value}'")


async def test_a_limit_that_the_job_sets_itself_holds(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(
        claimed_task(database, "set statement_timeout = '10ms'; select pg_sleep(9)"), Stop(), Live()
    )
    assert outcome.error == "57014: canceling statement due to statement timeout"
    assert outcome.status is Status.FAILED


# Stopping


async def test_a_stop_cancels_the_statement_on_the_server_and_undoes_all(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, f"{DONE}; select pg_sleep(600)")
    async with running(runner.run, task, stop) as going:
        await sleeper(database)
        before = time.monotonic()
        stop.request(StopReason.CANCEL)
        outcome = await going
    assert time.monotonic() - before < 2
    assert outcome.status is Status.FAILED
    assert outcome.error == "57014: canceling statement due to user request"
    assert text_of(outcome) == "INSERT 0 1\n"
    assert work(database) == 0
    assert recorded_status(database, task) == "running"
    eventually(lambda: not session_pids(database), message="a session that was cancelled is not used again")


async def sleeper(database: Database) -> None:
    def sleeps() -> bool:
        events = "select count(*) from pg_stat_activity where application_name = %s and wait_event = 'PgSleep'"
        return bool(database.value(events, (SESSION_NAME,)))

    async with asyncio.timeout(10):
        while not sleeps():  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)


async def test_a_request_to_cancel_is_made_again_until_it_is_heard(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    deaf_once = "begin perform pg_sleep(600); exception when query_canceled then raise notice 'what?'; end"
    task = claimed_task(database, f"do $$begin {deaf_once}; perform pg_sleep(600); end$$")
    async with running(runner.run, task, stop) as going:
        await sleeper(database)
        stop.request(StopReason.TIMEOUT)
        async with asyncio.timeout(5):
            outcome = await going
    assert text_of(outcome) == "NOTICE: what?\n"
    assert outcome.error is not None
    assert outcome.error.startswith("57014")


DEAF = """do $$begin
    loop begin perform pg_sleep(600); exception when query_canceled then null; end; end loop;
end$$"""


async def test_a_server_that_goes_on_is_left_after_the_grace(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, f"{DONE}; {DEAF}", kill_grace=timedelta(seconds=0.7))
    async with running(runner.run, task, stop) as going:
        await sleeper(database)
        before = time.monotonic()
        stop.request(StopReason.TIMEOUT)
        outcome = await going
    assert 0.7 <= time.monotonic() - before < 4
    assert (outcome.status, outcome.reason) == (Status.LOST, "the session was lost; the work was rolled back")
    eventually(lambda: not session_pids(database), message="the server notices that its client is gone")
    assert work(database) == 0


async def test_an_urgent_stop_does_not_wait_for_the_grace(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, DEAF, kill_grace=timedelta(hours=1))
    async with running(runner.run, task, stop) as going:
        await sleeper(database)
        stop.request(StopReason.CANCEL)
        stop.request(StopReason.LEASE, now=True)
        async with asyncio.timeout(4):
            assert (await going).status is Status.LOST
    terminate_sessions(database)


async def test_a_stop_between_two_statements_begins_no_further_one(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, f"{DONE}; do $$begin raise notice 'now'; end$$; {DONE}")

    async def run_alone(connection: sessions.Connection, statement: str, *, most_bytes: int) -> sessions.Results:
        results = await sessions.run_alone(connection, statement, most_bytes=most_bytes)
        if statement.startswith("do"):
            stop.request(StopReason.DRAIN)
        return results

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pgcron_runner.execution.sql.work.run_alone", run_alone)
        outcome = await runner.run(task, stop, Live())
    assert (outcome.status, outcome.reason) == (Status.FAILED, None)
    assert text_of(outcome) == "INSERT 0 1\nNOTICE: now\nDO\n"
    assert work(database) == 0


async def test_a_stop_during_the_commit_is_answered_by_the_server(database: Database, runner: SqlRunner) -> None:
    add_deferred_trigger(database, "perform pg_advisory_xact_lock(4711)")
    stop = Stop()
    task = claimed_task(database, DONE)
    with shut_gate(database):
        async with running(runner.run, task, stop) as going:
            await someone_waits(database)
            stop.request(StopReason.TIMEOUT)
            outcome = await going
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("57014")
    assert (work(database), recorded_status(database, task)) == (0, "running")


async def test_a_run_that_waits_for_a_session_can_be_stopped(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    runner = make_runner(sessions_=1)
    stop = Stop()
    with shut_gate(database) as open_gate:
        async with running(runner.run, claimed_task(database, AT_THE_GATE)) as first:
            await someone_waits(database)
            async with running(runner.run, claimed_task(database, DONE, name="second"), stop) as second:
                await asyncio.sleep(0)
                stop.request(StopReason.CANCEL)
                assert (await second).status is Status.FAILED
            open_gate()
            assert (await first).recorded
    assert (await runner.run(claimed_task(database, DONE, name="third"), Stop(), Live())).recorded


async def test_a_run_that_waits_for_a_server_can_be_stopped(make_runner: Callable[..., SqlRunner]) -> None:
    stop = Stop()
    async with running(make_runner("host=127.0.0.1 port=1").run, some_task("select 1"), stop) as going:
        await asyncio.sleep(0.05)
        stop.request(StopReason.TIMEOUT)
        async with asyncio.timeout(2):
            assert (await going).status is Status.FAILED


async def test_a_stop_that_came_before_the_run_lets_nothing_begin(database: Database, runner: SqlRunner) -> None:
    assert (await runner.run(claimed_task(database, DONE), stopped(), Live())).status is Status.FAILED
    assert (work(database), session_pids(database)) == (0, [])


# Losing the server


async def test_a_session_that_ends_in_the_middle_undoes_all(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, f"{DONE}; {AT_THE_GATE}")
    with shut_gate(database):
        async with running(runner.run, task) as going:
            await someone_waits(database)
            terminate_sessions(database)
            outcome = await going
    assert (outcome.status, outcome.reason) == (Status.LOST, "the session was lost; the work was rolled back")
    assert outcome.error
    assert (work(database), recorded_status(database, task)) == (0, "running")
    assert (await runner.run(next_task(database, replace(task, command=DONE)), Stop(), Live())).recorded


async def test_an_idle_session_that_has_ended_costs_no_run(database: Database, runner: SqlRunner) -> None:
    assert (await runner.run(claimed_task(database, DONE, name="first"), Stop(), Live())).recorded
    terminate_sessions(database)
    assert (await runner.run(claimed_task(database, DONE, name="second"), Stop(), Live())).recorded


@pytest.mark.parametrize("args", [{}, ALONE])
async def test_nor_does_one_that_has_ended_without_a_word(
    database: Database, runner: SqlRunner, monkeypatch: pytest.MonkeyPatch, args: dict[str, Any]
) -> None:
    monkeypatch.setattr("pgcron_runner.execution.sql.sessions._is_quiet", lambda connection: True)
    assert (await runner.run(claimed_task(database, DONE, name="first"), Stop(), Live())).recorded
    terminate_sessions(database)
    outcome = await runner.run(claimed_task(database, DONE, name="second", args=args), Stop(), Live())
    assert outcome.status is Status.SUCCEEDED
    assert work(database) == 2


async def test_a_session_that_ends_while_it_commits_has_done_nothing(database: Database, runner: SqlRunner) -> None:
    add_deferred_trigger(database, "perform pg_advisory_xact_lock(4711)")
    task = claimed_task(database, DONE)
    with shut_gate(database):
        async with running(runner.run, task) as going:
            await someone_waits(database)
            terminate_sessions(database)
            outcome = await going
    assert outcome.status is Status.LOST
    assert outcome.reason == "the server failed during the commit; the work was rolled back"
    assert (work(database), recorded_status(database, task)) == (0, "running")


def proxied(database: Database, proxy: Proxy, make_runner: Callable[..., SqlRunner]) -> SqlRunner:
    return make_runner(database.dsn_through(proxy.port))


def proxy_to(database: Database) -> Proxy:
    info = psycopg.conninfo.conninfo_to_dict(database.tcp_dsn)
    return Proxy((str(info.get("hostaddr") or info["host"]), int(str(info["port"]))))


async def test_a_commit_whose_answer_was_lost_is_believed(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    add_deferred_trigger(database, "perform pg_advisory_xact_lock(4711)")
    task = claimed_task(database, DONE)
    with proxy_to(database) as proxy, shut_gate(database) as open_gate:
        async with running(proxied(database, proxy, make_runner).run, task) as going:
            await someone_waits(database)
            proxy.stall()
            open_gate()
            eventually(lambda: recorded_status(database, task) == "succeeded")
            proxy.cut()
            proxy.resume()
            outcome = await going
    assert (outcome.status, outcome.recorded) == (Status.SUCCEEDED, True)
    assert (work(database), text_of(outcome)) == (1, "INSERT 0 1\n")


async def test_a_commit_that_still_goes_on_is_waited_for(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    add_deferred_trigger(database, "perform pg_advisory_xact_lock(4711)")
    # So that the server does not see that its client is gone.
    task = claimed_task(database, f"set client_connection_check_interval = 0; {DONE}")
    with proxy_to(database) as proxy, shut_gate(database) as open_gate:
        async with running(proxied(database, proxy, make_runner).run, task) as going:
            pid = await someone_waits(database)
            proxy.cut()
            proxy.resume()
            await asyncio.sleep(0.3)
            assert not going.done()
            assert pid in session_pids(database)
            open_gate()
            outcome = await going
    assert (outcome.status, outcome.recorded) == (Status.SUCCEEDED, True)
    assert work(database) == 1


async def test_the_wait_for_a_lost_answer_ends_with_the_lease(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    add_deferred_trigger(database, "perform pg_advisory_xact_lock(4711)")
    stop = Stop()
    with proxy_to(database) as proxy, shut_gate(database):
        async with running(proxied(database, proxy, make_runner).run, claimed_task(database, DONE), stop) as going:
            await someone_waits(database)
            proxy.cut()
            await asyncio.sleep(0.1)
            assert not going.done()
            stop.request(StopReason.LEASE, now=True)
            async with asyncio.timeout(2):
                outcome = await going
    assert (outcome.status, outcome.recorded) == (Status.LOST, False)
    terminate_sessions(database)


async def test_a_row_that_is_gone_when_it_is_read_again_is_a_lost_run(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    add_deferred_trigger(database, "perform pg_advisory_xact_lock(4711)")
    task = claimed_task(database, DONE)
    with proxy_to(database) as proxy, shut_gate(database):
        async with running(proxied(database, proxy, make_runner).run, task) as going:
            await someone_waits(database)
            proxy.cut()
            terminate_sessions(database)
            database.execute("delete from pgcron.runs")
            proxy.resume()
            assert (await going).status is Status.LOST
    assert work(database) == 0


async def test_a_session_given_back_after_the_end_is_closed(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    runner = make_runner()
    with shut_gate(database) as open_gate:
        async with running(runner.run, claimed_task(database, AT_THE_GATE)) as going:
            await someone_waits(database)
            await runner.close()
            open_gate()
            assert (await going).recorded
    eventually(lambda: not session_pids(database))


@pytest.mark.slow
@pytest.mark.faults
async def test_work_and_record_agree_whenever_the_server_process_is_killed(
    database: Database, make_runner: Callable[..., SqlRunner]
) -> None:
    add_deferred_trigger(database, "perform pg_sleep(0.004)")
    runner = make_runner(sessions_=1)
    statement = "insert into work values ({run}); select pg_sleep(0.005);"
    chance = random.Random(20260301)
    seen: dict[tuple[Status, bool], int] = {}
    for trial in range(40):
        task = claimed_task(database, "select", name=f"trial {trial}")
        task = replace(task, command=statement.format(run=task.run_id) * 3)
        async with running(runner.run, task) as going:
            await asyncio.sleep(chance.uniform(0.0, 0.05))
            terminate_sessions(database)
            outcome = await going
        done = database.value("select count(*) from work where n = %s", (task.run_id,))
        status = recorded_status(database, task)
        assert (done, status) in ((3, "succeeded"), (0, "running")), outcome
        assert outcome.recorded == (status == "succeeded"), outcome
        assert outcome.status in (Status.SUCCEEDED, Status.LOST), outcome
        seen[outcome.status, outcome.recorded] = seen.get((outcome.status, outcome.recorded), 0) + 1
    assert len(seen) == 2, seen


# Databases with another encoding


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
