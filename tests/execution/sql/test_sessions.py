"""A job finds a clean session that says which run it is, and leaves nothing to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status
from tests.execution.sql.stage import (
    MakeRunner,
)
from tests.execution.tasks import (
    claimed_task,
    session_pids,
    value_of,
)
from tests.support.databases import Database


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
    database: Database, make_runner: MakeRunner, args: dict[str, Any]
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


async def test_a_failed_job_leaves_nothing_either(database: Database, make_runner: MakeRunner) -> None:
    runner = make_runner(sessions_=1)
    failing = "set timezone = 'Asia/Tokyo'; select pg_advisory_lock(12); select 1/0"
    assert (await runner.run(claimed_task(database, failing), Stop(), Live())).status is Status.FAILED
    [pid] = session_pids(database)
    looking = "select pg_backend_pid(), current_setting('timezone')"
    assert value_of(await runner.run(claimed_task(database, looking, name="after"), Stop(), Live())) == pid
    assert database.value("select count(*) from pg_locks where locktype = 'advisory'") == 0
