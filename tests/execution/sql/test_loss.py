"""Sessions and servers that go away."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status, StopReason
from tests.execution.sql.stage import (
    ALONE,
    DONE,
    MakeRunner,
    add_deferred_trigger,
    proxy_to,
    work,
)
from tests.execution.tasks import (
    AT_THE_GATE,
    claimed_task,
    next_task,
    recorded_status,
    running,
    session_pids,
    shut_gate,
    someone_waits,
    terminate_sessions,
    text_of,
)
from tests.support.databases import Database
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


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


def proxied(database: Database, proxy: Proxy, make_runner: MakeRunner) -> SqlRunner:
    return make_runner(database.dsn_through(proxy.port))


async def test_a_commit_whose_answer_was_lost_is_believed(database: Database, make_runner: MakeRunner) -> None:
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


async def test_a_commit_that_still_goes_on_is_waited_for(database: Database, make_runner: MakeRunner) -> None:
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


async def test_the_wait_for_a_lost_answer_ends_with_the_lease(database: Database, make_runner: MakeRunner) -> None:
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
    database: Database, make_runner: MakeRunner
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


async def test_a_session_given_back_after_the_end_is_closed(database: Database, make_runner: MakeRunner) -> None:
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
    database: Database, make_runner: MakeRunner
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
