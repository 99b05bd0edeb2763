"""However much a statement returns, a worker's memory stays as it is, and the statement runs to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.result import MOST_BYTES
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Status, StopReason
from tests.execution.sql.stage import ALONE, MakeRunner, work
from tests.execution.tasks import claimed_task, running, text_of, value_of
from tests.support.databases import Database
from tests.support.waiting import eventually_async

BOTH = pytest.mark.parametrize("args", [{}, ALONE], ids=["transaction", "autocommit"])
MEGABYTE = 1 << 20


async def growth(work: Callable[[], Any]) -> tuple[Outcome, int]:
    """What it returns, and by how many bytes this process was larger at its largest."""
    before = _peak(reset=True)
    outcome = await work()
    return outcome, _peak() - before


def _peak(*, reset: bool = False) -> int:
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def statements(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.status is Status.SUCCEEDED, outcome
    counts: list[dict[str, Any]] = outcome.result["statements"]
    return counts


@pytest.mark.skipif(sys.platform != "linux", reason="tells its peak in /proc")
@BOTH
async def test_a_hundred_megabytes_of_rows_are_counted_and_not_kept(
    database: Database, runner: SqlRunner, args: dict[str, Any]
) -> None:
    await runner.run(claimed_task(database, "select 1", name="warm", args=args), Stop(), Live())
    task = claimed_task(database, "select g, repeat('x', 1000) from generate_series(1, 100000) g", args=args)
    outcome, grown = await growth(lambda: runner.run(task, Stop(), Live()))
    assert (value_of(outcome), statements(outcome)) == (1, [{"command": "SELECT 100000", "rows": 100000}])
    assert grown < 10 * MEGABYTE


async def test_a_statement_that_returns_rows_runs_to_its_end(database: Database, runner: SqlRunner) -> None:
    command = """
        insert into work select generate_series(1, 5000) returning n, repeat('x', 100);
        update work set n = n + 1 where n > 10 returning *;
        delete from work where n = 1 returning n;
        with gone as (delete from work where n < 5 returning n) select n from gone, generate_series(1, 100);
        declare c cursor for select n from work order by n;
        fetch 7 from c; move all in c; fetch all from c;
        explain select 1; show timezone; execute_nothing"""
    command = command.replace("; execute_nothing", "")
    outcome = await runner.run(claimed_task(database, command), Stop(), Live())
    assert [(count["command"], count["rows"]) for count in statements(outcome)] == [
        ("INSERT 0 5000", 5000),
        ("UPDATE 4990", 4990),
        ("DELETE 1", 1),
        ("SELECT 300", 300),
        ("DECLARE CURSOR", None),
        ("FETCH 7", 7),
        ("MOVE 4989", 4989),
        ("FETCH 0", 0),
        ("EXPLAIN", None),
        ("SHOW", None),
    ]
    assert (value_of(outcome), work(database)) == (1, 4996)


async def test_an_error_in_the_middle_of_the_rows_is_the_statements_end(database: Database, runner: SqlRunner) -> None:
    failing = "insert into work select n from generate_series(1, 5000) n returning 1 / (n - 4000)"
    outcome = await runner.run(claimed_task(database, f"select 1; {failing}"), Stop(), Live())
    assert (outcome.error, text_of(outcome)) == ("22012: division by zero", "SELECT 1\n")
    after = await runner.run(claimed_task(database, "select count(*) from work", name="after"), Stop(), Live())
    assert value_of(after) == 0


async def test_a_notice_among_the_rows_is_heard(database: Database, runner: SqlRunner) -> None:
    database.execute(
        """create function noisy(n int) returns int language plpgsql as
           $$begin if n % 1000 = 0 then raise notice 'at %', n; end if; return n; end$$"""
    )
    outcome = await runner.run(
        claimed_task(database, "select noisy(n) from generate_series(1, 3000) n"), Stop(), Live()
    )
    assert text_of(outcome) == "NOTICE: at 1000\nNOTICE: at 2000\nNOTICE: at 3000\nSELECT 3000\n"


async def test_rows_without_end_can_be_cancelled(database: Database, runner: SqlRunner) -> None:
    stop = Stop()
    task = claimed_task(database, "select n from generate_series(1, 1000000000000) n")
    async with running(runner.run, task, stop) as going:

        async def streams() -> bool:
            return bool(database.value("select true from pg_stat_activity where query = %s", (task.command,)))

        await eventually_async(streams, message="the statement runs")
        stop.request(StopReason.CANCEL)
        outcome = await going
    assert outcome.error == "57014: canceling statement due to user request"


@pytest.mark.parametrize("kind", ["text", "json", "bytea"])
async def test_of_a_huge_value_only_its_size_is_told(database: Database, runner: SqlRunner, kind: str) -> None:
    value = {"text": "repeat('x', {})", "json": "('\"' || repeat('x', {} - 2) || '\"')::json"}.get(
        kind, "convert_to(repeat('x', {} / 2 - 1), 'UTF8')"
    )
    size = MOST_BYTES + 2
    task = claimed_task(database, f"select {value.format(size)}")
    outcome = await runner.run(task, Stop(), Live())
    assert (value_of(outcome), statements(outcome)) == (None, [{"command": "SELECT 1", "rows": 1}])
    assert text_of(outcome) == f"SELECT 1\nits value was not kept: it has {size:,} bytes, more than {MOST_BYTES:,}\n"


async def test_a_session_is_not_kept_for_ever_since_it_keeps_the_room_of_its_widest_row(
    database: Database, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner(sessions_=1)
    pids = []
    for number, now in enumerate((0.0, 300.0, 601.0, 602.0)):
        monkeypatch.setattr("pgcron_runner.execution.sql.sessions.boottime", lambda now=now: now)
        task = claimed_task(database, "select pg_backend_pid()", name=f"job {number}")
        pids.append(value_of(await runner.run(task, Stop(), Live())))
    assert pids[0] == pids[1] == pids[2] != pids[3]
