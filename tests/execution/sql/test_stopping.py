"""A SQL job is stopped on the server, whatever it does there."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status, StopReason
from tests.execution.sql.stage import (
    DONE,
    MakeRunner,
    add_deferred_trigger,
    sleeper,
    work,
)
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
)
from tests.support.databases import Database
from tests.support.waiting import eventually, eventually_async


async def test_a_stop_cancels_the_statement_on_the_server_and_undoes_all(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, f"{DONE}; select pg_sleep(600)")
    async with running(runner.run, task, stop) as going:
        await sleeper(database)
        stop.request(StopReason.CANCEL)
        outcome = await going
    assert outcome.status is Status.FAILED
    assert outcome.error == "57014: canceling statement due to user request"
    assert text_of(outcome) == "INSERT 0 1\n"
    assert work(database) == 0
    assert recorded_status(database, task) == "running"
    eventually(lambda: not session_pids(database), message="a session that was cancelled is not used again")


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
    assert time.monotonic() - before >= 0.7
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


@pytest.mark.parametrize(
    "busy",
    [
        "lock table work in access exclusive mode",
        "do $$declare n bigint := 0; begin loop n := n + 1; end loop; end$$",
        "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b",
        "select pg_notify('x', pg_sleep(600)::text)",
    ],
    ids=["lock", "loop", "query", "function"],
)
async def test_a_request_to_cancel_reaches_whatever_it_does(database: Database, runner: SqlRunner, busy: str) -> None:
    stop = Stop()
    task = claimed_task(database, f"create table mine (); {busy}")
    with psycopg.connect(database.dsn) as other:
        other.execute("lock table work in access share mode")
        async with running(runner.run, task, stop) as going:
            await runs_on_the_server(database, busy)
            stop.request(StopReason.CANCEL)
            outcome = await going
    assert outcome.error is not None
    assert outcome.error.startswith("57014: canceling statement due to user request")
    assert database.value("select to_regclass('mine')") is None


async def runs_on_the_server(database: Database, statement: str) -> None:
    async def runs() -> bool:
        look = "select true from pg_stat_activity where query = %s and state = 'active' and application_name = %s"
        return bool(database.value(look, (statement, SESSION_NAME)))

    await eventually_async(runs, message="the statement runs")


async def test_a_request_to_cancel_reaches_the_program_that_a_copy_writes_to(
    database: Database, runner: SqlRunner
) -> None:
    stop = Stop()
    copy = "copy (select 1) to program 'sleep 600'"
    async with running(runner.run, claimed_task(database, f"{DONE}; {copy}"), stop) as going:
        await runs_on_the_server(database, copy)
        stop.request(StopReason.CANCEL)
        outcome = await going
    assert outcome.error is not None
    assert outcome.error.startswith(("57014", "38000: program "))
    assert work(database) == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the server's user can look into."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_program_that_heeds_no_signal_is_left_behind_and_keeps_the_next_run_away(
    database: Database, make_runner: MakeRunner, open_folder: Path
) -> None:
    """Nothing ends a server process that waits for it; its transaction cannot commit any more."""
    stop, gate = Stop(), open_folder / "gate"
    program = f"trap : INT TERM; while [ ! -e {gate} ]; do sleep 0.05; done"
    copy = f"copy (select 1) to program '{program}'"
    task = claimed_task(database, f"{DONE}; {copy}", kill_grace=timedelta(seconds=0.3))
    async with running(make_runner().run, task, stop) as going:
        await runs_on_the_server(database, copy)
        stop.request(StopReason.TIMEOUT)
        outcome = await going
    assert (outcome.status, outcome.reason) == (Status.LOST, "the session was lost; the work was rolled back")
    [pid] = session_pids(database)
    second = replace(next_task(database, task), command=DONE)
    refused = await make_runner(lock_patience=0).run(second, Stop(), Live())
    assert refused.reason == "another transaction of this job is still running; nothing was done"
    gate.touch()
    eventually(lambda: pid not in session_pids(database), message="the program has ended, and with it the session")
    assert (await make_runner().run(second, Stop(), Live())).recorded
    assert work(database) == 1


async def test_a_job_that_will_not_hear_nor_notice_that_its_client_is_gone_is_terminated(
    database: Database, runner: SqlRunner
) -> None:
    stop = Stop()
    task = claimed_task(
        database, f"set client_connection_check_interval = 0; {DONE}; {DEAF}", kill_grace=timedelta(seconds=0.1)
    )
    async with running(runner.run, task, stop) as going:
        await sleeper(database)
        stop.request(StopReason.TIMEOUT)
        outcome = await going
    assert outcome.status is Status.LOST
    eventually(lambda: not session_pids(database), message="its session is ended from outside")
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


async def test_a_run_that_waits_for_a_session_can_be_stopped(database: Database, make_runner: MakeRunner) -> None:
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


async def test_a_run_that_waits_for_a_server_can_be_stopped(make_runner: MakeRunner) -> None:
    stop = Stop()
    async with running(make_runner("host=127.0.0.1 port=1").run, some_task("select 1"), stop) as going:
        await asyncio.sleep(0.05)
        stop.request(StopReason.TIMEOUT)
        async with asyncio.timeout(2):
            assert (await going).status is Status.FAILED


async def test_a_stop_that_came_before_the_run_lets_nothing_begin(database: Database, runner: SqlRunner) -> None:
    assert (await runner.run(claimed_task(database, DONE), stopped(), Live())).status is Status.FAILED
    assert (work(database), session_pids(database)) == (0, [])
