"""`pgcron-runner job edit` and `job next`: what changes, what that does to the next times, and what stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import add_job, add_planned_job, add_run, statuses
from tests.support.databases import Database

_MOVED = "goes from 02:00 to 03:00, over a time of this schedule: it runs at 03:00 instead"
SOON = datetime(2100, 1, 1, 12, tzinfo=UTC)


def row(database: Database) -> dict[str, Any]:
    return dict(database.value("select to_jsonb(j) from pgcron.jobs j"))


def test_only_what_is_given_changes(cli: Cli, database: Database) -> None:
    add_planned_job(database, next_run_at=SOON, schedule="0 3 * * *", source="file:jobs.toml", tags=["a"])
    before = row(database)
    result = cli("job", "edit", "job", "--timeout", "3h", "--attempts", "5", "--tag", "b", "--sql", "select 2")
    assert result.code == 0, result.err
    assert result.lines == [
        f"Changed job job (id {before['id']}).",
        "command       select 1 → select 2",
        "timeout       1h → 3h",
        "max_attempts  1 → 5",
        "tags          a → b",
    ]
    after = row(database)
    changed = {"command": "select 2", "timeout": "03:00:00", "max_attempts": 5, "tags": ["b"]}
    assert after == before | changed | {"updated_at": after["updated_at"]}


def test_a_change_of_the_schedule_shows_the_next_times_before_and_after(cli: Cli, database: Database) -> None:
    add_planned_job(database, next_run_at=SOON, schedule="0 12 * * *", timezone="UTC")
    result = cli("job", "edit", "job", "--schedule", "0 4 * * *", "--timezone", "Europe/Berlin")
    assert result.lines[1:3] == ["schedule  0 12 * * * → 0 4 * * *", "timezone  UTC → Europe/Berlin"]
    before, after = result.out.split("Next times now\n")
    assert before.count(" 12:00:00Z") == 3
    assert after.count(" 04:00:00 +0") == 3
    assert (row(database)["planned"], row(database)["source"]) == (False, "sql")


def test_what_was_said_can_be_cleared(cli: Cli, database: Database) -> None:
    add_job(database, ends_at=SOON, overlap="allow", max_running=3, env={"A": "1"}, keep_for=timedelta(days=2))
    refused = cli("job", "edit", "job", "--overlap", "skip")
    assert (refused.code, "--clear max-running" in refused.err) == (2, True)
    result = cli(
        "job", "edit", "job", "--overlap", "skip", "--clear", "max-running", "--clear", "env", "--clear", "ends-at"
    )
    assert result.code == 0, result.err
    assert "max_running  3 → -" in result.lines
    after = row(database)
    assert (after["overlap"], after["max_running"], after["env"], after["ends_at"]) == ("skip", None, {}, None)
    assert "clear: 'schedule' cannot be cleared" in cli("job", "edit", "job", "--clear", "schedule").err


def test_an_http_job_is_checked_as_the_whole_that_it_becomes(cli: Cli, database: Database) -> None:
    add_job(database, kind="http", command="https://a.example.org/", args={"method": "PUT"})
    result = cli("job", "edit", "job", "--args", '{"verfy": false}')
    assert (result.code, "args: 'verfy' is no setting of an http job; the nearest is 'verify'" in result.err) == (
        2,
        True,
    )
    result = cli("job", "edit", "job", "--http", "https://u:pa55word@b.example.org/x")
    assert result.code == 0
    assert result.err.startswith("Note: whoever may read pgcron.jobs can read the password in this URL")
    assert row(database)["args"] == {"method": "PUT"}
    result = cli("job", "edit", "job", "--args", '{"headers": {"Authorization": "x"}}')
    assert (result.code, "is there as well as a user in the URL" in result.err) == (2, True)
    assert cli("job", "edit", "job", "--shell", "true", "--args", '{"argv": ["true"]}').code == 0


def test_an_http_job_that_is_wrong_already_can_be_changed_elsewhere(cli: Cli, database: Database) -> None:
    add_job(database, kind="http", command="https://a.example.org/", args={"header": {}})
    assert cli("job", "edit", "job", "--timeout", "5m").code == 0


def test_an_edit_can_disable(cli: Cli, database: Database) -> None:
    job_id = add_job(database)
    add_run(database, job_id)
    assert "enabled  True → False" in cli("job", "edit", "job", "--disabled").lines
    assert statuses(database, job_id) == ["cancelled"]


def test_bounds_are_read_in_the_new_zone(cli: Cli, database: Database) -> None:
    add_job(database)
    shown = cli("job", "edit", "job", "--timezone", "Asia/Kolkata", "--starts-at", "2100-01-01T09:00", "--json").json
    assert shown["changed"]["starts_at"] == {"old": None, "new": "2100-01-01T03:30:00Z"}
    assert shown["next_times"][0] == "2100-01-01T03:30:00Z"


def test_nothing_to_change(cli: Cli, database: Database) -> None:
    add_job(database)
    assert "Say what is to change" in cli("job", "edit", "job").err
    same = cli("job", "edit", "job", "--timeout", "1h")
    assert (same.code, same.err) == (1, "Error: Job job is so already; nothing was changed.\n")
    assert "There is no job named 'nope'" in cli("job", "edit", "nope", "--timeout", "1h").err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--schedule", "61 * * * *"), "schedule: '61 * * * *'"),
        (("--timezone", "CET"), "timezone: 'CET' is an abbreviation"),
        (("--timeout", "5"), "timeout: '5' has no unit"),
        (("--shell", "a", "--sql", "b"), "say only one thing to run"),
        (("--env", "LEVEL"), "env: 'LEVEL' has no value"),
        (("--http", "ftp://a/"), "http: 'ftp://a/' is of the scheme ftp"),
        (("--http", "http://a/", "--sql", "b"), "say only one thing to run: --shell, --sql, --python or --http"),
        (("--exclude", "a b"), "exclude: 'a b'"),
        (("--starts-at", "soon"), "starts-at: 'soon' is not a date and time"),
        (("--max-running", "2", "--overlap", "skip"), "max-running: 2 needs overlap allow"),
    ],
)
def test_what_is_wrong_is_found_without_a_database(arguments: tuple[str, ...], sentence: str, offline: Cli) -> None:
    result = offline("job", "edit", "job", *arguments)
    assert result.code == 2
    assert sentence in result.err


@pytest.mark.parametrize(
    ("schedule", "more", "sentences"),
    [
        ("30 2 * * *", (), [_MOVED, "twice: it runs on the first pass only"]),
        ("30 2 * * *", ("--dst-gap", "skip", "--dst-repeat", "both"), ["it does not run then", "it runs on both"]),
        ("0 12 * * *", (), []),
        ("*/15 * * * *", (), []),
        ("@every 10m", (), []),
    ],
)  # fmt: skip
def test_who_meets_a_change_of_the_clock_is_warned(
    schedule: str, more: tuple[str, ...], sentences: list[str], cli: Cli
) -> None:
    add = ("--schedule", schedule, "--timezone", "Europe/Berlin", "--sql", "select 1")
    notes = cli("job", "add", "x", *add, *more).err.splitlines()
    assert len(notes) == len(sentences)
    assert all(any(sentence in note for note in notes) for sentence in sentences)
    cli("job", "add", "y", "--schedule", "@daily", "--timezone", "UTC", "--sql", "select 1")
    edited = cli("job", "edit", "y", "--schedule", schedule, "--timezone", "Europe/Berlin", *more)
    assert edited.err.splitlines() == notes


def test_job_next_goes_by_all_that_the_job_says(cli: Cli, database: Database) -> None:
    when: dict[str, Any] = {
        "starts_at": datetime(2100, 5, 5, 3, tzinfo=UTC),
        "ends_at": datetime(2100, 5, 6, 3, tzinfo=UTC),
    }
    add_job(database, schedule="0 3 * * *", **when)
    result = cli("job", "next", "job")
    assert [line.split()[1] for line in result.lines[1:]] == ["2100-05-05", "2100-05-06"]
    assert result.err == "Note: it is never due after that.\n"
    cli("job", "pause", "job", "--until", "2100-05-06T00:00Z")
    assert [slot["at"] for slot in cli("job", "next", "job", "--json").json] == ["2100-05-06T03:00:00Z"]
    cli("job", "pause", "job")
    assert cli("job", "next", "job").err.startswith("Note: it is disabled; start it with: pgcron-runner job resume job")


def test_job_next_draws_from_the_name(cli: Cli, database: Database) -> None:
    add_job(database, "a", schedule="H H * * *")
    add_job(database, "b", schedule="H H * * *")
    assert cli("job", "next", "a", "--json").json != cli("job", "next", "b", "--json").json


def test_who_is_to_know_can_be_said_changed_and_forgotten(cli: Cli, database: Database) -> None:
    made = cli(
        "job", "add", "watched", "--schedule", "@daily", "--timezone", "UTC", "--sql", "select 1", "--late-after",
        "10m", "--long-after", "1h", "--pause-after", "5", "--redact", "password=[^ ]+", "--heartbeat-url", "env:PING",
    )  # fmt: skip
    assert made.code == 0, made.err
    columns = (
        "select late_after, long_after, pause_after, redact, heartbeat_url from pgcron.jobs where name = 'watched'"
    )
    [(late, long, pause, redact, url)] = database.rows(columns)
    assert (late.seconds, long.seconds, pause, redact, url) == (600, 3600, 5, ["password=[^ ]+"], "env:PING")
    changed = cli("job", "edit", "watched", "--late-after", "5m", "--clear", "redact", "--clear", "heartbeat-url")
    assert changed.code == 0, changed.err
    [(late, _, pause, redact, url)] = database.rows(columns)
    assert (late.seconds, pause, redact, url) == (300, 5, [], None)
    for option, value, words in (
        ("--redact", "(", "redact: '(' is not a regular expression"),
        ("--heartbeat-url", "ftp://x", "heartbeat-url: 'ftp://x' is no http address, and no reference to one"),
    ):
        refused = cli("job", "edit", "watched", option, value)
        assert (refused.code, words in refused.err) == (2, True), refused.err
