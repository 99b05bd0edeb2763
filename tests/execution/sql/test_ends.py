"""A command cannot end the transaction that it shares with its record."""

from __future__ import annotations

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status
from tests.execution.sql.stage import (
    DONE,
    work,
)
from tests.execution.tasks import (
    claimed_task,
    recorded_status,
    session_pids,
)
from tests.support.databases import Database

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
