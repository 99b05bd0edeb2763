"""SQL jobs without a transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status, StopReason
from tests.execution.sql.stage import (
    ALONE,
    DONE,
    work,
)
from tests.execution.tasks import (
    AT_THE_GATE,
    SESSION_NAME,
    claimed_task,
    recorded_status,
    running,
    shut_gate,
    someone_waits,
    terminate_sessions,
)
from tests.support.databases import Database
from tests.support.waiting import eventually, eventually_async


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


async def test_without_a_transaction_nothing_is_begun_where_the_run_is_not_known(
    database: Database, runner: SqlRunner
) -> None:
    """A session may find a server that has taken over, and has never heard of the claim."""
    task = claimed_task(database, DONE, args=ALONE)
    database.execute("delete from pgcron.runs")
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(database) == 0


@contextmanager
def standby_that_never_answers(database: Database) -> Iterator[None]:
    """No commit is answered meanwhile, unless somebody breaks off the wait."""
    database.execute("create table probe (n int)")
    database.execute("alter system set synchronous_standby_names = 'nobody'")
    try:
        database.rows("select pg_reload_conf()")
        with psycopg.connect(database.dsn, autocommit=True) as probe:
            pid = probe.info.backend_pid
            writing = threading.Thread(target=_write_until_it_ends, args=[probe])
            writing.start()
            waits = "select true from pg_stat_activity where pid = %s and wait_event = 'SyncRep'"
            eventually(lambda: database.rows(waits, [pid]), message="commits wait")
            database.value("select pg_terminate_backend(%s)", [pid])
            writing.join()
        yield
    finally:
        database.execute("alter system reset synchronous_standby_names")
        database.rows("select pg_reload_conf()")


def _write_until_it_ends(probe: psycopg.Connection) -> None:
    with suppress(psycopg.Error):
        while True:
            probe.execute("insert into probe values (1)")


async def test_without_a_transaction_what_the_standby_may_not_have_is_no_success(
    database: Database, runner: SqlRunner
) -> None:
    """The wait for a standby is broken off by the stop, and the statement succeeds: here, and perhaps nowhere else."""
    task = claimed_task(database, f"{AT_THE_GATE}; {DONE}", args=ALONE)
    stop, waits = Stop(), "select pid from pg_stat_activity where application_name = %s and wait_event = 'SyncRep'"
    with shut_gate(database) as open_gate:
        async with running(runner.run, task, stop) as going:
            await someone_waits(database)
            with standby_that_never_answers(database):
                open_gate()
                await eventually_async(lambda: _value(database, waits), message="it waits for the standby")
                stop.request(StopReason.LEASE)
                outcome = await going
    assert outcome.status is Status.LOST, outcome
    assert "standby" in str(outcome.reason)


async def _value(database: Database, statement: str) -> object:
    return database.value(statement, (SESSION_NAME,))
