"""SQL jobs without a transaction."""

from __future__ import annotations

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status
from tests.execution.sql.stage import (
    ALONE,
    DONE,
    work,
)
from tests.execution.tasks import (
    AT_THE_GATE,
    claimed_task,
    recorded_status,
    running,
    shut_gate,
    someone_waits,
    terminate_sessions,
)
from tests.support.databases import Database


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
