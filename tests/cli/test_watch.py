"""`pgcron-runner workers` and `pgcron-runner status`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import WORKER, add_final, add_job, add_planned_job, add_run, add_running, register
from tests.support.databases import Database

SOON = datetime(2100, 1, 1, tzinfo=UTC)


def beat(database: Database, worker_id: UUID, ago: str) -> None:
    database.execute("update pgcron.workers set heartbeat_at = now() - %s::interval where id = %s", (ago, worker_id))


# --------------------------------------------------------------------------------------------- workers


def test_workers_are_listed_with_their_state_and_load(cli: Cli, database: Database) -> None:
    register(database, WORKER, name="busy", host="a", pid=7, queues=["default", "reports"], kinds=["sql", "shell"])
    add_running(database, add_job(database))
    beat(database, register(database, name="mute"), "31 s")
    register(database, name="leaving", stopping=True)
    register(database, name="gone", ended_at=datetime.now(UTC), end_reason="lost")
    result = cli("workers")
    titles, *lines = result.lines
    assert " ".join(titles.split()) == "NAME HOST PID STATE BUSY LEASE HEARTBEAT QUEUES KINDS VERSION ZONE DATA"
    busy, leaving, mute = (line.split() for line in lines)
    assert busy[:6] == ["busy", "a", "7", "alive", "1/5", "30s"]
    assert busy[-4:-2] == ["default,reports", "sql,shell"]
    assert (leaving[0], leaving[3], leaving[-4]) == ("leaving", "stopping", "all")
    assert (mute[0], mute[3]) == ("mute", "silent")
    assert cli("workers", "--all").lines[-1].split()[:4] == ["gone", "h", "1", "lost"]


def test_workers_as_json(cli: Cli, database: Database) -> None:
    register(database, WORKER, name="w")
    [worker] = cli("workers", "--json").json
    assert {"id": str(WORKER), "lease": 30, "slots": 5, "running": 0, "state": "alive", "queues": None}.items() <= (
        worker.items()
    )
    assert worker["heartbeat_at"].endswith("Z")


def test_no_worker_says_how_to_start_one(cli: Cli) -> None:
    result = cli("workers")
    assert (result.code, result.out, result.err) == (0, "", "No worker is there. Start one: pgcron-runner worker\n")


# ---------------------------------------------------------------------------------------------- status


def test_all_is_well(cli: Cli, database: Database) -> None:
    register(database, WORKER)
    job_id = add_planned_job(database, next_run_at=SOON)
    add_job(database, "off", enabled=False)
    add_job(database, "paused", paused_until=SOON)
    add_running(database, job_id)
    add_run(database, job_id, scheduled_for=SOON, run_at=SOON)
    result = cli("status")
    assert (result.code, result.err) == (0, "")
    facts = dict(line.split("  ", 1) for line in result.lines if line.strip())
    facts = {name: fact.strip() for name, fact in facts.items()}
    assert facts["Workers"] == "1 alive, 5 slots"
    assert facts["Jobs"] == "1 enabled, 2 paused"
    assert facts["Queued"] == "0 due, 1 later"
    assert (facts["Running"], facts["Last 24 h"], facts["Overdue"]) == ("1", "0 failures", "nothing")
    assert facts["Healthy"] == "yes"
    assert cli("status", "--quiet").out == ""
    assert cli("status", "--json").json | {"now": ""} == {
        "now": "",
        "paused": False,
        "workers_alive": 1,
        "workers_silent": 0,
        "slots": 5,
        "jobs_enabled": 1,
        "jobs_paused": 2,
        "jobs_problem": 0,
        "queued_due": 0,
        "queued_later": 1,
        "running": 1,
        "failures_last_day": 0,
        "overdue": 0,
        "oldest_overdue_at": None,
        "oldest_overdue_job": None,
        "incidents_open": 0,
        "channels": 0,
        "alerts_undelivered": 0,
        "healthy": True,
        "wrong": [],
    }


def test_that_a_job_fails_is_shown_and_no_reason_for_an_exit_code(cli: Cli, database: Database) -> None:
    register(database, WORKER)
    database.execute("insert into pgcron.incidents (job_name, event) values ('backup', 'failed')")
    shown = cli("status")
    assert shown.code == 0
    assert (
        "1 open (pgcron-runner incident list), and no channel: nobody is told (pgcron-runner channel add)" in shown.out
    )


def undelivered(database: Database) -> None:
    """A message that its channel has not taken for an hour."""
    database.execute(
        """with channel as (
             insert into pgcron.channels (name, target) values ('bad', 'json://127.0.0.1') returning id)
           insert into pgcron.alerts (channel_id, job_name, event, dedup_key, error, first_tried_at)
           select id, 'backup', 'failed', 'x', 'it answered 500', now() - interval '1 hour' from channel"""
    )


def no_worker(database: Database) -> None:
    database.execute("update pgcron.workers set ended_at = now()")


def silent_worker(database: Database) -> None:
    beat(database, WORKER, "31 s")


def problem(database: Database) -> None:
    add_planned_job(database, "broken", next_run_at=None)
    database.execute("update pgcron.jobs set problem = 'schedule: no' where name = 'broken'")


def overdue_run(database: Database) -> None:
    add_run(
        database, add_planned_job(database, "tired", next_run_at=SOON), run_at=datetime.now(UTC) - timedelta(seconds=61)
    )


def overdue_job(database: Database) -> None:
    add_planned_job(database, "tired", next_run_at=datetime.now(UTC) - timedelta(seconds=61))


@pytest.mark.parametrize(
    ("happens", "wrong"),
    [
        (no_worker, "no worker is alive (pgcron-runner worker)"),
        (silent_worker, "no worker is alive (pgcron-runner worker)"),
        (problem, "1 job has a problem (pgcron-runner job list --problem)"),
        (overdue_run, "1 run is overdue"),
        (overdue_job, "1 run is overdue"),
        (undelivered, "1 alert is not taken by the channel (pgcron-runner channel list)"),
    ],
)
def test_what_is_wrong_is_said_and_is_the_exit_code(
    happens: Callable[[Database], None], wrong: str, cli: Cli, database: Database
) -> None:
    register(database, WORKER)
    happens(database)
    result = cli("status")
    assert (result.code, result.lines[-1]) == (1, f"Unhealthy  {wrong}")
    assert cli("status", "--quiet").lines[1:] == result.lines[1:]
    shown = cli("status", "--json")
    assert (shown.code, shown.json["healthy"], shown.json["wrong"]) == (1, False, [wrong])


def within_late_after(database: Database) -> None:
    job_id = add_planned_job(database, "patient", next_run_at=SOON, late_after=timedelta(hours=1))
    add_run(database, job_id, run_at=datetime.now(UTC) - timedelta(minutes=30))


def behind_its_own_run(database: Database) -> None:
    job_id = add_planned_job(database, "slow", next_run_at=SOON)
    add_running(database, job_id)
    add_run(database, job_id, ago=timedelta(0), run_at=datetime.now(UTC) - timedelta(minutes=30))


def paused_queue(database: Database) -> None:
    overdue_run(database)
    database.execute("update pgcron.queues set paused = true")


def paused_as_a_whole(database: Database) -> None:
    overdue_run(database)
    add_planned_job(database, "other", next_run_at=datetime(2020, 1, 1, tzinfo=UTC))
    database.execute("update pgcron.settings set paused = true")


@pytest.mark.parametrize("happens", [within_late_after, behind_its_own_run, paused_queue, paused_as_a_whole])
def test_what_waits_for_a_reason_is_not_overdue(
    happens: Callable[[Database], None], cli: Cli, database: Database
) -> None:
    register(database, WORKER)
    happens(database)
    result = cli("status")
    assert result.code == 0, result.out
    assert ("nothing new is started (pgcron.settings)" in result.out) == (happens is paused_as_a_whole)


def test_the_oldest_of_what_is_overdue_is_named(cli: Cli, database: Database) -> None:
    register(database, WORKER)
    now = datetime.now(UTC)
    add_run(database, add_planned_job(database, "tired", next_run_at=SOON), run_at=now - timedelta(minutes=3))
    add_planned_job(database, "[red]older[/red]", next_run_at=now - timedelta(hours=2))
    [line] = [line for line in cli("status").lines if line.startswith("Overdue")]
    assert line.endswith("2, the oldest was due 2h ago: [red]older[/red]")


def test_failures_of_the_last_day_are_counted(cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    now = datetime.now(UTC)
    for hours, ended_as in [(1, "failed"), (2, "timed_out"), (3, "lost"), (4, "succeeded"), (25, "failed")]:
        at = now - timedelta(hours=hours)
        add_final(database, job_id, ended_as, scheduled_for=at, run_at=at)
    assert "3 failures" in cli("status").out
