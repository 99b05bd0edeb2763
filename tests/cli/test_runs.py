"""`pgcron-runner runs list|show|logs|cancel`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import WORKER, add_final, add_job, add_run, add_running, register, status
from tests.support.databases import Database

HOUR = timedelta(hours=1)


def ids(cli: Cli, *arguments: str) -> list[int]:
    return [run["id"] for run in cli("runs", "list", *arguments, "--json").json]


# ------------------------------------------------------------------------------------------------- list


def test_the_list_has_the_newest_first_with_what_became_of_each(cli: Cli, database: Database) -> None:
    job_id = add_job(database, "nightly", timezone="Asia/Kolkata")
    at = datetime(2026, 3, 1, 18, tzinfo=UTC)
    register(database, WORKER, name="web-1")
    first = add_final(database, job_id, "failed", scheduled_for=at, run_at=at, exit_code=3)
    second = add_final(
        database, job_id, "failed", scheduled_for=at, run_at=at, attempt=2, trigger="retry", error="boom\nat"
    )
    third = add_run(
        database, job_id, scheduled_for=at + HOUR, status="skipped", finished_at=at, reason="overlap: run 1"
    )
    result = cli("runs", "list")
    assert (result.code, result.err) == (0, "")
    titles, *lines = result.lines
    assert " ".join(titles.split()) == "ID JOB STATUS SCHEDULED FOR UTC WHY TRY STARTED TOOK REMARK"
    assert [int(line.split()[0]) for line in lines] == [third, second, first]
    assert "nightly  skipped  2026-03-02 00:30:00 +05:30  2026-03-01 19:00:00Z  schedule" in lines[0]
    assert lines[0].endswith("overlap: run 1")
    assert "retry" in lines[1]
    assert lines[1].endswith("boom")
    assert lines[2].endswith("exit code 3")


def test_json_has_the_facts_of_each_run(cli: Cli, database: Database) -> None:
    job_id = add_job(database, timezone="Asia/Kolkata")
    at = datetime(2026, 3, 1, 18, tzinfo=UTC)
    register(database, WORKER, name="web-1")
    run_id = add_final(database, job_id, "failed", scheduled_for=at, run_at=at, exit_code=3)
    [run] = cli("runs", "list", "--json").json
    created_at = run.pop("created_at")
    assert datetime.fromisoformat(created_at).tzinfo is not None
    assert run == {
        "id": run_id,
        "job_id": job_id,
        "job_name": "job",
        "timezone": "Asia/Kolkata",
        "kind": "sql",
        "queue": "default",
        "trigger": "schedule",
        "scheduled_for": "2026-03-01T18:00:00Z",
        "run_at": "2026-03-01T18:00:00Z",
        "attempt": 1,
        "status": "failed",
        "reason": None,
        "started_at": "2026-03-01T18:00:00Z",
        "finished_at": "2026-03-01T18:00:00Z",
        "exit_code": 3,
        "error": None,
        "worker_id": str(WORKER),
        "worker": "web-1",
        "missed_count": None,
        "missed_until": None,
        "backfill": False,
        "progress": None,
    }


def test_filters(cli: Cli, database: Database) -> None:
    a, b = add_job(database, "a"), add_job(database, "b")
    old = add_final(database, a, "failed", ago=5 * HOUR, created_at=datetime.now(UTC) - 5 * HOUR)
    failed = add_final(database, b, "failed", ago=2 * HOUR)
    done = add_final(database, a, ago=HOUR)
    running = add_running(database, a, ago=timedelta(0))
    assert ids(cli) == [running, done, failed, old]
    assert ids(cli, "a") == [running, done, old]
    assert ids(cli, "--status", "failed") == [failed, old]
    assert ids(cli, "--status", "running") == [running]
    assert ids(cli, "--limit", "2") == [running, done]
    assert ids(cli, "--since", "2h") == [running, done, failed]
    assert ids(cli, "a", "--since", "2h", "--status", "succeeded") == [done]
    assert ids(cli, "a", "--since", "2000-01-01T00:00") == [running, done, old]
    assert ids(cli, "--since", "2000-01-01T00:00Z") == [running, done, failed, old]
    assert ids(cli, "--since", "1ms") == []


def test_a_local_since_needs_a_job_whose_zone_it_is_in(cli: Cli, database: Database) -> None:
    add_job(database, timezone="Asia/Kolkata")
    result = cli("runs", "list", "--since", "2026-01-01T00:00")
    assert result.code == 2
    assert result.err.startswith("Error: since: '2026-01-01T00:00' does not say its offset from UTC. For example: ")
    assert cli("runs", "list", "job", "--since", "2026-01-01T00:00").code == 0


def test_lists_that_are_empty_or_cut_say_so_beside_the_output(cli: Cli, database: Database) -> None:
    assert cli("runs", "list").err == "There are no runs yet.\n"
    add_final(database, add_job(database))
    result = cli("runs", "list", "--limit", "1")
    assert (len(result.lines), result.err) == (2, "These are the newest 1. --limit shows more.\n")
    assert cli("runs", "list", "--status", "lost").err == "There are no such runs.\n"


def test_since_finds_its_place_also_where_ids_have_gaps(cli: Cli, database: Database) -> None:
    database.execute(
        """insert into pgcron.runs (job_name, kind, trigger, scheduled_for, run_at, status, finished_at, created_at)
           select 'x', 'sql', 'schedule', now(), now(), 'succeeded', now(), now() - (1000 - i) * interval '10 minutes'
             from generate_series(1, 1000) i"""
    )
    database.execute("delete from pgcron.runs where id % 7 = 0 or id between 300 and 700")
    for hours in (0.5, 3, 30, 60, 120, 165, 170):
        expected = database.rows(
            "select id from pgcron.runs where created_at >= now() - %s * interval '1 hour' order by id desc", (hours,)
        )
        found = ids(cli, "--since", f"{hours}h", "--limit", "2000")
        assert found == [row[0] for row in expected]


# ------------------------------------------------------------------------------------------------- show


def test_show_has_all_facts_and_the_other_attempts(cli: Cli, database: Database) -> None:
    job_id = add_job(database, timezone="Europe/Berlin", max_attempts=3)
    at = datetime(2026, 3, 1, 18, tzinfo=UTC)
    register(database, WORKER, name="web-1")
    first = add_final(
        database, job_id, "failed", scheduled_for=at, run_at=at, error="line one\nline two", args={"a": 1}
    )
    second = add_run(database, job_id, scheduled_for=at, run_at=at, attempt=2, parent_run_id=first, trigger="retry")
    database.execute("update pgcron.runs set output_bytes = 1234567, output_truncated = true where id = %s", (first,))
    result = cli("runs", "show", str(first))
    shown_facts = dict(line.split(maxsplit=1) for line in result.lines if line[:1].strip() and "  " in line)
    assert shown_facts["status"] == "failed"
    assert shown_facts["attempt"] == "1 of 3"
    assert shown_facts["worker"] == "web-1"
    assert shown_facts["scheduled_for"].startswith("2026-03-01 19:00:00 +01:00  2026-03-01 18:00:00Z  ")
    assert shown_facts["args"] == '{"a": 1}'
    assert shown_facts["output"] == f"1.2 MB, the middle is left out: pgcron-runner runs logs {first}"
    assert "line one\n               line two" in result.out
    attempts = result.out.split("Attempts\n")[1].splitlines()[1:]
    assert [int(line.split()[0]) for line in attempts] == [first, second]
    shown = cli("runs", "show", str(second), "--json").json
    assert (shown["parent_run_id"], shown["max_attempts"]) == (first, 3)
    assert [attempt["id"] for attempt in shown["attempts"]] == [first, second]
    columns = database.rows("select column_name from information_schema.columns where table_name = 'runs'")
    assert {row[0] for row in columns} - {"output", "lane", "max_running", "in_incident"} <= set(shown)


# ------------------------------------------------------------------------------------------------- logs


def test_logs_are_plain_and_cannot_command_a_terminal(cli: Cli, database: Database) -> None:
    run_id = add_final(database, add_job(database))
    text = "one [red]two[/red]\n\tthree \x1b[31mfour\x1b[0m\r\n50%\r100%"
    database.execute("update pgcron.runs set output = %s where id = %s", (text, run_id))
    result = cli("runs", "logs", str(run_id))
    assert result.out == "one [red]two[/red]\n\tthree \\x1b[31mfour\\x1b[0m\n50%\n100%\n"
    assert cli("runs", "logs", str(run_id), "--raw").out == f"{text}\n"


@pytest.mark.parametrize(("ended", "note"), [(False, "It is still to run.\n"), (True, "It printed nothing.\n")])
def test_a_run_without_output_says_so_beside_it(ended: bool, note: str, cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    run_id = add_final(database, job_id) if ended else add_run(database, job_id)
    result = cli("runs", "logs", str(run_id))
    assert (result.code, result.out, result.err) == (0, "", note)


# ----------------------------------------------------------------------------------------------- cancel


def test_a_queued_run_is_cancelled_at_once(cli: Cli, database: Database) -> None:
    run_id = add_run(database, add_job(database))
    result = cli("runs", "cancel", str(run_id))
    assert (result.code, result.out) == (0, f"Run {run_id} was queued and is cancelled.\n")
    assert database.rows("select status, reason from pgcron.runs") == [("cancelled", "cancelled by hand")]


def test_a_running_run_is_asked_to_stop(cli: Cli, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    result = cli("runs", "cancel", str(run_id))
    assert (result.code, result.out) == (0, f"Run {run_id} is running; its worker has been asked to stop it.\n")
    assert database.value("select cancel_requested_at is not null from pgcron.runs") is True
    assert status(database, run_id) == "running"


def test_a_final_run_stays_as_it_is(cli: Cli, database: Database) -> None:
    run_id = add_final(database, add_job(database), "lost")
    result = cli("runs", "cancel", str(run_id))
    assert (result.code, result.out) == (1, "")
    assert result.err == f"Error: Run {run_id} had already ended as lost. Nothing was changed.\n"
    assert status(database, run_id) == "lost"
