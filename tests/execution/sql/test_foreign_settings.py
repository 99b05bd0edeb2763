"""Settings that a role or a database has for other reasons do no harm to SQL jobs, nor to their record."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import NextRun, Status, StopReason
from tests.execution.sql.stage import ALONE, DONE, MakeRunner, work
from tests.execution.tasks import (
    AT_THE_GATE,
    SESSION_NAME,
    claimed_task,
    running,
    shut_gate,
    someone_waits,
    text_of,
    value_of,
)
from tests.support.databases import Database

BOTH = pytest.mark.parametrize("args", [{}, ALONE], ids=["transaction", "autocommit"])
LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")


def set_for_all(database: Database, **settings: str) -> None:
    for name, value in settings.items():
        database.execute(f"alter database {database.name} set {name} = {value}")


def set_for_role(database: Database, name: str, value: str) -> None:
    role = database.value("select current_user::text")
    database.execute(f"alter role {role} in database {database.name} set {name} = '{value}'")


# O12: limits


async def test_o12_the_roles_own_limits_do_not_end_a_job(database: Database, runner: SqlRunner) -> None:
    held = claimed_task(database, f"select pg_sleep(1); {DONE}; {AT_THE_GATE}", timeout=timedelta(seconds=60))
    alone = claimed_task(database, f"select pg_sleep(1); {DONE}", name="alone", args=ALONE)
    for name in LIMITS:
        set_for_role(database, name, "300ms")
    with shut_gate(database) as open_gate:
        async with running(runner.run, held) as going, running(runner.run, alone) as going_alone:
            assert (await going_alone).status is Status.SUCCEEDED
            await someone_waits(database)
            await asyncio.sleep(0.4)
            open_gate()
            assert (await going).recorded
    assert work(database) == 2


@BOTH
async def test_o12_nor_does_the_roles_limit_of_a_transaction(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    if database.value("select current_setting('server_version_num')::int") < 170000:
        pytest.skip("this server has no transaction_timeout")
    set_for_role(database, "transaction_timeout", "300ms")
    task = claimed_task(database, f"select pg_sleep(0.5); {DONE}", args=args)
    assert (await runner.run(task, Stop(), Live())).status is Status.SUCCEEDED


async def test_o12_sessions_wait_for_their_next_job_however_short_the_roles_patience_is(
    database: Database, make_runner: MakeRunner
) -> None:
    set_for_role(database, "idle_session_timeout", "50ms")
    runner = make_runner(sessions_=1)
    for number in range(3):
        assert (await runner.run(claimed_task(database, DONE, name=f"job {number}"), Stop(), Live())).recorded
        await asyncio.sleep(0.2)
    assert work(database) == 3


@BOTH
async def test_o12_the_error_says_which_limit_struck(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    limits = {"statement_timeout": "select pg_sleep(9)", "lock_timeout": AT_THE_GATE}
    with shut_gate(database):
        for name, statement in limits.items():
            task = claimed_task(database, f"set {name} = '10ms'; {statement}", name=name, args=args)
            outcome = await runner.run(task, Stop(), Live())
            assert outcome.error is not None
            assert name.replace("_", " ") in outcome.error
            assert outcome.status is Status.FAILED


async def test_o12_a_database_that_is_read_only_by_default_is_waited_for(
    database: Database, make_runner: MakeRunner
) -> None:
    """So a disk that is full, or somebody's freeze, is respected; the run says what it has waited for."""
    task, stop = claimed_task(database, DONE), Stop()
    set_for_all(database, default_transaction_read_only="on")
    async with running(make_runner().run, task, stop) as going:
        await asyncio.sleep(0.5)
        assert not going.done()
        stop.request(StopReason.TIMEOUT)
        outcome = await going
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: This Postgres is a standby or read-only; waiting")
    set_for_all(database, default_transaction_read_only="off")
    assert (await make_runner().run(claimed_task(database, DONE, name="after"), Stop(), Live())).recorded


# O33: an ordinary role, a strange search_path

EVIL = """
    create schema evil;
    create function evil.clock_timestamp() returns timestamptz language sql as $$select '1999-01-01Z'::timestamptz$$;
    create function evil.now() returns timestamptz language sql as $$select '1999-01-01Z'::timestamptz$$;
    create function evil.set_config(text, text, boolean) returns text language sql as $$select 'no'$$;
    create function evil.current_setting(text, boolean) returns text language sql as $$select '{"evil": 1}'$$;
    create function evil.current_setting(text) returns text language sql as $$select '1'$$;
    create function evil.pg_try_advisory_xact_lock(bigint) returns boolean language sql as $$select false$$;
    create function evil.pg_current_xact_id() returns text language sql as $$select '1'$$;
    create function evil.liar(text, text) returns boolean language sql as $$select true$$;
    create function evil.liar(bigint, bigint) returns boolean language sql as $$select true$$;
    create function evil.liar(integer, integer) returns boolean language sql as $$select true$$;
    create operator evil.= (leftarg = text, rightarg = text, function = evil.liar);
    create operator evil.<> (leftarg = text, rightarg = text, function = evil.liar);
    create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.liar);
    create operator evil.>= (leftarg = integer, rightarg = integer, function = evil.liar);
    create domain evil.text as pg_catalog.text check (false);
    create domain evil.uuid as pg_catalog.uuid check (false);
    create domain evil.jsonb as pg_catalog.jsonb check (false);
    create domain evil.timestamptz as pg_catalog.timestamptz check (false);
    create domain evil.regnamespace as pg_catalog.regnamespace check (false);
    create table evil.runs (id int); create table evil.jobs (id int); create table evil.chains (id int)"""
