"""`--quiet`: changes say nothing, listings only names, and the exit code says the rest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import add_final, add_job, add_run
from tests.support.databases import Database

SOON = datetime(2100, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def jobs(database: Database) -> Database:
    """Two jobs, of which the first has an incident, and a channel with a route."""
    ids = [add_job(database, name, schedule="@daily") for name in ("a", "b c")]
    database.execute("insert into pgcron.channels (name, target) values ('ops', 'env:OPS_URL')")
    database.execute("insert into pgcron.routes (channel_id) values (1)")
    database.execute("insert into pgcron.incidents (job_id, job_name, event) values (%s, 'a', 'failed')", ids[:1])
    return database


CHANGES = [
    ("job", "add", "new", "--schedule", "@manual", "--timezone", "UTC", "--sql", "select 1"),
    ("job", "edit", "a", "--schedule", "@hourly"),
    ("job", "pause", "a"),
    ("job", "resume", "a", "--catch-up"),
    ("job", "run", "a"),
    ("job", "remove", "a", "--yes"),
    ("chain", "add", "a", "b c"),
    ("calendar", "add", "holidays"),
    ("queue", "pause", "default"),
    ("queue", "resume", "default"),
    ("queue", "limit", "unknown", "3"),
    ("backfill", "a", "--from", "2026-01-01", "--to", "2026-01-03", "--yes"),
    ("channel", "add", "new", "env:NOT_SET_ANYWHERE"),
    ("channel", "add", "new", "env:OPS_URL", "--quiet-hours", "22:00-07:00", "--timezone", "UTC"),
    ("channel", "remove", "ops"),
    ("route", "add", "ops", "--jobs", "nobody"),
    ("route", "remove", "1"),
    ("incident", "ack", "1"),
    ("mute", "a", "--for", "2h"),
    ("mute", "--channel", "ops", "--for", "2h"),
    ("unmute", "--everything"),
    ("migrate",),
]


@pytest.mark.parametrize("arguments", CHANGES, ids=" ".join)
def test_a_change_that_works_says_nothing(arguments: tuple[str, ...], cli: Cli, jobs: Database) -> None:
    result = cli(*arguments, "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_runs_chains_and_days_change_without_a_word(cli: Cli, jobs: Database) -> None:
    waiting, failed = add_run(jobs, 1), add_final(jobs, 2, "failed")
    cli("chain", "add", "a", "b c")
    cli("calendar", "add", "holidays")
    for arguments in (
        ("runs", "cancel", str(waiting)),
        ("runs", "retry", str(failed)),
        ("chain", "remove", "a", "b c"),
        ("calendar", "days", "holidays", "--from", "2027-01-01", "--to", "2027-01-01"),
        ("calendar", "remove", "holidays"),
    ):
        result = cli(*arguments, "-q")
        assert (arguments, result.code, result.out, result.err) == (arguments, 0, "", "")


def test_times_are_printed_alone(cli: Cli, jobs: Database) -> None:
    add_job(jobs, "at", schedule="@at 2100-01-01T12:00Z")
    assert cli("job", "next", "at", "--quiet").lines == ["2100-01-01T12:00:00Z"]
    result = cli("next", "@daily", "--timezone", "UTC", "--from", "2027-01-01", "--count", "2", "-q")
    assert (result.lines, result.err) == (["2027-01-02T00:00:00Z", "2027-01-03T00:00:00Z"], "")


def test_what_goes_wrong_is_told_nevertheless(cli: Cli, jobs: Database) -> None:
    result = cli("job", "pause", "nobody", "--quiet")
    assert (result.code, result.out) == (1, "")
    assert "no job named 'nobody'" in result.err


def test_listings_print_names_or_ids_alone(cli: Cli, jobs: Database) -> None:
    first, second = add_final(jobs, 1), add_final(jobs, 2)
    cli("calendar", "add", "holidays")
    cli("chain", "add", "a", "b c")
    assert cli("chain", "list", "--quiet").lines == ["a\tb c"]
    assert cli("job", "list", "--quiet").lines == ["a", "b c"]
    assert cli("runs", "list", "--quiet", "--limit", "2").lines == [str(second), str(first)]
    assert cli("runs", "list", "--quiet", "--limit", "2").err == ""
    assert cli("calendar", "list", "-q").lines == ["holidays"]
    assert cli("channel", "list", "-q").lines == ["ops"]
    assert cli("route", "list", "-q").lines == ["1"]
    assert cli("incident", "list", "-q").lines == ["1"]
    assert cli("workers", "-q").out == ""


def test_a_cancelled_run_is_told_as_json_too(cli: Cli, jobs: Database) -> None:
    run_id = add_run(jobs, 1)
    assert cli("runs", "cancel", str(run_id), "--json").json == {"id": run_id, "was": "queued", "cancelled": True}
