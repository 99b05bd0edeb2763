"""Report: what running runs say of themselves is in their rows while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose
from pgcron_runner.errors import DatabaseUnavailable
from pgcron_runner.execution import live as live_module
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.report import Report
from pgcron_runner.session import Session
from tests.statements.builders import OTHER_WORKER, WORKER, add_job, add_running
from tests.support.databases import Database


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Session]:
    session = Session(sessions.Database(database.dsn, "report"), Purpose.RECORD)
    yield session
    await session.close()


def talking(text: bytes = b"", **said: Any) -> Live:
    live = Live()
    live.output = OutputBuffer(1024)
    live.output.append(text)
    live.progress, live.state = said.get("progress"), said.get("state")
    return live


def row(database: Database, run_id: int) -> tuple[Any, ...]:
    found = database.rows(
        "select output, output_bytes, output_truncated, progress, state from pgcron.runs where id = %s", (run_id,)
    )
    return tuple(found[0])


async def test_news_are_written_once(record: Session, database: Database) -> None:
    job = add_job(database, overlap="allow")
    first, second = (add_running(database, job, max_running=None, scheduled_for=f"2026-01-0{n}") for n in (1, 2))
    running = {first: talking(b"hello\n", progress={"percent": 40}, state={"cursor": 7}), second: Live()}
    report = Report(record, WORKER, lambda: running)
    assert await report.step() == 1
    assert row(database, first) == ("hello\n", 6, False, {"percent": 40}, {"cursor": 7})
    assert row(database, second) == (None, None, None, None, None)
    assert await report.step() == 0
    running[first].progress = {"percent": 50}
    assert await report.step() == 1
    assert row(database, first) == ("hello\n", 6, False, {"percent": 50}, {"cursor": 7})


async def test_a_run_that_is_no_longer_this_workers_is_left_alone(record: Session, database: Database) -> None:
    job = add_job(database, overlap="allow")
    taken = add_running(database, job, OTHER_WORKER, max_running=None)
    over = add_running(database, job, max_running=None, scheduled_for="2026-01-01")
    database.execute("update pgcron.runs set status = 'lost', finished_at = now() where id = %s", (over,))
    report = Report(record, WORKER, lambda: {taken: talking(b"late"), over: talking(b"late")})
    assert await report.step() == 0
    assert row(database, taken)[0] is None
    assert row(database, over)[0] is None


async def test_a_locked_row_is_not_waited_for_and_is_told_the_next_time(record: Session, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    running = {run_id: talking(b"hello")}
    report = Report(record, WORKER, lambda: running)
    with psycopg.connect(database.dsn) as other, other.transaction():
        other.execute("select from pgcron.runs where id = %s for update", (run_id,))
        assert await report.step() == 0
    assert await report.step() == 1
    assert row(database, run_id)[0] == "hello"


async def test_what_could_not_be_sent_is_told_the_next_time(record: Session, database: Database) -> None:
    run_id = add_running(database, add_job(database))
    running = {run_id: talking(b"hello", state={"cursor": 1})}
    report = Report(record, WORKER, lambda: running)
    async with record.use() as connection:
        pid = connection.info.backend_pid
    database.rows("select pg_terminate_backend(%s, 5000)", (pid,))
    with pytest.raises(DatabaseUnavailable):
        await report.step()
    assert await report.step() == 1
    assert row(database, run_id)[::4] == ("hello", {"cursor": 1})


async def test_the_output_of_a_run_that_has_long_been_printing_is_written_more_seldom(
    record: Session, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    monkeypatch.setattr(live_module, "boottime", lambda: clock)
    run_id = add_running(database, add_job(database))
    live = talking(b"a")
    report = Report(record, WORKER, lambda: {run_id: live})
    clock += 3600
    assert await report.step() == 1
    assert live.output is not None
    live.output.append(b"b")
    clock += 4.9
    assert await report.step() == 0
    live.progress = {"percent": 1}
    assert await report.step() == 1
    assert row(database, run_id)[0] == "a"
    clock += 0.2
    assert await report.step() == 1
    assert row(database, run_id)[0] == "ab"


async def test_where_nobody_says_anything_nothing_is_asked(record: Session) -> None:
    class Unused:
        def use(self) -> None:
            raise AssertionError("the database was asked")

    assert await Report(Unused(), WORKER, lambda: {1: Live(), 2: Live()}).step() == 0  # type: ignore[arg-type]
