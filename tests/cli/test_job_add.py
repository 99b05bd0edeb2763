"""`pgcron-runner job add`: what is written is what was said, and the rest is what the table itself would say."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.databases import Database

ADD = ("--schedule", "0 3 * * *", "--timezone", "Europe/Berlin")


def row(database: Database, name: str) -> dict[str, Any]:
    return dict(database.value("select to_jsonb(j) from pgcron.jobs j where name = %s", (name,)))


def test_it_prints_the_name_the_id_and_the_next_three_times(cli: Cli, database: Database) -> None:
    result = cli("job", "add", "nightly", *ADD, "--sql", "select 1")
    assert (result.code, result.err) == (0, "")
    job_id = database.value("select id from pgcron.jobs where name = 'nightly'")
    assert result.lines[0] == f"Added job nightly (id {job_id}): at 03:00."
    assert result.lines[1].split() == ["Europe/Berlin", "UTC", "WHEN"]
    assert len(result.lines) == 5
    for line in result.lines[2:]:
        assert re.match(r"\w{3} \d{4}-\d\d-\d\d 03:00:00 \+0[12]:00  \d{4}-\d\d-\d\d 0[12]:00:00Z  in ", line)


def test_what_was_not_said_is_what_the_table_would_say(cli: Cli, database: Database) -> None:
    cli("job", "add", "by-cli", *ADD, "--sql", "select 1")
    database.execute(
        """insert into pgcron.jobs (name, kind, command, schedule, timezone)
           values ('by-hand', 'sql', 'select 1', '0 3 * * *', 'Europe/Berlin')"""
    )
    own = {"id", "name", "source", "anchored_at", "next_run_at", "created_at", "updated_at"}
    by_cli, by_hand = row(database, "by-cli"), row(database, "by-hand")
    assert {k: v for k, v in by_cli.items() if k not in own} == {k: v for k, v in by_hand.items() if k not in own}
    assert by_cli["source"] == "cli"


def test_everything_that_can_be_said_is_written(cli: Cli, database: Database) -> None:
    result = cli(
        *("job", "add", "all", "--schedule", "H 3 * * *", "--timezone", "America/New_York"),
        *("--python", "myapp.reports:send", "--args", '{"to": "é"}', "--queue", "reports", "--priority", "-5"),
        *("--timeout", "1h30m", "--kill-grace", "0s", "--overlap", "allow", "--max-running", "3"),
        *("--catch-up", "all", "--catch-up-window", "7 days", "--catch-up-limit", "5", "--attempts", "4"),
        *("--retry-delay", "0s", "--retry-backoff", "1.5", "--retry-max-delay", "10m", "--jitter", "90s"),
        *("--env", "A=1", "--env", "B=x=y", "--env-from", "TOKEN", "--env-from", "OTHER", "--working-dir", "/srv"),
        *("--tag", "big", "--tag", "daily", "--keep-for", "2w", "--starts-at", "2100-01-01T09:00"),
        *("--ends-at", "2101-01-01T00:00Z", "--memory-limit", "512", "--output-limit", "10240"),
        *("--dst-gap", "skip", "--dst-repeat", "both", "--disabled"),
    )
    assert result.code == 0, result.err
    written = row(database, "all")
    assert {
        "kind": "python",
        "command": "myapp.reports:send",
        "args": {"to": "é"},
        "queue": "reports",
        "priority": -5,
        "timeout": "01:30:00",
        "kill_grace": "00:00:00",
        "overlap": "allow",
        "max_running": 3,
        "catch_up": "all",
        "catch_up_window": "7 days",
        "catch_up_limit": 5,
        "max_attempts": 4,
        "retry_delay": "00:00:00",
        "retry_backoff": 1.5,
        "retry_max_delay": "00:10:00",
        "jitter": "00:01:30",
        "env": {"A": "1", "B": "x=y"},
        "env_from": ["TOKEN", "OTHER"],
        "working_dir": "/srv",
        "tags": ["big", "daily"],
        "keep_for": "14 days",
        "memory_limit_mb": 512,
        "output_limit_kb": 10240,
        "dst_gap": "skip",
        "dst_repeat": "both",
        "enabled": False,
    }.items() <= written.items()
    assert datetime.fromisoformat(written["starts_at"]) == datetime(2100, 1, 1, 14, tzinfo=UTC)
    assert datetime.fromisoformat(written["ends_at"]) == datetime(2101, 1, 1, tzinfo=UTC)
    assert "2100-01-01" in result.lines[2] or "2100-01-02" in result.lines[2]
    assert result.err == "Note: it is disabled; start it with: pgcron-runner job resume all.\n"


def test_the_zone_may_come_from_the_environment(cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCRON_TIMEZONE", "Asia/Tokyo")
    assert cli("job", "add", "x", "--schedule", "@daily", "--shell", "true").code == 0
    assert row(database, "x")["timezone"] == "Asia/Tokyo"


def test_a_name_that_is_taken_points_to_its_job_and_changes_nothing(cli: Cli, database: Database) -> None:
    cli("job", "add", "two words", *ADD, "--sql", "select 1")
    result = cli("job", "add", "two words", *ADD, "--sql", "select 2")
    assert (result.code, result.out) == (2, "")
    assert result.err == "Error: name: 'two words' is taken. See: pgcron-runner job show 'two words'\n"
    assert row(database, "two words")["command"] == "select 1"


def test_the_first_time_is_after_starts_at_and_none_is_after_ends_at(cli: Cli) -> None:
    bounds = ("--starts-at", "2100-05-05T03:00", "--ends-at", "2100-05-06T03:00")
    result = cli("job", "add", "x", *ADD, "--sql", "select 1", *bounds)
    assert [line[4:14] for line in result.lines[2:]] == ["2100-05-05", "2100-05-06"]


@pytest.mark.parametrize(
    ("schedule", "note"),
    [
        ("@manual", ["Note: it runs when somebody says so: pgcron-runner job run x."]),
        ("@at 2020-01-01T00:00", ["Note: it is never due from now on; run it by hand: pgcron-runner job run x."]),
        ("@every 10m after finish", []),
    ],
)
def test_a_job_without_times_says_why(schedule: str, note: list[str], cli: Cli) -> None:
    result = cli("job", "add", "x", "--schedule", schedule, "--timezone", "UTC", "--shell", "true")
    assert (result.code, len(result.lines), result.err.splitlines()) == (0, 1, note)


def test_several_lines_are_one_schedule(cli: Cli, database: Database) -> None:
    union = ("--schedule", "0 3 * * *\n30 4 * * 1", "--timezone", "UTC")
    assert cli("job", "add", "x", *union, "--sql", "select 1").code == 0
    assert "0 3 * * * ; 30 4 * * 1" in cli("job", "list").out


def test_its_times_count_from_the_clock_of_the_database(cli: Cli, database: Database) -> None:
    result = cli("job", "add", "x", "--schedule", "@every 1h", "--timezone", "UTC", "--sql", "select 1")
    anchor = database.value("select anchored_at from pgcron.jobs")
    first = datetime.strptime(result.lines[2][4:24], "%Y-%m-%d %H:%M:%SZ").replace(tzinfo=UTC)
    assert timedelta(0) < first - anchor <= timedelta(hours=1)


def test_an_http_job_is_a_url_and_its_args(cli: Cli, database: Database) -> None:
    args = '{"headers": {"Authorization": "Bearer env:API_TOKEN"}, "json": {"a": 1}, "expect": ["2xx", 409]}'
    result = cli("job", "add", "hook", *ADD, "--http", " https://api.example.org/x ", "--args", args)
    assert (result.code, result.err) == (0, "")
    written = row(database, "hook")
    assert (written["kind"], written["command"]) == ("http", "https://api.example.org/x")
    assert written["args"] == json.loads(args)


def test_a_password_in_a_url_is_warned_of_and_not_repeated(cli: Cli) -> None:
    result = cli("job", "add", "hook", *ADD, "--http", "https://user:pa55word@api.example.org/x")
    assert result.code == 0
    assert result.err.startswith("Note: whoever may read pgcron.jobs can read the password in this URL")
    assert "pa55word" not in result.out + result.err


@pytest.mark.parametrize(
    ("url", "args", "sentence"),
    [
        ("ftp://u:pa55word@host/", "{}", "Error: http: 'ftp://host/' is of the scheme ftp, not http or https."),
        ("example.org/x", "{}", "Error: http: 'example.org/x' names no scheme."),
        ("http://169.254.169.254/", "{}", "leads to an address that is never called: 169.254.169.254 is link-local"),
        ("http://a/", '{"header": {}}', "args: 'header' is no setting of an http job; the nearest is 'headers'."),
        ("http://a/", '{"expect": "ok"}', "Error: args.expect: 'ok' is neither a status from 200 to 599 nor a class"),
        (" ", "{}", "Error: http: ' ' is empty."),
    ],
)  # fmt: skip
def test_an_http_job_that_no_worker_could_launch_is_not_added(url: str, args: str, sentence: str, offline: Cli) -> None:
    result = offline("job", "add", "hook", *ADD, "--http", url, "--args", args)
    assert result.code == 2
    assert sentence in result.err
    assert "For example: " in result.err
    assert "pa55word" not in result.err
