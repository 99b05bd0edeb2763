"""A SQL job that fails undoes all it did, and says why."""

from __future__ import annotations

import pytest

from pgcron_runner.embedded import Server
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status
from tests.execution.sql.stage import (
    DONE,
    MakeRunner,
    add_deferred_trigger,
    work,
)
from tests.execution.tasks import (
    claimed_task,
    recorded_status,
    text_of,
)
from tests.support.databases import Database


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
    database: Database, make_runner: MakeRunner, server: Server
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