STEPS = """select pgcron.save_state('{"at": 9}'), pgcron.run_after('1 hour', 'nightly')"""


@BOTH
async def test_o33_an_evil_search_path_is_the_jobs_own_affair(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    task = replace(claimed_task(database, f"insert into public.{DONE[12:]}; {STEPS}", args=args), state={"at": 5})
    database.execute(EVIL)
    set_for_all(database, search_path="evil, pg_catalog, public")
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.recorded, outcome.error) == (Status.SUCCEEDED, args == {}, None)
    assert work(database) == 1
    assert database.value("select state from pgcron.runs where id = %s", (task.run_id,)) == {"at": 9}
    if args == {}:
        assert database.value("select finished_at > '2020-01-01Z' from pgcron.runs where id = %s", (task.run_id,))
        assert database.value("select count(*) from pgcron.runs where parent_run_id = %s", (task.run_id,)) == 1
    else:
        assert outcome.next_runs == (NextRun("nightly", timedelta(hours=1)),)
    # The job itself sees what it was told to see.
    after = claimed_task(database, "select set_config('a.b', 'yes', false)", name="after", args=args)
    assert value_of(await runner.run(after, Stop(), Live())) == "no"


async def test_o33_nor_does_it_matter_on_another_database(database: Database, make_runner: MakeRunner) -> None:
    database.execute(EVIL)
    set_for_all(database, search_path="evil, pg_catalog, public")
    there = {"reporting": sessions.Database(database.dsn, application_name=SESSION_NAME)}
    task = claimed_task(database, f"insert into public.{DONE[12:]}; {STEPS}", args={"connection": "reporting"})
    outcome = await make_runner(connections=there).run(task, Stop(), Live())
    assert (outcome.status, outcome.state) == (Status.SUCCEEDED, {"at": 9})
    assert (work(database), outcome.next_runs) == (1, (NextRun("nightly", timedelta(hours=1)),))


@BOTH
async def test_o33_an_ordinary_role_runs_jobs_and_its_rights_are_all_they_have(
    database: Database, make_runner: MakeRunner, args: dict[str, Any]
) -> None:
    database.execute(
        """grant usage on schema pgcron to worker;
           grant select, insert, update, delete on all tables in schema pgcron to worker;
           grant usage on all sequences in schema pgcron to worker;
           grant execute on all functions in schema pgcron to worker;
           create table theirs ()"""
    )
    database.execute("alter table work owner to worker")
    runner = make_runner(database.worker_dsn)
    outcome = await runner.run(claimed_task(database, f"{DONE}; {STEPS}", args=args), Stop(), Live())
    assert (outcome.status, outcome.error, work(database)) == (Status.SUCCEEDED, None, 1)
    refused = await runner.run(claimed_task(database, "table theirs", name="curious", args=args), Stop(), Live())
    assert refused.error == "42501: permission denied for table theirs"


# O34: another zone, other styles


@BOTH
async def test_o34_dates_and_intervals_of_another_style_are_read_as_they_are_meant(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    command = """select current_setting('pgcron.scheduled_for')::timestamptz = timestamptz '2026-03-01T18:00:00Z',
                        pgcron.run_after(interval '1 day 02:00:00.5')"""
    task = claimed_task(database, command, args=args)
    set_for_all(
        database, timezone="'Asia/Tokyo'", datestyle="'German, DMY'", intervalstyle="'sql_standard'", lc_numeric="'C'"
    )
    outcome = await runner.run(task, Stop(), Live())
    assert value_of(outcome) is True
    after = timedelta(days=1, hours=2, seconds=0.5)
    if args == {}:
        [(waits, ended)] = database.rows(
            """select child.run_at - parent.finished_at, abs(extract(epoch from now() - parent.finished_at)) < 600
                 from pgcron.runs child join pgcron.runs parent on parent.id = child.parent_run_id"""
        )
        assert abs(waits - after) < timedelta(seconds=1)
        assert ended
    else:
        assert outcome.next_runs == (NextRun(None, after),)


async def test_o34_what_a_job_prints_is_in_the_style_of_its_database(database: Database, runner: SqlRunner) -> None:
    set_for_all(database, timezone="'Asia/Tokyo'", datestyle="'German, DMY'", intervalstyle="'iso_8601'")
    say = "raise notice '% %', timestamptz '2026-03-01T18:00:00Z', interval '1 day 2 hours'"
    outcome = await runner.run(claimed_task(database, f"do $$begin {say}; end$$"), Stop(), Live())
    assert text_of(outcome) == "NOTICE: 02.03.2026 03:00:00 JST P1DT2H\nDO\n"
