"""The job that works in slices, on a worker that is killed in the middle."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pgcron_runner import pretend_run
from tests.conftest import StartWorker
from tests.examples import copy_in_slices
from tests.examples.copy_in_slices import copy_orders
from tests.support.databases import Database
from tests.support.waiting import eventually

ROOT = str(Path(__file__).resolve().parents[2])
ROWS = 200
# On any machine a slice of two seconds copies half of them at most, and lasts longer than it takes to report of it.
SLOWLY = """create function copied.linger() returns trigger language plpgsql as
    $$begin perform pg_sleep(0.02); return new; end$$;
    create trigger linger before insert on copied.orders for each row execute function copied.linger()"""


@pytest.fixture
def tables(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The orders, and an empty table of the same name in another schema of the same database."""
    database.execute("create schema copied; create table orders (id int primary key, item text)")
    database.execute("create table copied.orders (like orders including all)")
    database.execute(f"insert into orders select n, 'item ' || n from generate_series(1, {ROWS}) n")
    monkeypatch.setenv("COPY_FROM", database.dsn)
    monkeypatch.setenv("COPY_TO", psycopg.conninfo.make_conninfo(database.dsn, options="-c search_path=copied"))
    monkeypatch.setenv("PYTHONPATH", ROOT)
    return database


def copied(database: Database) -> int:
    return int(database.value("select count(*) from copied.orders"))


def run_job(database: Database, args: str) -> None:
    target = f"{copy_in_slices.__name__}:copy_orders"
    database.execute(
        """insert into pgcron.jobs (name, kind, command, schedule, timezone, env_from, args, max_attempts, retry_delay)
           values ('copy-orders', 'python', %s, '@manual', 'UTC', '{COPY_FROM,COPY_TO}', %s, 5, '0')""",
        [target, args],
    )
    database.execute("select pgcron.enqueue_run(id, 'manual', now()) from pgcron.jobs")


def test_it_goes_on_where_it_was_when_its_worker_was_killed(tables: Database, start_worker: StartWorker) -> None:
    tables.execute(SLOWLY)
    worker = start_worker("--lease", "2s")
    run_job(tables, '{"seconds": 2, "batch": 1}')
    # The worker has written it down, and the second slice is at work.
    eventually(
        lambda: tables.value(
            "select count(*) filter (where status = 'running' and state is not null and progress is not null) = 1"
            " and count(*) > 1 from pgcron.runs"
        ),
        30,
    )
    worker.kill()
    before = copied(tables)
    start_worker("--lease", "2s")
    eventually(lambda: not tables.value("select count(*) from pgcron.runs where status in ('queued', 'running')"), 80)

    assert before < ROWS
    assert copied(tables) == ROWS
    runs = tables.rows("select status, attempt, result, state, trigger from pgcron.runs order by id")
    assert [status for status, *_ in runs if status != "succeeded"] == ["lost"]
    (lost,) = [place for place, row in enumerate(runs) if row[0] == "lost"]
    # Each began after what the one before it had saved, and so did the one after the lost.
    saved = [(row[3] or {"last_id": 0})["last_id"] for row in runs]
    began = [row[2]["after"] for row in runs if row[0] == "succeeded"]
    assert began == [0, *saved[:-1]][:lost] + saved[lost:-1]
    assert saved[lost] > 0
    assert (runs[lost + 1][1], runs[lost + 1][4]) == (2, "retry")


def test_one_slice_can_be_tried_without_a_worker(tables: Database) -> None:
    with pretend_run(state={"last_id": 10}) as pretended:
        assert copy_orders(seconds=0, batch=25) == {"after": 10, "up_to": 35}
    assert (copied(tables), pretended.state, pretended.next_runs) == (25, {"last_id": 35}, [{"after": 0}])
    with pretend_run(state=pretended.state) as pretended:
        assert copy_orders(batch=1000) == {"after": 35, "up_to": ROWS}
    assert (copied(tables), pretended.next_runs, pretended.line) == (ROWS - 10, [], f"100 {ROWS} of {ROWS}")
