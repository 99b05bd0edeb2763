"""`pgcron-runner queue list|pause|resume|limit`."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.conftest import StartWorker
from tests.statements.builders import WORKER, add_job, add_run, add_running, register
from tests.support.databases import Database
from tests.support.waiting import eventually

PAST = timedelta(days=20 * 365)


def listed(cli: Cli) -> dict[str, dict[str, object]]:
    return {queue["name"]: queue for queue in cli("queue", "list", "--json").json}


def test_the_list_says_what_waits_what_runs_and_who_takes_it(cli: Cli, database: Database) -> None:
    register(database, WORKER, name="web-1", queues=["mail"], slots=3)
    register(database, name="web-2", slots=5)
    register(database, name="gone", heartbeat_at="2020-01-01")
    mail = add_job(database, "mail", queue="mail")
    add_run(database, mail, ago=PAST)
    add_run(database, mail, ago=PAST + timedelta(hours=1), priority=3)
    add_run(database, mail, ago=-PAST)
    add_running(database, add_job(database, "other", queue="mail"))
    add_job(database, "never ran", queue="idle")
    cli("queue", "limit", "mail", "4")
    result = cli("queue", "list")
    assert (result.code, result.err) == (0, "")
    titles, *lines = result.lines
    assert titles.split() == ["NAME", "STATE", "JOBS", "DUE", "OLDEST", "LATER", "RUNNING", "LIMIT", "SLOTS", "WORKERS"]
    rows = {line.split()[0]: " ".join(line.split()) for line in lines}
    assert list(rows) == ["default", "idle", "mail"]
    assert rows["mail"].startswith("mail open 2 2 ")
    assert rows["mail"].endswith(" ago 1 1 4 8 web-1, web-2")
    assert rows["idle"] == "idle open 1 0 - 0 0 none 5 web-2"
    queue = listed(cli)["mail"]
    assert (queue["due"], queue["later"], queue["running"], queue["max_running"]) == (2, 1, 1, 4)
    assert queue["workers"] == ["web-1", "web-2"]


def test_quiet_lists_names_alone(cli: Cli, database: Database) -> None:
    add_job(database, queue="mail")
    assert cli("queue", "list", "--quiet").lines == ["default", "mail"]


def test_a_queue_that_nobody_takes_is_seen(cli: Cli, database: Database) -> None:
    add_run(database, add_job(database), ago=PAST)
    assert cli("queue", "list").lines[1].endswith("nobody")


def test_counting_stops_somewhere(cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    database.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at)
           select %s, 'job', 'sql', 'schedule', at, at
             from generate_series(now() - 1000 * '1 h'::interval, now(), '1 h') at""",
        (job_id,),
    )
    assert cli("queue", "list").lines[1].split()[3] == "1000+"


def test_a_paused_queue_wakes_the_workers_when_it_goes_on(cli: Cli, database: Database) -> None:
    add_run(database, add_job(database), ago=PAST)
    with psycopg.connect(database.dsn, autocommit=True) as listener:
        listener.execute("listen pgcron")
        assert cli("queue", "pause", "default").out == "Queue default is now paused: 1 due.\n"
        assert listed(cli)["default"]["paused"] is True
        assert cli("queue", "pause", "default").out == "Queue default is still paused: 1 due.\n"
        assert [n.payload for n in listener.notifies(timeout=5, stop_after=2)] == ["runs", "runs"]
        assert cli("queue", "resume", "default").out == "Queue default goes on: 1 due.\n"
        assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["runs"]
    assert listed(cli)["default"]["paused"] is False
    assert cli("queue", "resume", "default").out == "Queue default was not paused.\n"


def test_a_worker_that_sleeps_takes_the_runs_of_a_resumed_queue_at_once(
    cli: Cli, database: Database, start_worker: StartWorker
) -> None:
    cli("queue", "pause", "default")
    worker = start_worker("--poll", "1h")
    eventually(lambda: database.value("select count(*) from pgcron.workers"))
    cli("job", "add", "x", "--schedule", "@manual", "--timezone", "UTC", "--sql", "select 1")
    cli("job", "run", "x")
    eventually(lambda: database.value("select planned from pgcron.jobs"))
    assert database.value("select status from pgcron.runs") == "queued"
    cli("queue", "resume", "default")
    eventually(lambda: database.value("select status from pgcron.runs") == "succeeded", message=worker.log())


@pytest.mark.parametrize(
    ("before", "given", "said"),
    [
        ("none", "2", "Queue default has at most 2 runs at a time, before: none.\n"),
        ("2", "1", "Queue default has at most 1 run at a time, before: 2.\n"),
        ("2", "2", "Queue default has at most 2 runs at a time as before.\n"),
        ("2", "NONE", "Queue default has no limit, before: 2.\n"),
        ("none", "none", "Queue default has no limit as before.\n"),
    ],
)
def test_a_limit_says_what_it_was(before: str, given: str, said: str, cli: Cli) -> None:
    cli("queue", "limit", "default", before)
    assert cli("queue", "limit", "default", given).out == said


def test_a_queue_that_nobody_names_is_held_with_a_note_and_let_go_without_a_row(cli: Cli, database: Database) -> None:
    result = cli("queue", "resume", "mial")
    assert result.out == "Queue mial was not paused.\n"
    assert "no job and no worker names queue mial" in result.err
    cli("queue", "limit", "mial", "none")
    assert database.value("select count(*) from pgcron.queues where name = 'mial'") == 0
    result = cli("queue", "pause", "mial", "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert listed(cli)["mial"]["paused"] is True


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", "2147483648", ""])
def test_a_wrong_limit_is_refused(number: str, offline: Cli) -> None:
    result = offline("queue", "limit", "default", "--", number)
    assert result.code == 2
    assert result.err.startswith(f"Error: limit: {number!r} is neither a number")
    assert result.err.endswith("For example: pgcron-runner queue limit reports 2\n")


@pytest.mark.parametrize("command", [("pause",), ("resume",), ("limit", "2")])
def test_json_has_the_queue_as_it_is_now(command: tuple[str, ...], cli: Cli) -> None:
    changed = cli("queue", command[0], "default", *command[1:], "--json").json
    assert changed["name"] == "default"
    assert set(changed) == {"name", "paused", "max_running", "running", "due"}
