"""Bringing a database to the schema: from nothing, twice, at once, too new; as an ordinary role, in a hostile place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from pgcron_runner import database as sessions
from pgcron_runner.claim import Claim
from pgcron_runner.database import Purpose
from pgcron_runner.decisions import Lane
from pgcron_runner.errors import DatabaseRefused, SchemaMissing, SchemaOutdated, SchemaTooNew
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.finish import Finish
from pgcron_runner.fire import Fire
from pgcron_runner.migrate import check_schema, migrate, migrate_database
from pgcron_runner.model import Finished, Kind, Outcome, Output, Status, Task
from pgcron_runner.session import Session
from pgcron_runner.statements import migrations
from pgcron_runner.store.runs import LockedJob
from tests.statements.builders import WORKER, add_job, register, text_of
from tests.support.databases import WORKER_ROLE, Database
from tests.support.waiting import blocked_on_lock, eventually

_ALL = [f"{migration.version:04}_{migration.name}" for migration in migrations()]
# Over whatever the database itself is set to.
_PLAIN = "-c search_path=pg_catalog -c datestyle=ISO -c timezone=UTC"
_APPLIED = "select version, name, breaking from pgcron.schema_migrations order by version"


def has_schema(database: Database) -> bool:
    return database.value("select to_regnamespace('pgcron')") is not None


async def check(database: Database) -> None:
    connection = await sessions.Database(database.dsn).connect(Purpose.CONTROL)
    try:
        await check_schema(connection)
    finally:
        await connection.close()


# ----------------------------------------------------------------------------------------- ordinary times


def test_an_empty_database_gets_everything_in_order(empty_database: Database) -> None:
    assert migrate_database(empty_database.dsn) == _ALL
    assert empty_database.rows(_APPLIED) == [(m.version, m.name, m.breaking) for m in migrations()]
    assert empty_database.rows(
        "select applied_by, applied_at > now() - interval '1 min' from pgcron.schema_migrations limit 1"
    ) == [("postgres", True)]


def test_migrating_again_does_nothing(empty_database: Database) -> None:
    migrate_database(empty_database.dsn)
    add_job(empty_database)
    before = empty_database.rows("select * from pgcron.schema_migrations")
    assert migrate_database(empty_database.dsn) == []
    assert empty_database.rows("select * from pgcron.schema_migrations") == before
    assert empty_database.value("select count(*) from pgcron.jobs") == 1


async def test_a_dry_run_tells_and_changes_nothing(empty_database: Database) -> None:
    target = sessions.Database(empty_database.dsn)
    assert await migrate(target, dry_run=True) == list(migrations())
    assert not has_schema(empty_database)
    await migrate(target)
    assert await migrate(target, dry_run=True) == []


async def test_a_migrated_database_is_fine(empty_database: Database) -> None:
    await migrate(sessions.Database(empty_database.dsn))
    await check(empty_database)


async def test_numbers_and_marks_of_the_files_are_in_order() -> None:
    assert [migration.version for migration in migrations()] == list(range(1, len(migrations()) + 1))


def test_two_at_once_apply_everything_once(empty_database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(migrate_database, [empty_database.dsn] * 4))
    assert sorted(applied, key=len) == [[], [], [], _ALL]


def test_the_second_waits_for_the_first_and_then_does_nothing(empty_database: Database) -> None:

    with closing(psycopg.connect(empty_database.dsn)) as holder, ThreadPoolExecutor() as pool:
        # The schema is being made by somebody else: the first waits in the middle of its work.
        holder.execute("create schema pgcron")
        running = pool.submit(migrate_database, empty_database.dsn)
        pid = eventually(lambda: _waiting(empty_database, set()))
        second = pool.submit(migrate_database, empty_database.dsn)
        later = eventually(lambda: _waiting(empty_database, {pid}))
        assert empty_database.value("select wait_event from pg_stat_activity where pid = %s", (later,)) == "advisory"
        holder.rollback()
        assert running.result(30) == _ALL
        assert second.result(30) == []


def _waiting(database: Database, known: set[int | None]) -> int | None:
    rows = database.rows(
        """select pid from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock' and pid <> all(%s)""",
        (list(known),),
    )
    return next((pid for (pid,) in rows if blocked_on_lock(database.dsn, pid)), None)


