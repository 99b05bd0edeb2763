"""`job resume --catch-up` as Fire then sees it, and `job run` where another run is in its way."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.conftest import Cli
from tests.duties.stage import staged
from tests.statements.builders import add_planned_job, add_running, statuses
from tests.support.databases import Database


def fire(database: Database) -> None:
    async def step() -> None:
        async with staged(database.dsn) as stage:
            await stage.fire.step()

    asyncio.run(step())


@pytest.mark.parametrize("until", [(), ("--until", "2100-01-01T00:00Z")], ids=["disabled", "until"])
def test_the_time_of_a_pause_is_caught_up_only_if_somebody_says_so(
    until: tuple[str, ...], cli: Cli, database: Database
) -> None:
    job_id = add_planned_job(database, next_run_at=None, schedule="0 * * * *", catch_up="latest")
    for arguments, expected in (((), []), (("--catch-up",), ["missed", "queued"])):
        cli("job", "pause", "job", *until)
        # As if the pause had begun five hours ago.
        database.execute("update pgcron.jobs set anchored_at = now() - interval '5 hours'")
        result = cli("job", "resume", "job", *arguments)
        assert ("is caught up by the job's rule, catch_up latest." in result.out) is bool(arguments)
        fire(database)
        assert statuses(database, job_id) == expected
    assert database.value("select missed_count from pgcron.runs where status = 'missed'") == 4


def test_who_was_not_paused_has_nothing_to_catch_up(cli: Cli, database: Database) -> None:
    add_planned_job(database, next_run_at=None, schedule="0 * * * *")
    database.execute("update pgcron.jobs set anchored_at = now() - interval '5 hours', planned = true")
    anchored_at = database.value("select anchored_at from pgcron.jobs")
    cli("job", "resume", "job", "--catch-up")
    assert database.value("select anchored_at from pgcron.jobs") == anchored_at


def test_a_run_in_the_way_skips_it_and_the_way_round_is_told(cli: Cli, database: Database) -> None:
    job_id = add_planned_job(database, "a job")
    running = add_running(database, job_id)
    result = cli("job", "run", "a job")
    run_id = database.value("select max(id) from pgcron.runs")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"Error: Run {run_id} of job a job was skipped: overlap: run {running} is still running. "
        "To have it wait for that one: pgcron-runner job run 'a job' --overlap queue_one\n"
    )
    assert cli("job", "run", "a job", "--overlap", "queue_one").code == 0
    again = cli("job", "run", "a job", "--overlap", "queue_one")
    assert (again.code, "is still queued" in again.err, "--overlap queue_all" in again.err) == (1, True, True)
    assert cli("job", "run", "a job", "--overlap", "queue_all", "--json").json["status"] == "queued"
    skipped = cli("job", "run", "a job", "--json")
    assert (skipped.code, skipped.json["status"]) == (1, "skipped")


def test_replace_asks_the_running_one_to_stop(cli: Cli, database: Database) -> None:
    job_id = add_planned_job(database)
    add_running(database, job_id)
    assert cli("job", "run", "job", "--overlap", "replace").code == 0
    assert database.value("select count(*) from pgcron.runs where cancel_requested_at is not null") == 1
