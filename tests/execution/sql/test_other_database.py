"""SQL jobs on another database: args.connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.embedded import Server
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import NextRun, Status, StopReason
from tests.execution.sql.stage import DONE, WORK, MakeRunner, add_deferred_trigger, proxy_to, sleeper, work
from tests.execution.tasks import (
    AT_THE_GATE,
    SESSION_NAME,
    claimed_task,
    next_task,
    recorded_status,
    running,
    session_pids,
    shut_gate,
    someone_waits,
    terminate_sessions,
    text_of,
    value_of,
)
from tests.support.databases import Database, new_database
from tests.support.waiting import eventually

THERE = {"connection": "reporting"}
THERE_ALONE = {"connection": "reporting", "transaction": False}


@pytest.fixture
def there(server: Server) -> Iterator[Database]:
    """Another database, which knows no schedule."""
    with new_database(server) as there:
        there.execute(WORK)
        yield there


def connection_to(dsn: str) -> dict[str, sessions.Database]:
    return {"reporting": sessions.Database(dsn, application_name=SESSION_NAME)}


@pytest.fixture
def runner(make_runner: MakeRunner, there: Database) -> SqlRunner:
    return make_runner(connections=connection_to(there.dsn))


async def test_the_work_is_done_there_and_recorded_here(database: Database, there: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, f"{DONE}; select current_database()::text", args=THERE)
    outcome = await runner.run(task, Stop(), Live())
    assert (value_of(outcome), outcome.recorded) == (there.name, False)
    assert (work(database), work(there), recorded_status(database, task)) == (0, 1, "running")


async def test_it_is_one_transaction_there(database: Database, there: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, f"{DONE}; select 1/0", args=THERE), Stop(), Live())
    assert (outcome.status, work(there)) == (Status.FAILED, 0)
    outcome = await runner.run(claimed_task(database, f"{DONE}; commit", name="ends it", args=THERE), Stop(), Live())
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: COMMIT would end the transaction")
    assert work(there) == 0


async def test_without_a_transaction_statements_there_stand_alone(
    database: Database, there: Database, runner: SqlRunner
) -> None:
    task = claimed_task(database, f"{DONE}; vacuum work; select 1/0", args=THERE_ALONE)
    assert (await runner.run(task, Stop(), Live())).status is Status.FAILED
    assert work(there) == 1


@pytest.mark.parametrize("args", [THERE, THERE_ALONE])
async def test_the_job_is_told_there_which_run_it_is(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    names = ("run_id", "job", "scheduled_for", "attempt", "args", "state")
    command = "select jsonb_build_array({})".format(", ".join(f"current_setting('pgcron.{name}')" for name in names))
    task = replace(claimed_task(database, command, args=args), state={"at": 4711})
    told = value_of(await runner.run(task, Stop(), Live()))
    assert told[:4] == [str(task.run_id), "nightly", "2026-03-01T18:00:00+00:00", "1"]
    assert (told[4], told[5]) == (str(args).replace("'", '"').replace("False", "false"), '{"at": 4711}')
    # Nothing of it is left for the next job on that session.
    after = claimed_task(database, "select current_setting('pgcron.mine', true)", name="after", args=args)
    assert not value_of(await runner.run(after, Stop(), Live()))


@pytest.mark.parametrize("args", [THERE, THERE_ALONE])
async def test_settings_speak_for_the_run_where_there_are_no_functions(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    command = """do $$begin
        raise info using errcode = 'PGC01', message = 'half', detail = '{"percent": 50}';
        perform set_config('pgcron.state', '{"at": 9}', false);
        perform set_config('pgcron.next_runs', '[{"after": 10, "args": {"day": 2}}, {"job": "other"}]', false);
    end$$"""
    live = Live()
    outcome = await runner.run(claimed_task(database, command, args=args), Stop(), live)
    assert (outcome.status, outcome.progress, outcome.state) == (Status.SUCCEEDED, {"percent": 50}, {"at": 9})
    assert outcome.next_runs == (NextRun(None, timedelta(seconds=10), {"day": 2}), NextRun("other"))
    assert text_of(outcome) == "DO\n"


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("state", "at 9", "the setting pgcron.state does not hold JSON"),
        ("next_runs", '{"job": "other"}', "the setting pgcron.next_runs does not hold a JSON array"),
        ("next_runs", '[{"jobb": "other"}]', "pgcron.next_runs, number 1 is not an object with job, after, args"),
    ],
)
async def test_what_cannot_be_read_of_them_fails_the_run_before_its_commit(
    database: Database, there: Database, runner: SqlRunner, setting: str, value: str, words: str
) -> None:
    command = f"{DONE}; select set_config('pgcron.{setting}', '{value}', false)"
    outcome = await runner.run(claimed_task(database, command, args=THERE), Stop(), Live())
    assert outcome.status is Status.FAILED
    assert words in (outcome.error or "")
    assert work(there) == 0


# Names


async def test_a_connection_that_the_worker_does_not_know_is_refused_with_those_it_knows(
    database: Database, make_runner: MakeRunner, there: Database
) -> None:
    task = claimed_task(database, DONE, args={"connection": "ware-house"})
    found = [
        (await make_runner(connections=known).run(task, Stop(), Live())).error
        for known in ({}, connection_to(there.dsn) | {"archive": sessions.Database(there.dsn)})
    ]
    sentence = "launch failed: args.connection is 'ware-house', which this worker does not know; it knows: {};"
    sentence += " start it with --connection ware-house=env:WARE_HOUSE_DSN"
    assert found == [sentence.format("none"), sentence.format("archive, reporting")]
    assert work(database) == 0


@pytest.mark.parametrize("name", ["", 7, True, ["reporting"]])
async def test_a_connection_must_be_a_name(database: Database, runner: SqlRunner, name: object) -> None:
    outcome = await runner.run(claimed_task(database, DONE, args={"connection": name}), Stop(), Live())
    assert outcome.error == f'launch failed: args.connection is {name!r}, not a name such as "reporting"'


async def test_a_server_that_refuses_is_told_without_its_password(
    database: Database, make_runner: MakeRunner, server: Server
) -> None:
    dsn = f"host=127.0.0.1 port={server.port} dbname=nowhere user=nobody password=hush-hush"
    runner = make_runner(connections=connection_to(dsn))
    outcome = await runner.run(claimed_task(database, DONE, args=THERE), Stop(), Live())
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: connection reporting: Postgres refuses")
    assert "hush-hush" not in outcome.error


async def test_a_server_that_is_away_is_waited_for_and_named_in_the_end(
    database: Database, make_runner: MakeRunner
) -> None:
    stop = Stop()
    runner = make_runner(connections=connection_to("host=127.0.0.1 port=1"))
    async with running(runner.run, claimed_task(database, DONE, args=THERE), stop) as going:
        await asyncio.sleep(0.3)
        assert not going.done()
        stop.request(StopReason.TIMEOUT)
        outcome = await going
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: connection reporting: Postgres cannot be reached: ")


async def test_a_job_may_read_from_a_read_only_database(database: Database, there: Database, runner: SqlRunner) -> None:
    there.execute(f"alter database {there.name} set default_transaction_read_only = on")
    outcome = await runner.run(claimed_task(database, "select count(*) from work", args=THERE), Stop(), Live())
    assert value_of(outcome) == 0


# The fence


async def test_a_run_that_was_taken_before_it_begins_does_nothing_there(
    database: Database, there: Database, runner: SqlRunner
) -> None:
    task = claimed_task(database, DONE, args=THERE)
    database.execute("update pgcron.runs set status = 'lost', finished_at = now()")
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(there) == 0


async def test_a_run_that_was_taken_meanwhile_is_rolled_back_there(
    database: Database, there: Database, runner: SqlRunner
) -> None:
    task = claimed_task(database, f"{DONE}; {AT_THE_GATE}", args=THERE)
    with shut_gate(there) as open_gate:
        async with running(runner.run, task) as going:
            await someone_waits(there)
            database.execute("update pgcron.runs set status = 'lost', finished_at = now()")
            open_gate()
            outcome = await going
    assert (outcome.status, outcome.reason) == (Status.LOST, "the run was taken over by another worker")
    assert work(there) == 0


async def test_the_commit_waits_for_a_word_from_the_schedules_own_database(
    database: Database, there: Database, make_runner: MakeRunner
) -> None:
    with proxy_to(database) as proxy, shut_gate(there) as open_gate:
        runner = make_runner(database.dsn_through(proxy.port), connections=connection_to(there.dsn))
        task = claimed_task(database, f"{DONE}; {AT_THE_GATE}", args=THERE)
        async with running(runner.run, task) as going:
            await someone_waits(there)
            proxy.cut()
            open_gate()
            await asyncio.sleep(0.5)
            assert (going.done(), work(there)) == (False, 0)
            proxy.resume()
            assert (await going).status is Status.SUCCEEDED
    assert work(there) == 1


async def test_a_stop_while_it_waits_for_that_word_undoes_the_work(
    database: Database, there: Database, make_runner: MakeRunner
) -> None:
    stop = Stop()
    with proxy_to(database) as proxy, shut_gate(there) as open_gate:
        runner = make_runner(database.dsn_through(proxy.port), connections=connection_to(there.dsn))
        task = claimed_task(database, f"{DONE}; {AT_THE_GATE}", args=THERE)
        async with running(runner.run, task, stop) as going:
            await someone_waits(there)
            proxy.cut()
            open_gate()
            await asyncio.sleep(0.2)
            stop.request(StopReason.LEASE, now=True)
            async with asyncio.timeout(3):
                assert (await going).status is not Status.SUCCEEDED
    assert work(there) == 0


async def test_two_transactions_of_a_job_do_not_overlap_there_either(
    database: Database, there: Database, make_runner: MakeRunner
) -> None:
    other = connection_to(there.dsn)
    first = claimed_task(database, f"{DONE}; {AT_THE_GATE}", args=THERE)
    with shut_gate(there) as open_gate:
        async with running(make_runner(connections=other).run, first) as going:
            await someone_waits(there)
            second = replace(next_task(database, first), args=THERE)
            refused = await make_runner(connections=other, lock_patience=0).run(second, Stop(), Live())
            assert refused.reason == "another transaction of this job is still running; nothing was done"
            # A job of another name does not mind.
            free = claimed_task(database, DONE, name="another", args=THERE)
            assert (await make_runner(connections=other, lock_patience=0).run(free, Stop(), Live())).recorded is False
            open_gate()
            assert (await going).status is Status.LOST
    assert work(there) == 1


# Stops and losses


async def test_a_stop_cancels_it_there(database: Database, there: Database, runner: SqlRunner) -> None:
    stop = Stop()
    async with running(runner.run, claimed_task(database, f"{DONE}; select pg_sleep(600)", args=THERE), stop) as going:
        await sleeper(there)
        stop.request(StopReason.CANCEL)
        async with asyncio.timeout(3):
            outcome = await going
    assert outcome.error == "57014: canceling statement due to user request"
    assert work(there) == 0


async def test_sessions_there_are_kept_and_counted_by_themselves(
    database: Database, there: Database, make_runner: MakeRunner
) -> None:
    runner = make_runner(sessions_=1, connections=connection_to(there.dsn))
    pids = []
    for number in range(3):
        task = claimed_task(database, "select pg_backend_pid()", name=f"there {number}", args=THERE)
        pids.append(value_of(await runner.run(task, Stop(), Live())))
        here = claimed_task(database, "select pg_backend_pid()", name=f"here {number}")
        pids.append(value_of(await runner.run(here, Stop(), Live())))
    assert len(set(pids)) == 2
    assert len(session_pids(database)) == 2


async def test_a_commit_there_whose_answer_was_lost_is_looked_up(
    database: Database, there: Database, make_runner: MakeRunner
) -> None:
    add_deferred_trigger(there, "perform pg_advisory_xact_lock(4711)")
    with proxy_to(there) as proxy, shut_gate(there) as open_gate:
        runner = make_runner(connections=connection_to(there.dsn_through(proxy.port)))
        async with running(runner.run, claimed_task(database, DONE, args=THERE)) as going:
            await someone_waits(there)
            proxy.stall()
            open_gate()
            eventually(lambda: work(there) == 1)
            proxy.cut()
            proxy.resume()
            outcome = await going
    assert (outcome.status, text_of(outcome)) == (Status.SUCCEEDED, "INSERT 0 1\n")


async def test_a_commit_there_that_was_undone_is_told_as_lost(
    database: Database, there: Database, runner: SqlRunner
) -> None:
    add_deferred_trigger(there, "perform pg_advisory_xact_lock(4711)")
    with shut_gate(there):
        async with running(runner.run, claimed_task(database, DONE, args=THERE)) as going:
            await someone_waits(there)
            terminate_sessions(there)
            outcome = await going
    assert outcome.status is Status.LOST
    assert outcome.reason == "the server failed during the commit; the work was rolled back"
    assert work(there) == 0


async def test_a_commit_of_a_server_that_stays_away_is_unknown(
    database: Database, there: Database, make_runner: MakeRunner
) -> None:
    add_deferred_trigger(there, "perform pg_advisory_xact_lock(4711)")
    stop = Stop()
    with proxy_to(there) as proxy, shut_gate(there):
        runner = make_runner(connections=connection_to(there.dsn_through(proxy.port)))
        async with running(runner.run, claimed_task(database, DONE, args=THERE), stop) as going:
            await someone_waits(there)
            proxy.cut()
            await asyncio.sleep(0.1)
            assert not going.done()
            stop.request(StopReason.LEASE, now=True)
            async with asyncio.timeout(2):
                outcome = await going
    assert outcome.reason == "the server did not answer the commit before the lease ended"
    terminate_sessions(there)


async def test_sessions_there_carry_the_workers_name(database: Database, runner: SqlRunner) -> None:
    name = "select current_setting('application_name')"
    assert value_of(await runner.run(claimed_task(database, name, args=THERE), Stop(), Live())) == SESSION_NAME
