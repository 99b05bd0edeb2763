"""What a person sees: screens that fit, colours that can be turned off, and questions."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta

import pytest

from pgcron_runner.cli.app import run
from tests.cli.terminal import on_terminal, without_colours
from tests.statements.builders import WORKER, add_final, add_planned_job, add_run, register
from tests.support.databases import Database

SOON = datetime(2100, 1, 1, 12, tzinfo=UTC)
LONG = "nightly-report-of-the-whole-company-in-all-regions-and-languages"

CALENDAR = "holidays-of-all-countries-in-which-the-company-has-an-office"


class Screen(io.StringIO):
    """Takes itself for a terminal, which is quicker than to start one for each screen."""

    def isatty(self) -> bool:
        return True


def on_screen(*arguments: str) -> list[str]:
    with redirect_stdout(Screen()) as screen:
        run(arguments)
    return without_colours(screen.getvalue()).splitlines()


@pytest.fixture
def busy(database: Database) -> Database:
    """Jobs and runs whose texts are longer than any terminal is wide, and hostile."""
    register(database, WORKER, name="worker-with-a-rather-long-name.example.org", host="host-" * 8, queues=["q" * 60])
    when = {"schedule": "0,10,20,30,40,50 8-18 * * mon-fri", "timezone": "America/Argentina/Buenos_Aires"}
    job_id = add_planned_job(database, LONG, next_run_at=SOON, **when)
    for hours in range(3):
        add_final(database, job_id, "timed_out", ago=timedelta(hours=hours), error="no such table: " + "x" * 200)
    add_planned_job(database, "[red]x[/red]\u202e", next_run_at=SOON, command="echo \x1b[31m" + "long " * 100)
    add_run(database, job_id)
    database.execute("insert into pgcron.calendars values (%s, %s)", (CALENDAR, "what it is for " * 20))
    database.execute(
        "insert into pgcron.calendar_days values (%s, '2100-01-04', '2100-01-05', %s)", (CALENDAR, "l" * 99)
    )
    database.execute("update pgcron.jobs set exclude = array[%s] where id = %s", (CALENDAR, job_id))
    broken = add_planned_job(database, "broken", next_run_at=None)
    database.execute("update pgcron.jobs set problem = %s where id = %s", ("schedule: " + "wrong " * 30, broken))
    return database


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "list"),
        ("job", "list", "--problem"),
        ("job", "show", LONG),
        ("runs", "list"),
        ("runs", "list", LONG),
        ("runs", "show", "1"),
        ("workers",),
        ("status",),
        ("next", "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2027-03-27T12:00"),
        ("job", "next", LONG, "--count", "100"),
        ("calendar", "list"),
        ("calendar", "list", CALENDAR),
        ("explain", LONG, "2035-03-14T11:59:00Z"),
        ("explain", LONG, "2035-03-14T11:58:00Z"),
        ("backfill", LONG, "--from", "2026-01-01", "--to", "2026-02-01", "--dry-run"),
        ("doctor",),
        ("queue", "list"),
        ("job", "history", LONG),
        ("top", "--once"),
        ("job", "edit", LONG, "--schedule", "0,10,20,30,40,50 8-18 * 1-11,12 mon-fri", "--sql", "x" * 200),
        ("--help",),
        ("backfill", "--help"),
        ("explain", "--help"),
        ("doctor", "--help"),
        ("job", "edit", "--help"),
        ("job", "run", "--help"),
        ("calendar", "days", "--help"),
        ("job", "add", "--help"),
        ("worker", "--help"),
        ("job", "--help"),
        ("job", "history", "--help"),
        ("queue", "--help"),
        ("queue", "limit", "--help"),
        ("top", "--help"),
    ],
    ids=lambda value: " ".join(value)[:20] if isinstance(value, tuple) else str(value),
)
def test_every_screen_fits(
    arguments: tuple[str, ...], columns: int, busy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("PGCRON_DSN", busy.dsn)
    shown = on_screen(*arguments)
    assert len(shown) > 1
    assert max(map(len, shown)) <= columns
    if arguments[:2] == ("runs", "list"):
        # Ids, states and times are never cut.
        timed_out = [line for line in shown if "timed_out" in line]
        assert sorted(line.split()[0] for line in timed_out) == ["1", "2", "3"]
        assert all(re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d -03:00 ", line) for line in timed_out)


def test_a_wide_terminal_shows_more(busy: Database) -> None:
    narrow, wide = (on_terminal("runs", "list", columns=columns, env={"PGCRON_DSN": busy.dsn}) for columns in (80, 200))
    assert "REMARK" not in narrow
    assert "no such table" in wide


def test_colours_are_for_terminals_that_want_them(busy: Database) -> None:
    coloured = on_terminal("runs", "list", columns=80, env={"PGCRON_DSN": busy.dsn})
    assert re.search(r"\x1b\[31mtimed_out", coloured)
    plain = on_terminal("runs", "list", columns=80, env={"PGCRON_DSN": busy.dsn, "NO_COLOR": "1"})
    assert "\x1b[3" not in plain
    assert "timed_out" in plain


def test_no_text_of_a_user_commands_the_terminal(busy: Database) -> None:
    for arguments in (("job", "list"), ("job", "show", "[red]x[/red]\u202e")):
        shown = on_terminal(*arguments, columns=140, env={"PGCRON_DSN": busy.dsn, "NO_COLOR": "1"})
        assert "[red]x[/red]\\u202e" in shown
        assert set(re.findall(r"\x1b\[[0-9;]*m", shown)) <= {"\x1b[1m", "\x1b[0m"}  # bold titles
        assert "\u202e" not in shown


@pytest.mark.parametrize(("key", "left"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_removing_a_job_is_asked_about(key: bytes, left: int, database: Database) -> None:
    add_planned_job(database, "old", next_run_at=SOON)
    shown = on_terminal("job", "remove", "old", columns=80, env={"PGCRON_DSN": database.dsn}, keys=key)
    assert "Remove job old (sql, * * * * *)? [y/N]" in shown
    assert database.value("select count(*) from pgcron.jobs") == left
    assert ("Removed job old." in shown) == (left == 0)
    assert ("Error: Nothing was removed." in shown) == (left == 1)


@pytest.mark.parametrize(("key", "made"), [(b"y\n", 31), (b"\n", 0)])
def test_a_backfill_is_asked_about(key: bytes, made: int, database: Database) -> None:
    add_planned_job(database, "old", next_run_at=SOON, schedule="@daily")
    arguments = ("backfill", "old", "--from", "2026-01-01", "--to", "2026-02-01")
    shown = on_terminal(*arguments, columns=140, env={"PGCRON_DSN": database.dsn}, keys=key)
    assert "Queue 31 runs of job old, 2026-01-01 00:00:00 +00:00 to 2026-01-31 00:00:00 +00:00? [y/N]" in shown
    assert database.value("select count(*) from pgcron.runs where backfill") == made


@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "list"),
        ("job", "show", LONG),
        ("job", "next", LONG),
        ("job", "history", LONG),
        ("runs", "list"),
        ("runs", "show", "1"),
        ("queue", "list"),
        ("calendar", "list"),
        ("chain", "list"),
        ("channel", "list"),
        ("route", "list"),
        ("incident", "list"),
        ("workers",),
        ("status",),
        ("doctor",),
        ("top",),
        ("explain", LONG, "2035-03-14T11:59:00Z"),
        ("backfill", LONG, "--from", "2026-01-01", "--to", "2026-02-01", "--dry-run"),
    ],
    ids=" ".join,
)
def test_all_that_is_shown_is_to_be_had_as_json(
    arguments: tuple[str, ...], busy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCRON_DSN", busy.dsn)
    with redirect_stdout(Screen()) as screen:
        run([*arguments, "--json"])
    assert json.loads(screen.getvalue()) is not None
    assert screen.getvalue().isascii()


@pytest.mark.parametrize("arguments", [("runs", "list"), ("job", "show", LONG), ("top", "--once"), ("status",)])
def test_a_dumb_terminal_gets_no_codes(arguments: tuple[str, ...], busy: Database) -> None:
    assert "\x1b" not in on_terminal(*arguments, columns=80, env={"PGCRON_DSN": busy.dsn, "TERM": "dumb"})


def test_a_reader_that_has_had_enough_hears_no_complaint(busy: Database) -> None:
    command = f"{shlex.quote(sys.executable)} -m pgcron_runner job show {LONG} | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, env=os.environ | {"PGCRON_DSN": busy.dsn}
    )
    assert (done.stdout.split(), done.stderr) == (["name", LONG], "")
