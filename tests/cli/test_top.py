"""`pgcron-runner top`: one screen of what goes on, live or once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.cli import top_watch
from pgcron_runner.cli.output import _width
from pgcron_runner.cli.top_screen import draw, share_out
from pgcron_runner.cli.top_watch import Watch
from pgcron_runner.cli.wording import in_progress
from tests.cli.conftest import Cli
from tests.cli.terminal import on_terminal
from tests.statements.builders import (
    OTHER_WORKER,
    WORKER,
    add_job,
    add_planned_job,
    add_run,
    add_running,
    register,
)
from tests.support.databases import Database

SOON = datetime(2100, 1, 1, 12, tzinfo=UTC)
PAST = timedelta(days=20 * 365)


@pytest.fixture
def busy(database: Database) -> Database:
    """Something in every section."""
    register(database, WORKER, name="web-1", slots=3)
    register(database, OTHER_WORKER, name="web-2", queues=["mail"])
    copy = add_planned_job(database, "copy", next_run_at=SOON, timezone="Asia/Kolkata", max_attempts=3)
    add_running(
        database, copy, run_at=datetime(2020, 1, 1, tzinfo=UTC), attempt=2, progress={"percent": 40, "text": "users"}
    )
    database.execute("update pgcron.runs set started_at = now() - interval '3 hours'")
    add_run(database, add_job(database, "letters", queue="mail"), ago=PAST)
    failing = add_job(database, "夜間バッチ")
    for hours in (3, 2, 1):
        run_id = add_running(database, failing, ago=timedelta(hours=hours))
        database.execute(
            "update pgcron.runs set status = 'failed', finished_at = now(), error = E'boom\\nat line 1' where id = %s",
            (run_id,),
        )
    return database


def test_all_that_goes_on_is_there(cli: Cli, busy: Database) -> None:
    result = cli("top", "--once")
    assert (result.code, result.err) == (0, "")
    texts = [" ".join(line.split()) for line in result.lines]
    assert texts[1] == "2 workers, 1 of 8 slots busy; 1 due, 0 later; 3 failed in the last hour"
    assert "RUNNING 1 PROGRESS FOR TRY RUN QUEUE WORKER" in texts
    assert any(text.startswith("copy 40% users 3h 2/3 1 default web-1") for text in texts)
    assert any(text.startswith("夜間バッチ failed 3 ") and text.endswith("- boom") for text in texts)
    assert any(text.endswith("2100-01-01 17:30:00 +05:30 sql default") for text in texts)
    assert any(text.startswith("mail open 1 ") and text.endswith(" ago 0 0 none 8") for text in texts)
    assert any(text.startswith("web-2 alive 0/5 ") and text.endswith(" mail h") for text in texts)


def test_json_has_the_same(cli: Cli, busy: Database) -> None:
    shown = cli("top", "--json").json
    assert set(shown) == {"pulse", "running", "due", "failing", "queues", "workers"}
    assert shown["running"][0]["progress"] == {"percent": 40, "text": "users"}
    assert [job["failures"] for job in shown["failing"]] == [3]


def test_nothing_at_all_is_said_of_each_section(cli: Cli, database: Database) -> None:
    lines = cli("top").lines
    assert lines[1].startswith("0 workers, 0 of 0 slots busy;")
    assert lines.count("none") == 4  # the default queue is always there


def test_a_terminal_gets_a_screen_of_its_own_until_q_is_pressed(busy: Database) -> None:
    shown = on_terminal("top", "--interval", "1h", columns=80, env={"PGCRON_DSN": busy.dsn}, keys=b"q")
    assert "\x1b[?1049h" in shown
    assert "40% users" in shown
    assert shown.endswith("\x1b[?25h\x1b[?1049l")  # the cursor and the old screen are back


def test_a_dumb_terminal_gets_it_once(busy: Database) -> None:
    shown = on_terminal("top", columns=80, env={"PGCRON_DSN": busy.dsn, "TERM": "dumb"})
    assert "\x1b" not in shown
    assert "40% users" in shown


def test_without_a_database_it_ends_at_once(offline: Cli) -> None:
    result = offline("top", "--dsn", "postgresql:///x?host=/nonexistent")
    assert (result.code, result.out) == (1, "")


@pytest.fixture
async def watch(busy: Database) -> AsyncIterator[Watch]:
    watch = Watch(sessions.Database(busy.dsn, application_name="watched"))
    await watch.begin()
    yield watch
    await watch.close()


async def test_a_lost_connection_is_told_and_comes_back(watch: Watch, busy: Database) -> None:
    assert (watch.trouble(), watch.place) == ("", f"{busy.name} on this host")
    before = watch.snapshot
    busy.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'watched'")
    await watch.look(30)
    assert re.match(r"No connection, trying again; this is \S+ old\. \w+", watch.trouble())
    assert watch.snapshot is before
    await watch.look(30)
    assert watch.trouble() == ""
    assert watch.snapshot is not before


async def test_a_silent_database_is_told_holds_nothing_up_and_is_given_up(
    watch: Watch, busy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_watch, "_SILENT", 0.0)
    before = watch.snapshot
    pid = busy.value("select pid from pg_stat_activity where application_name = 'watched'")
    os.kill(pid, signal.SIGSTOP)
    try:
        await watch.look(0.01)
        assert watch.trouble().startswith("Postgres does not answer; this is ")
        monkeypatch.setattr(top_watch, "_GIVEN_UP", 0.0)
        await watch.look(30)
        assert watch.trouble().startswith("No connection, trying again; ")
        await watch.look(30)
        assert watch.trouble() == ""
        assert watch.snapshot is not before
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(30)
async def test_it_ends_while_the_database_is_silent(watch: Watch, busy: Database) -> None:
    pid = busy.value("select pid from pg_stat_activity where application_name = 'watched'")
    os.kill(pid, signal.SIGSTOP)
    try:
        await watch.look(0.01)
        await watch.close()
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 50), (200, 100), (60, 12), (40, 5), (20, 2), (10, 1)])
@pytest.mark.parametrize("trouble", ["", "No connection, " + "and why " * 50])
async def test_it_fits_any_screen(width: int, height: int, trouble: str, watch: Watch, busy: Database) -> None:
    for n in range(30):
        add_planned_job(busy, f"job-of-the-whole-company-in-all-regions-{n}", next_run_at=SOON)
    await watch.look(30)
    assert watch.snapshot is not None
    lines = draw(watch.snapshot, place="app on db", trouble=trouble, width=width, height=height)
    assert len(lines) <= height
    assert len(lines) == height or width < 80 or height > 60
    if width >= 80:
        assert max(_width(line.plain) for line in lines) <= width
        assert any("40% users" in line.plain for line in lines)
        assert any("web-1" in line.plain for line in lines[-3:])


@pytest.mark.parametrize(
    ("wanted", "room", "shares"),
    [([5, 1, 3], 9, [5, 1, 3]), ([5, 1, 3], 20, [5, 1, 3]), ([5, 1, 3], 6, [3, 1, 2]), ([5, 1, 3], 0, [0, 0, 0])],
)
def test_rows_are_shared_out_in_turn(wanted: list[int], room: int, shares: list[int]) -> None:
    assert share_out(wanted, room) == shares


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (None, ""),
        ({"percent": 12.6}, "13%"),
        ({"text": "copied"}, "copied"),
        ({"percent": 40, "text": "copied"}, "40% copied"),
        ({"percent": "x"}, ""),
        ([1], "[1]"),
    ],
)
def test_progress_is_shown_whatever_it_is(said: object, shown: str) -> None:
    assert in_progress(said) == shown
