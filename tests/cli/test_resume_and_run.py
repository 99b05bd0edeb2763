"""`job resume --catch-up` as Fire then sees it, and `job run` where another run is in its way."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, LiteralString

import pytest

from tests.cli.conftest import Cli
from tests.duties.stage import staged
from tests.statements.builders import add_final, add_planned_job, add_running
from tests.support.databases import Database

MINUTE = timedelta(minutes=1)


def fire(database: Database) -> None:
    async def step() -> None:
        async with staged(database.dsn) as stage:
            await stage.fire.step()

    asyncio.run(step())


# As if the pause had begun five hours ago.
BEGAN = "update pgcron.jobs set anchored_at = now() - interval '5 hours'"
FOREVER = ("--until", "2100-01-01T00:00Z")


def hourly(database: Database, **columns: Any) -> int:
    return add_planned_job(database, next_run_at=None, **{"schedule": "0 * * * *", "catch_up": "latest"} | columns)


def what_is_there(database: Database) -> list[tuple[str, int, int]]:
    """How many hours of each kind stand in how many rows."""
    return database.rows(
        "select status, count(*)::int, sum(coalesce(missed_count, 1))::int from pgcron.runs group by 1 order by 1"
    )


@pytest.mark.parametrize("until", [(), FOREVER], ids=["disabled", "until"])
def test_the_time_of_a_pause_is_made_up_for_only_if_somebody_says_so(
    until: tuple[str, ...], cli: Cli, database: Database
) -> None:
    hourly(database)
    for arguments, expected in (((), []), (("--catch-up",), [("missed", 1, 4), ("queued", 1, 1)])):
        cli("job", "pause", "job", *until)
        database.execute(BEGAN)
        result = cli("job", "resume", "job", *arguments)
        assert (", 5h: 1 queued, 4 missed." in result.out) is bool(arguments)
        fire(database)
        assert what_is_there(database) == expected
    reason = "select reason from pgcron.runs where status = 'missed'"
    assert database.value(reason) == "these 4 fell due while the job was paused"


@pytest.mark.parametrize(
    "changes",
    [
        [FOREVER],
        [("--until", "2101-01-01T00:00Z"), ()],
        [(), FOREVER, ("--until", "2099-01-01T00:00Z")],
    ],
)
def test_a_pause_that_was_changed_is_made_up_for_from_its_beginning(
    changes: list[tuple[str, ...]], cli: Cli, database: Database
) -> None:
    hourly(database)
    cli("job", "pause", "job", "--until", "2100-06-01T00:00Z")
    database.execute(BEGAN)
    for change in changes:
        cli("job", "pause", "job", *change)
        fire(database)
    made_up = cli("job", "resume", "job", "--catch-up", "--json").json["caught_up"]
    fire(database)
    assert what_is_there(database) == [("missed", 1, 4), ("queued", 1, 1)]
    assert (made_up["queued"], made_up["skipped"], made_up["missed"]) == (1, 0, 4)
    since, until = (datetime.fromisoformat(made_up[name]) for name in ("since", "until"))
    assert timedelta(hours=5) - MINUTE < until - since < timedelta(hours=5) + MINUTE


@pytest.mark.parametrize(
    "change",
    [
        "paused_until = '2101-01-01Z'",
        "paused_until = now() + interval '1 hour'",
        "enabled = false",
        "enabled = false, paused_until = null",
    ],
)
def test_a_pause_that_was_changed_by_hand_is_the_same_one_too(
    change: LiteralString, cli: Cli, database: Database
) -> None:
    hourly(database)
    database.execute("update pgcron.jobs set paused_until = '2100-01-01Z'")
    database.execute(BEGAN)
    database.execute("update pgcron.jobs set " + change)
    fire(database)
    cli("job", "resume", "job", "--catch-up")
    assert what_is_there(database) == [("missed", 1, 4), ("queued", 1, 1)]


@pytest.mark.parametrize(
    "end", ["paused_until = null", "paused_until = now()", "paused_until = '2100-01-01Z', schedule = '1 * * * *'"]
)
def test_the_end_of_a_pause_by_hand_and_an_edit_begin_anew(end: LiteralString, cli: Cli, database: Database) -> None:
    hourly(database)
    database.execute("update pgcron.jobs set paused_until = '2100-01-01Z'")
    database.execute(BEGAN)
    database.execute("update pgcron.jobs set " + end)
    cli("job", "resume", "job", "--catch-up")
    fire(database)
    assert what_is_there(database) == []


def test_a_changed_pause_still_starts_from_now_without_catch_up(cli: Cli, database: Database) -> None:
    hourly(database, schedule="@every 1s")
    for until in (FOREVER, ("--until", "2101-01-01T00:00Z")):
        cli("job", "pause", "job", *until)
    database.execute("update pgcron.jobs set anchored_at = now() - interval '5 hours'")
    cli("job", "resume", "job")
    fire(database)
    assert database.value("select coalesce(sum(coalesce(missed_count, 1)), 0) from pgcron.runs") < 60


def test_an_edit_in_a_pause_is_made_up_for_from_the_edit(cli: Cli, database: Database) -> None:
    hourly(database)
    cli("job", "pause", "job", *FOREVER)
    database.execute(BEGAN)
    cli("job", "edit", "job", "--schedule", "0 3 * * 1")
    cli("job", "edit", "job", "--schedule", "0 * * * *")
    made_up = cli("job", "resume", "job", "--catch-up", "--json").json["caught_up"]
    since, until = (datetime.fromisoformat(made_up[name]) for name in ("since", "until"))
    assert until - since < MINUTE


def ended_by_itself(database: Database, **columns: Any) -> int:
    """Paused for four hours, until an hour ago; what has come since has fired."""
    job_id = hourly(database, **columns)
    database.execute("update pgcron.jobs set paused_until = now() - interval '1 hour'")
    database.execute(BEGAN)
    database.execute(
        """update pgcron.jobs set planned = true, fired_until = now(),
                  next_run_at = date_trunc('hour', now()) + interval '1 hour'"""
    )
    add_final(database, job_id, scheduled_for=database.value("select date_trunc('hour', now())"))
    return job_id


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # The latest is the one that has come since.
        ({"catch_up": "latest"}, [("missed", 1, 4), ("succeeded", 1, 1)]),
        ({"catch_up": "skip"}, [("missed", 1, 4), ("succeeded", 1, 1)]),
        ({"catch_up": "all", "overlap": "queue_all"}, [("queued", 4, 4), ("succeeded", 1, 1)]),
        (
            {"catch_up": "all", "overlap": "queue_all", "catch_up_limit": 3},
            [("missed", 1, 1), ("queued", 3, 3), ("succeeded", 1, 1)],
        ),
        ({"catch_up": "all"}, [("queued", 1, 1), ("skipped", 3, 3), ("succeeded", 1, 1)]),
    ],
)
def test_a_pause_that_has_ended_by_itself_is_made_up_for_once(
    columns: dict[str, Any], expected: list[tuple[str, int, int]], cli: Cli, database: Database
) -> None:
    ended_by_itself(database, **columns)
    before = database.value("select next_run_at from pgcron.jobs")
    assert cli("job", "resume", "job").code == 0
    assert what_is_there(database) == [("succeeded", 1, 1)]
    for _ in range(2):
        result = cli("job", "resume", "job", "--catch-up")
        fire(database)
        assert what_is_there(database) == expected
    assert "It was not paused" in result.out
    assert database.value("select next_run_at from pgcron.jobs") == before


def test_what_is_made_up_for_after_its_end_is_the_latest_where_nothing_has_come_since(
    cli: Cli, database: Database
) -> None:
    hourly(database)
    cli("job", "pause", "job", *FOREVER)
    database.execute("update pgcron.jobs set paused_until = date_trunc('hour', now()) + interval '1 second'")
    database.execute(BEGAN)
    cli("job", "resume", "job", "--catch-up")
    fire(database)
    assert what_is_there(database) == [("missed", 1, 4), ("queued", 1, 1)]


def test_who_was_not_paused_has_nothing_to_catch_up(cli: Cli, database: Database) -> None:
    hourly(database)
    database.execute("update pgcron.jobs set anchored_at = now() - interval '5 hours', planned = true")
    anchored_at = database.value("select anchored_at from pgcron.jobs")
    result = cli("job", "resume", "job", "--catch-up")
    assert result.lines[-1] == "It was not paused, so there is nothing to catch up."
    assert database.value("select anchored_at from pgcron.jobs") == anchored_at


def test_a_schedule_that_cannot_be_read_is_not_resumed_with_catch_up(cli: Cli, database: Database) -> None:
    hourly(database, schedule="61 * * * *", enabled=False)
    result = cli("job", "resume", "job", "--catch-up")
    assert (result.code, "61 is not from 0 to 59" in result.err) == (2, True)
    assert database.value("select enabled from pgcron.jobs") is False


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