async def test_a_migration_that_fails_leaves_nothing_behind(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = migrations()[-1]
    broken = replace(last, version=last.version + 1, name="broken", text="create table pgcron.half (); select 1 / 0")
    monkeypatch.setattr("pgcron_runner.migrate.migrations", lambda: (*migrations(), broken))
    with pytest.raises(Exception, match="division by zero"):
        await migrate(sessions.Database(empty_database.dsn))
    assert not has_schema(empty_database)


async def test_a_migration_that_comes_later_is_added(empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate(sessions.Database(empty_database.dsn))
    last = migrations()[-1]
    new = replace(last, version=last.version + 1, name="new", breaking=True, text="create table pgcron.new_one ()")
    monkeypatch.setattr("pgcron_runner.migrate.migrations", lambda: (*migrations(), new))
    with pytest.raises(SchemaOutdated, match="Run: pgcron-runner migrate"):
        await check(empty_database)
    assert await migrate(sessions.Database(empty_database.dsn)) == [new]
    await check(empty_database)
    assert empty_database.rows("select version, breaking from pgcron.schema_migrations order by 1 desc limit 1") == [
        (new.version, True)
    ]


# ---------------------------------------------------------------------------------- what is not understood


async def test_a_database_without_the_schema_is_told_what_to_do(empty_database: Database) -> None:
    with pytest.raises(SchemaMissing, match="Run: pgcron-runner migrate"):
        await check(empty_database)


async def test_a_newer_breaking_schema_is_refused_in_a_sentence(database: Database) -> None:
    database.execute("insert into pgcron.schema_migrations (version, name, breaking) values (9001, 'later', true)")
    sentence = "The database has schema version 9001, and this pgcron-runner knows versions up to"
    with pytest.raises(SchemaTooNew, match=sentence):
        await check(database)
    with pytest.raises(SchemaTooNew, match="Upgrade pgcron-runner on this host; the schema stays as it is"):
        await migrate(sessions.Database(database.dsn))
    with pytest.raises(SchemaTooNew, match=sentence):
        await migrate(sessions.Database(database.dsn), dry_run=True)


async def test_a_newer_compatible_schema_is_fine(database: Database) -> None:
    database.execute("insert into pgcron.schema_migrations (version, name, breaking) values (9001, 'later', false)")
    await check(database)
    assert await migrate(sessions.Database(database.dsn)) == []


# ------------------------------------------------------------------------------------------ ordinary roles


@pytest.fixture
def ordinary(empty_database: Database) -> Database:
    """A database in which everybody may connect and nothing else."""
    empty_database.execute("revoke all on schema public from public")
    _administer(empty_database, "revoke create, temporary on database {} from public")
    return empty_database


def _administer(database: Database, statement: LiteralString) -> None:
    composed = sql.SQL(statement).format(sql.Identifier(database.name))
    database.execute(text_of(composed))


async def test_a_role_without_rights_is_told_so(ordinary: Database) -> None:
    with pytest.raises(DatabaseRefused, match="The role lacks a right: permission denied for database"):
        await migrate(sessions.Database(ordinary.worker_dsn))


async def test_a_role_that_may_create_in_the_database_is_enough(ordinary: Database) -> None:
    _administer(ordinary, "grant create on database {} to worker")
    assert await migrate(sessions.Database(ordinary.worker_dsn)) == list(migrations())
    assert ordinary.value("select nspowner::regrole::text from pg_namespace where nspname = 'pgcron'") == WORKER_ROLE
    await work_through_one_run(ordinary, ordinary.worker_dsn)


async def test_a_role_that_owns_the_database_is_enough(ordinary: Database) -> None:
    _administer(ordinary, "alter database {} owner to worker")
    assert await migrate(sessions.Database(ordinary.worker_dsn)) == list(migrations())
    await work_through_one_run(ordinary, ordinary.worker_dsn)


async def test_a_role_that_owns_an_empty_schema_pgcron_is_enough(ordinary: Database) -> None:
    ordinary.execute("create schema pgcron authorization worker")
    assert await migrate(sessions.Database(ordinary.worker_dsn)) == list(migrations())
    await work_through_one_run(ordinary, ordinary.worker_dsn)


# -------------------------------------------------------------------------------------------- hostile places

_EVIL: LiteralString = """
    create schema evil authorization worker;
    create table evil.jobs (id integer, trap text);
    create table evil.runs (id integer, trap text);
    create function evil.now() returns timestamptz language sql as $$ select '1999-01-01Z'::pg_catalog.timestamptz $$;
    create function evil.clock_timestamp() returns timestamptz language sql
        as $$ select '1999-01-01Z'::pg_catalog.timestamptz $$;
    create function evil.btrim(text) returns text language sql as $$ select ''::pg_catalog.text $$;
    create function evil.pg_notify(text, text) returns void language sql as $$ select 1 / 0 $$;
    create function evil.pg_try_advisory_lock(integer, integer) returns boolean language sql as $$ select true $$;
    create function evil.pg_try_advisory_xact_lock(bigint) returns boolean language sql as $$ select false $$;
    create function evil.liar(text, text) returns boolean language sql as $$ select false $$;
    create operator evil.= (leftarg = text, rightarg = text, function = evil.liar);
    create function evil.liar(integer, integer) returns boolean language sql as $$ select false $$;
    create operator evil.= (leftarg = integer, rightarg = integer, function = evil.liar);
    create function evil.liar(bigint, bigint) returns boolean language sql as $$ select false $$;
    create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.liar);
    grant usage on schema evil to worker
"""


@pytest.fixture
def hostile(ordinary: Database) -> Database:
    """Whoever connects finds a search_path whose first schema shadows what everybody uses (O33)."""
    ordinary.execute(_EVIL)
    _administer(ordinary, "alter database {} set search_path = evil, pg_catalog, public")
    _administer(ordinary, "grant create on database {} to worker")
    ordinary.close()
    assert ordinary.value("select now()") == datetime(1999, 1, 1, tzinfo=UTC)
    return ordinary


async def test_a_hostile_search_path_changes_nothing(hostile: Database) -> None:
    assert await migrate(sessions.Database(hostile.worker_dsn)) == list(migrations())
    assert hostile.rows("select count(*) from evil.jobs") == [(0,)]
    await work_through_one_run(hostile, hostile.worker_dsn)


async def test_a_hostile_search_path_does_not_reach_the_transaction_of_a_sql_job(hostile: Database) -> None:
    await migrate(sessions.Database(hostile.worker_dsn))
    await run_one_sql_job(hostile, hostile.worker_dsn)


@pytest.fixture
def tokyo(ordinary: Database) -> Database:
    """The database's own settings are as odd as they may be (O34)."""
    _administer(ordinary, "alter database {} set timezone = 'Asia/Tokyo'")
    _administer(ordinary, "alter database {} set datestyle = 'German, DMY'")
    _administer(ordinary, "alter database {} set intervalstyle = 'sql_standard'")
    _administer(ordinary, "alter database {} set default_transaction_isolation = 'serializable'")
    _administer(ordinary, "alter database {} set statement_timeout = '1h'")
    _administer(ordinary, "grant create on database {} to worker")
    ordinary.close()
    assert ordinary.value("select now()::text like '%%.%%.%%'") is True
    return ordinary


async def test_the_databases_zone_and_styles_change_no_time(tokyo: Database) -> None:
    assert await migrate(sessions.Database(tokyo.worker_dsn)) == list(migrations())
    await work_through_one_run(tokyo, tokyo.worker_dsn)


async def test_a_sql_job_runs_under_the_databases_zone_and_styles(tokyo: Database) -> None:
    await migrate(sessions.Database(tokyo.worker_dsn))
    result = await run_one_sql_job(tokyo, tokyo.worker_dsn, command="select current_setting('TimeZone')")
    assert result["value"] == "Asia/Tokyo"


# ------------------------------------------------------------------------------------------- a whole run


async def work_through_one_run(database: Database, dsn: str) -> None:
    """One occurrence through the duties, fired, claimed, failed and queued again, with every time checked."""
    target = sessions.Database(dsn)
    control, record = Session(target, Purpose.CONTROL), Session(target, Purpose.RECORD)
    try:
        async with control.use() as connection:
            await check_schema(connection)
        due, task = await _fire_and_claim(database, control, kind="shell")
        assert (task.timeout, task.kill_grace) == (timedelta(days=1, hours=1), timedelta(seconds=10))
        outcome = Outcome(Status.FAILED, 3, "boom", result={"a": 1}, output=Output("text", 4))
        ended_at = due + timedelta(seconds=5)
        finish = Finish(record, control, WORKER)
        assert await finish.step([Finished(task, outcome)], now=ended_at) == set()
        await finish.release([Finished(task, outcome)])
    finally:
        await control.close()
        await record.close()
    with psycopg.connect(database.dsn, options=_PLAIN) as connection:
        rows = connection.execute(
            """select status, attempt, scheduled_for, started_at, finished_at, output, result,
                      run_at - %s between '30 s' and '33 s' from pgcron.runs order by attempt""",
            (ended_at,),
        ).fetchall()
    assert rows == [
        ("failed", 1, due, due, ended_at, "text", {"a": 1}, False),
        ("queued", 2, due, None, None, None, None, True),
    ]


async def run_one_sql_job(database: Database, dsn: str, *, command: str = "select 42") -> dict[str, Any]:
    """A SQL job through the duties, with its own transaction; returns what it recorded as its result."""
    target = sessions.Database(dsn)
    control = Session(target, Purpose.CONTROL)
    runner = SqlRunner(target, WORKER, sessions=1)
    try:
        due, task = await _fire_and_claim(database, control, kind="sql", command=command)
        outcome = await runner.run(task, Stop(), Live())
    finally:
        await runner.close()
        await control.close()
    with psycopg.connect(database.dsn, options=_PLAIN) as connection:
        rows = connection.execute(
            "select status, scheduled_for, finished_at > '2020-01-01Z' from pgcron.runs"
        ).fetchall()
    assert (outcome.status, outcome.error, outcome.recorded) == (Status.SUCCEEDED, None, True)
    assert rows == [("succeeded", due, True)]
    assert isinstance(outcome.result, dict)
    return outcome.result


_NIGHTLY = {"schedule": "0 3 * * *", "timezone": "Europe/Berlin", "timeout": "1 day 01:00", "max_attempts": 2}


async def _fire_and_claim(database: Database, control: Session, **columns: Any) -> tuple[datetime, Task]:
    """A job at three in the morning in Berlin, fired and claimed at its first occurrence, with the clock set."""
    with psycopg.connect(database.dsn, options=_PLAIN) as session:
        quiet = replace(database, _connection=session)
        session.autocommit = True
        made_at = datetime(2035, 7, 1, 12, tzinfo=UTC)
        add_job(quiet, "nightly", anchored_at=made_at, **_NIGHTLY | columns)
        register(quiet, WORKER)
    due = datetime(2035, 7, 2, 1, tzinfo=UTC)
    fire = Fire(control)
    planned = await fire.step(now=made_at)
    assert (planned.jobs, planned.lanes) == (1, frozenset())
    fired = await fire.step(now=due)
    assert fired.lanes == {Lane("default", 0)}
    claim = Claim(control, WORKER, tuple(Kind), list[LockedJob])
    [task] = (await claim.step(Lane("default", 0), limit=10, now=due)).tasks
    assert task.scheduled_for == due
    return due, task
