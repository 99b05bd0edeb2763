"""What a SQL job says of itself through the schema's functions: progress, saved state, and runs that come after it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import NextRun, Status, StopReason
from tests.execution.sql.stage import ALONE, DONE, MakeRunner, work
from tests.execution.tasks import (
    AT_THE_GATE,
    claimed_task,
    recorded_status,
    running,
    shut_gate,
    someone_waits,
    terminate_sessions,
    text_of,
    value_of,
)
from tests.statements.builders import add_job
from tests.support.databases import Database
from tests.support.waiting import eventually_async

BOTH = pytest.mark.parametrize("args", [{}, ALONE], ids=["transaction", "autocommit"])
AT_9 = """select pgcron.save_state('{"at": 9}')"""


def saved(database: Database) -> Any:
    """What the rows of the job "nightly" have saved, oldest first."""
    return [row[0] for row in database.rows("select state from pgcron.runs where job_name = 'nightly' order by id")]


def asked_for(database: Database) -> list[tuple[Any, ...]]:
    """The runs that a recorded one has started: job, trigger, args, state, seconds to wait."""
    return database.rows(
        """select job_name, trigger, args, state, round(extract(epoch from run_at - now())) from pgcron.runs
            where parent_run_id is not null order by id"""
    )


# Progress


@BOTH
async def test_progress_is_heard_while_the_statement_runs(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    live = Live()
    loop = "perform pgcron.progress(40, 'copied'); perform pg_advisory_xact_lock(4711); perform pgcron.progress(100)"
    task = claimed_task(database, f"set client_min_messages = 'error'; do $$begin {loop}; end$$", args=args)
    with shut_gate(database) as open_gate:
        async with running(runner.run, task, live=live) as going:
            await someone_waits(database)

            async def said() -> Any:
                return live.progress

            assert await eventually_async(said) == {"percent": 40, "text": "copied"}
            open_gate()
            outcome = await going
    assert (outcome.progress, text_of(outcome)) == ({"percent": 100}, "SET\nDO\n")


async def test_the_last_progress_is_recorded_with_the_work(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, "select pgcron.progress(12.34, '👍'); select pgcron.progress(99.95, 'nearly')")
    assert (await runner.run(task, Stop(), Live())).recorded
    assert database.value("select progress from pgcron.runs") == {"percent": 100, "text": "nearly"}


async def test_a_run_that_fails_keeps_its_last_progress(database: Database, runner: SqlRunner) -> None:
    outcome = await runner.run(claimed_task(database, "select pgcron.progress(7); select 1/0"), Stop(), Live())
    assert (outcome.status, outcome.progress) == (Status.FAILED, {"percent": 7})


@pytest.mark.parametrize(
    ("call", "progress"),
    [
        ("(33.3333)", {"percent": 33.3}),
        ("(7::int, 'x')", {"percent": 7, "text": "x"}),
        ("(120)", {"percent": 100}),
        ("(-1)", {"percent": 0}),
        ("('infinity')", {"percent": 100}),
        ("('NaN', 'x')", {"text": "x"}),
        ("(null, 'half')", {"text": "half"}),
        ("(null)", {}),
        ("(1, repeat('€', 3000))", {"percent": 1, "text": "€" * 1000}),
    ],
)
async def test_progress_never_fails(database: Database, runner: SqlRunner, call: str, progress: object) -> None:
    if "infinity" in call and database.value("select current_setting('server_version_num')::int") < 140000:
        pytest.skip("numeric has no infinity there")
    outcome = await runner.run(claimed_task(database, f"{DONE}; select pgcron.progress{call}"), Stop(), Live())
    assert (outcome.progress, work(database)) == (progress, 1)


@pytest.mark.parametrize("detail", ["nonsense", "[1]", "", '{"a": "' + "x" * 9000 + '"}'])
async def test_somebody_elses_message_with_its_code_is_printed(
    database: Database, runner: SqlRunner, detail: str
) -> None:
    raised = f"raise info using errcode = 'PGC01', message = 'hm', detail = '{detail}'"
    outcome = await runner.run(claimed_task(database, f"do $$begin {raised}; end$$"), Stop(), Live())
    assert (outcome.progress, text_of(outcome)) == (None, "INFO: hm\nDO\n")


# State


async def test_a_saved_state_commits_with_the_work(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, f"{DONE}; {AT_9}; select pgcron.state()")
    assert value_of(await runner.run(task, Stop(), Live())) == {"at": 9}
    assert saved(database) == [{"at": 9}]
    assert len(database.rows("select xmin from work union select xmin from pgcron.runs")) == 1


async def test_of_a_transaction_that_fails_the_old_state_stays(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, f"{AT_9}; {DONE}; select 1/0")
    database.execute("""update pgcron.runs set state = '{"at": 5}'""")
    outcome = await runner.run(replace(task, state={"at": 5}), Stop(), Live())
    assert (outcome.status, outcome.state, saved(database)) == (Status.FAILED, None, [{"at": 5}])


async def test_a_state_saved_after_a_savepoint_goes_with_it(database: Database, runner: SqlRunner) -> None:
    command = f"""{AT_9}; savepoint a; select pgcron.save_state('{{"at": 10}}'); rollback to a; select pgcron.state()"""
    await runner.run(claimed_task(database, command), Stop(), Live())
    assert saved(database) == [{"at": 9}]


@BOTH
async def test_a_run_finds_what_was_saved_before_it(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    before = {"at": 9, "words": "it's \\ 🎉", "list": [None, 1.5]}
    task = replace(claimed_task(database, "select pgcron.state()", args=args), state=before)
    assert value_of(await runner.run(task, Stop(), Live())) == before
    nothing = claimed_task(database, "select pgcron.state() is null", name="next", args=args)
    assert value_of(await runner.run(nothing, Stop(), Live())) is True


async def test_without_a_transaction_a_state_is_saved_at_once(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, f"{AT_9}; {AT_THE_GATE}", args=ALONE)
    with shut_gate(database):
        async with running(runner.run, task) as going:
            await someone_waits(database)
            assert saved(database) == [{"at": 9}]
            terminate_sessions(database)
            assert (await going).status is Status.LOST


async def test_without_a_transaction_a_state_commits_with_the_jobs_own(database: Database, runner: SqlRunner) -> None:
    undone = f"begin; {DONE}; select pgcron.save_state('1'); rollback; select pgcron.state()"
    outcome = await runner.run(claimed_task(database, f"{AT_9}; {undone}", args=ALONE), Stop(), Live())
    assert (outcome.state, saved(database), work(database)) == ({"at": 9}, [{"at": 9}], 0)


async def test_a_procedure_may_save_where_it_stands_with_each_commit(database: Database, runner: SqlRunner) -> None:
    body = """begin
        for n in coalesce((pgcron.state() ->> 'at')::int, 0) + 1 .. 3 loop
            insert into work values (n);
            perform pgcron.save_state(jsonb_build_object('at', n));
            commit;
            perform 1 / (n - 2 + coalesce((current_setting('my.second', true))::int, 0));
        end loop;
    end"""
    database.execute(f"create procedure in_steps() language plpgsql as $${body}$$")
    task = claimed_task(database, "call in_steps()", args=ALONE)
    assert (await runner.run(task, Stop(), Live())).error is not None
    [state] = saved(database)
    assert state == {"at": 2}
    again = replace(task, state=state, command="set my.second = 1; call in_steps()")
    assert (await runner.run(again, Stop(), Live())).status is Status.SUCCEEDED
    assert [row[0] for row in database.rows("select n from work order by n")] == [1, 2, 3]


async def test_without_a_transaction_a_run_that_was_taken_over_saves_nothing(
    database: Database, runner: SqlRunner
) -> None:
    task = claimed_task(database, f"{AT_THE_GATE}; {DONE}; {AT_9}; {DONE}", args=ALONE)
    with shut_gate(database) as open_gate:
        async with running(runner.run, task) as going:
            await someone_waits(database)
            database.execute("update pgcron.runs set status = 'lost', finished_at = now()")
            open_gate()
            outcome = await going
    assert outcome.error is not None
    assert f"run {task.run_id} is no longer this worker's: its state is not saved" in outcome.error
    assert (saved(database), work(database)) == ([None], 1)


@BOTH
async def test_null_forgets_what_was_saved(database: Database, runner: SqlRunner, args: dict[str, Any]) -> None:
    command = "select pgcron.save_state(null); select pgcron.state() is null"
    task = replace(claimed_task(database, command, args=args), state={"at": 5})
    assert value_of(await runner.run(task, Stop(), Live())) is True


@BOTH
async def test_a_state_may_have_a_mebibyte(database: Database, runner: SqlRunner, args: dict[str, Any]) -> None:
    big = "select pgcron.save_state(to_jsonb(repeat('x', {})))"
    task = claimed_task(database, big.format(2**20 - 2), args=args)
    assert (await runner.run(task, Stop(), Live())).status is Status.SUCCEEDED
    outcome = await runner.run(claimed_task(database, big.format(2**20 - 1), name="big", args=args), Stop(), Live())
    assert outcome.error is not None
    assert outcome.error.startswith("54000: state: it has 1048577 bytes, more than 1048576\nHINT: Keep where")


# Runs that come after it


async def test_runs_that_it_asks_for_are_started_with_its_commit(database: Database, runner: SqlRunner) -> None:
    add_job(database, "report")
    command = (
        f"""{AT_9}; select pgcron.run_after('1 hour'), pgcron.run_after(job => 'report', args => '{{"day": 2}}')"""
    )
    assert (await runner.run(claimed_task(database, command), Stop(), Live())).recorded
    assert asked_for(database) == [
        ("nightly", "chain", None, {"at": 9}, 3600),
        ("report", "chain", {"day": 2}, None, 0),
    ]


async def test_a_run_that_fails_starts_none(database: Database, runner: SqlRunner) -> None:
    task = claimed_task(database, "select pgcron.run_after(); select 1/0")
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.next_runs, asked_for(database)) == ((), [])


async def test_without_a_transaction_they_are_told_to_whoever_records(database: Database, runner: SqlRunner) -> None:
    command = """select pgcron.run_after('1.5 s'); select pgcron.run_after(args => '{"a": [1]}')"""
    outcome = await runner.run(claimed_task(database, command, args=ALONE), Stop(), Live())
    assert outcome.next_runs == (NextRun(None, timedelta(seconds=1.5)), NextRun(None, timedelta(0), {"a": [1]}))


@BOTH
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("job => 'reprot'", "23503: job: there is no job 'reprot'\nHINT: select name from pgcron.jobs lists them"),
        ("'-1 s'", "22023: delay: '-00:00:01' is not a duration of up to ten years\nHINT: Such as pgcron.run_after("),
        ("null", "22023: delay: null is not a duration"),
        ("'11 years'", "22023: delay: '11 years' is not a duration"),
        ("args => '[1]'", "22023: args: [1] is not a JSON object\nHINT: Such as"),
    ],
)
async def test_a_wrong_call_is_told_at_once(
    database: Database, runner: SqlRunner, args: dict[str, Any], call: str, error: str
) -> None:
    task = claimed_task(database, f"select pgcron.run_after({call}); {DONE}", args=args)
    outcome = await runner.run(task, Stop(), Live())
    assert outcome.error is not None
    assert outcome.error.startswith(error), outcome.error
    assert work(database) == 0


async def test_a_run_asks_for_a_thousand_others_at_most(database: Database, runner: SqlRunner) -> None:
    many = "select pgcron.run_after(args => jsonb_build_object('n', n)) from generate_series(1, {}) n"
    task = claimed_task(database, many.format(1000), args=ALONE)
    assert len((await runner.run(task, Stop(), Live())).next_runs) == 1000
    outcome = await runner.run(claimed_task(database, many.format(1001), name="more", args=ALONE), Stop(), Live())
    assert outcome.error is not None
    assert outcome.error.startswith("54000: one run cannot ask for more than 1000 others")


# What is left of it


@BOTH
async def test_the_next_job_on_the_session_finds_nothing_of_it(
    database: Database, make_runner: MakeRunner, args: dict[str, Any]
) -> None:
    runner = make_runner(sessions_=1)
    said = f"{AT_9}; select pgcron.run_after('1 year'); select pgcron.progress(50)"
    for name, command in {"good": said, "bad": f"{said}; select 1/0"}.items():
        await runner.run(claimed_task(database, command, name=name, args=args), Stop(), Live())
    names = ("state", "next_runs")
    look = "select jsonb_build_array({})".format(", ".join(f"current_setting('pgcron.{name}', true)" for name in names))
    for other in ({}, ALONE):
        outcome = await runner.run(claimed_task(database, look, name=f"after {other}", args=other), Stop(), Live())
        assert [setting or "" for setting in value_of(outcome)] == ["", ""]
        assert (outcome.progress, outcome.state, outcome.next_runs) == (None, None, ())


@BOTH
async def test_the_functions_serve_a_role_that_the_job_becomes(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    database.execute("grant usage on schema pgcron to worker")
    said = "select pgcron.progress(50), pgcron.state(), pgcron.run_after('1 s')"
    task = replace(claimed_task(database, f"set role worker; {said}; reset role", args=args), state={"at": 9})
    outcome = await runner.run(task, Stop(), Live())
    assert (outcome.status, outcome.progress) == (Status.SUCCEEDED, {"percent": 50})


async def test_a_setting_of_its_own_making_cannot_spoil_more_than_its_run(
    database: Database, runner: SqlRunner
) -> None:
    for number, name in enumerate(("state", "next_runs")):
        command = f"{DONE}; select set_config('pgcron.{name}', 'no JSON', true)"
        task = claimed_task(database, command, name=f"job {number}")
        outcome = await runner.run(task, Stop(), Live())
        assert outcome.error is not None
        assert outcome.error.startswith("22P02: invalid input syntax for type json")
        assert (recorded_status(database, task), work(database)) == ("running", 0)


async def test_a_stop_leaves_the_state_as_it_was(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, f"{AT_9}; {AT_THE_GATE}")
    with shut_gate(database):
        async with running(runner.run, task, stop) as going:
            await someone_waits(database)
            stop.request(StopReason.CANCEL)
            outcome = await going
    assert (outcome.state, saved(database)) == (None, [None])
