"""EXPLAIN guards: every statement of the protocol reads a few pages, whatever lies in the tables.

One database with 100,000 jobs, a million finished runs and 10,000 runs queued for later; and schemas that were
installed just now, whose statistics say that there is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from pgcron_runner.database import Purpose, session_settings
from pgcron_runner.embedded import Server
from pgcron_runner.statements import query
from tests.statements.builders import NOW, WORKER
from tests.support.databases import Database, new_database

pytestmark = pytest.mark.slow

# What is due and what runs is little; all the rest must not be felt.
_DUE = 20
_RUNNING = 50
_KINDS = ["shell", "sql", "http", "python"]


@pytest.fixture(scope="module")
def big(server: Server, migrated_template: str) -> Iterator[Database]:
    """A million runs, analyzed as autovacuum would have done it."""
    with new_database(server, template=migrated_template) as database:
        fill(database, jobs=100_000, history=1_000_000, later=10_000)
        database.execute("vacuum (analyze) pgcron.jobs, pgcron.runs, pgcron.workers, pgcron.incidents, pgcron.alerts")
        yield database


@pytest.fixture(scope="module", params=["never analyzed", "analyzed while empty"])
def fresh(request: pytest.FixtureRequest, server: Server, migrated_template: str) -> Iterator[Database]:
    """A schema that was installed a moment ago and has filled up since."""
    with new_database(server, template=migrated_template) as database:
        if request.param == "analyzed while empty":
            database.execute(
                "vacuum (analyze) pgcron.jobs, pgcron.runs, pgcron.workers, pgcron.incidents, pgcron.alerts"
            )
        fill(database, jobs=5_000, history=50_000, later=2_000)
        yield database


def fill(database: Database, *, jobs: int, history: int, later: int) -> None:
    """Jobs 1 to `_DUE` are due, those after them have a queued run that is due, then `_RUNNING` have a running one."""
    statements: tuple[LiteralString, ...] = (
        "alter table pgcron.jobs set (autovacuum_enabled = false)",
        "alter table pgcron.runs set (autovacuum_enabled = false)",
        "set session_replication_role = replica",
        "set synchronous_commit = off",
        """insert into pgcron.jobs (name, kind, command, schedule, timezone, planned, next_run_at, max_attempts,
                                    zone_data)
           select 'job-' || i, 'sql', 'select 1', '* * * * *', 'UTC', true,
                  %(now)s + (i - %(due)s) * interval '1 second', 3, '2026a' from generate_series(1, %(jobs)s) i""",
        """insert into pgcron.workers (id, name, host, pid, version, zone_data, kinds, slots, lease, ended_at)
           select case i when 1 then %(worker)s::uuid else gen_random_uuid() end, 'w', 'h', i, '1', '2026a', '{sql}',
                  10, '30 s', case when i > 20 then %(now)s - interval '1 hour' end from generate_series(1, 40) i""",
        # Oldest first, as history grows: from forty days ago until now.
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, max_running,
                                    worker_id, started_at, finished_at, exit_code)
           select 1 + i %% %(jobs)s, 'job-' || 1 + i %% %(jobs)s, 'sql', 'schedule', at, at,
                  case when i %% 50 = 0 then 'failed' else 'succeeded' end, 1, %(worker)s, at, at + '1 second', 0
             from (select i, %(now)s - interval '40 days' + i * (interval '39 days' / %(history)s) as at
                     from generate_series(0, %(history)s - 1) i) past""",
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
           select i, 'job-' || i, 'sql', 'schedule', at, at, 1
             from (select i, %(now)s + (i - 2 * %(due)s) * interval '1 second' as at
                     from generate_series(%(due)s + 1, %(due)s + %(later)s) i) queued
            where i <= 2 * %(due)s or i > 2 * %(due)s + %(running)s""",
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, max_running, lane,
                                    worker_id, started_at)
           select i, 'job-' || i, 'sql', 'schedule', %(now)s, %(now)s, 'running', 1, 1, %(worker)s, %(now)s
             from generate_series(2 * %(due)s + 1, 2 * %(due)s + %(running)s) i""",
        "insert into pgcron.channels (name, target) select 'channel-' || i, 'json://x' from generate_series(1, 3) i",
        """insert into pgcron.routes (channel_id, job_pattern, min_failures, repeat_every)
           select id, 'job*', 1, '1 hour'::interval from pgcron.channels union all
           select id, 'job*', 3, null from pgcron.channels""",
        # One job in five has had an incident, 1,000 are open, and all channels were told of all.
        """insert into pgcron.incidents (job_id, job_name, event, opened_at, closed_at)
           select i, 'job-' || i, 'failed', %(now)s - interval '1 day',
                  case when i > 1000 then %(now)s - interval '9 hours' end
             from generate_series(1, %(jobs)s / 5) i""",
        """insert into pgcron.alerts (channel_id, incident_id, job_name, event, dedup_key, created_at, send_at, sent_at)
           select c.id, i.id, i.job_name, e, e || i.id, i.opened_at, i.opened_at,
                  case when i.id > 5 or e <> 'failed' then i.opened_at end
             from pgcron.incidents i, pgcron.channels c, unnest(array['failed', 'recovered']) e
            where e = 'failed' or i.closed_at is not null""",
        "set session_replication_role = origin",
    )
    sizes = {
        "now": NOW,
        "worker": WORKER,
        "due": _DUE,
        "running": _RUNNING,
        "jobs": jobs,
        "history": history,
        "later": later,
    }
    for statement in statements:
        database.execute(statement, sizes if "%(" in statement else None)


# ------------------------------------------------------------------------------------------ the statements

_NEW = NOW + timedelta(microseconds=1)
_TEN = list(range(1, 11))
_NONE: list[None] = [None] * 10
_LANE = {"queue": "default", "priority": 0, "kinds": _KINDS, "refused": [], "worker_id": WORKER, "now": NOW}
_PLANNED = {
    "job_ids": _TEN,
    "scheduled_for": [_NEW] * 10,
    "run_at": [_NEW] * 10,
    "statuses": ["queued"] * 10,
    "reasons": _NONE,
    "missed_counts": _NONE,
    "missed_until": _NONE,
    "now": NOW,
}
_ENDINGS = {
    "statuses": ["failed"] * 10,
    "exit_codes": [1] * 10,
    "errors": ["boom"] * 10,
    "reasons": _NONE,
    "results": _NONE,
    "progress": _NONE,
    "states": _NONE,
    "next_runs": _NONE,
    "retry_in": [5.0] * 10,
    "worker_id": WORKER,
    "now": NOW,
}
_OUTPUTS = {"outputs": ["x"] * 10, "total_bytes": [1] * 10, "truncated": [False] * 10, "worker_id": WORKER}
_ZONE = {"zone_data": "2026a", "now": NOW}
_PRUNED = {"after_id": 0, "jobs": 20, "limit": 200, "now": NOW}
_SQL_RUN = {
    "job_id": 2 * _DUE + 1,
    "run_id": "run",
    "worker_id": WORKER,
    "exclusive": True,
    "job_name": "x",
    "scheduled_for": "x",
    "attempt": 1,
    "args": "{}",
    "state": "",
    "timeout_ms": 9,
}

_CONTROL, _RECORD, _JOB = Purpose.CONTROL, Purpose.RECORD, Purpose.JOB

# Statement, session, parameters, and the most pages it may touch. "run" and "runs" stand for ids of running runs.
_STATEMENTS: dict[str, tuple[str, Purpose, dict[str, Any], int]] = {
    "next due": ("next_due", _CONTROL, _ZONE, 40),
    "next due, by older zone data": ("next_due", _CONTROL, _ZONE | {"zone_data": "2001a"}, 200),
    "due jobs, 10": ("due_jobs", _CONTROL, _ZONE | {"limit": 10}, 200),
    "due jobs, all": ("due_jobs", _CONTROL, _ZONE | {"limit": 500}, 350),
    "due jobs, by older zone data": ("due_jobs", _CONTROL, _ZONE | {"limit": 500, "zone_data": "2001a"}, 60),
    "plan 10 runs": ("insert_planned_runs", _CONTROL, _PLANNED, 500),
    "move 10 jobs on": (
        "move_jobs_on",
        _CONTROL,
        {
            "job_ids": _TEN,
            "next_run_at": [_NEW] * 10,
            "problems": _NONE,
            "fired_local": ["2035-03-14T12:00:00"] * 10,
            "zone_data": "2026a",
            "now": NOW,
        },
        400,
    ),
    "replace 10 runs": ("request_replacement", _CONTROL, {"run_ids": "runs"}, 150),
    "claim 1": ("claim_runs", _CONTROL, _LANE | {"limit": 1}, 100),
    "claim 10": ("claim_runs", _CONTROL, _LANE | {"limit": 10}, 600),
    "claim all that is due": ("claim_runs", _CONTROL, _LANE | {"limit": 500}, 1_200),
    "claim in an empty lane": ("claim_runs", _CONTROL, _LANE | {"limit": 10, "priority": 5}, 20),
    "claim before anything is due": ("claim_runs", _CONTROL, _LANE | {"limit": 10, "now": NOW - timedelta(days=1)}, 20),
    "lock a queue": ("lock_queue", _CONTROL, {"queue": "default"}, 20),
    "count in a queue": ("count_running_in_queue", _CONTROL, {"queue": "default"}, 120),
    "beat": ("beat_worker", _CONTROL, {"id": WORKER, "stopping": False}, 30),
    "read own runs": ("read_own_runs", _CONTROL, {"run_ids": "runs", "worker_id": WORKER}, 120),
    "give 10 runs back": ("give_back_runs", _CONTROL, {"run_ids": "runs", "worker_id": WORKER}, 400),
    "finish 10 runs": ("finish_runs", _RECORD, _ENDINGS | {"run_ids": "runs"}, 800),
    "store 10 outputs": ("store_output", _RECORD, _OUTPUTS | {"run_ids": "runs"}, 200),
    "list beats": ("list_beats", _RECORD, {}, 250),
    "lock a silent worker": ("lock_silent_worker", _RECORD, {"id": WORKER, "beat": 0}, 20),
    "read lost runs": ("lock_lost_runs", _RECORD, {"worker_id": WORKER, "limit": 500, "run_ids": None}, 500),
    "end a worker": ("end_worker", _RECORD, {"id": WORKER, "reason": "lost"}, 30),
    "cancel a running run": ("cancel_run", _RECORD, {"run_id": "run", "reason": "by hand"}, 60),
    "run a job now": (
        "enqueue_run",
        _RECORD,
        {"name": "job-4000", "args": None, "overlap": None, "now": NOW + timedelta(days=9)},
        250,
    ),
    "backfill 10 times": (
        "insert_backfill",
        _RECORD,
        {"job_id": 4000, "times": [_NEW + timedelta(minutes=n) for n in range(10)], "overlap": "queue_all", "now": NOW},
        500,
    ),
    "close late runs": ("close_late_runs", _RECORD, {"limit": 500, "now": NOW}, 200),
    "withdraw stopped runs": ("withdraw_stopped_runs", _RECORD, {"limit": 500, "now": NOW}, 1_000),
    "prune 20 jobs": ("prune_runs", _RECORD, _PRUNED, 2_000),
    "prune nothing": ("prune_runs", _RECORD, _PRUNED | {"now": NOW - timedelta(days=99)}, 400),
    "prune orphans": ("prune_orphaned_runs", _RECORD, {"limit": 200, "now": NOW}, 20),
    "prune workers": ("prune_workers", _RECORD, {"now": NOW}, 20),
    "finish 10 runs for good": ("finish_runs", _RECORD, _ENDINGS | {"run_ids": "runs", "retry_in": _NONE}, 800),
    "take the watch": ("take_watch", _RECORD, {"every": 10.0, "now": NOW}, 10),
    "close settled incidents": ("close_settled_incidents", _RECORD, {"limit": 500, "now": NOW}, 12_000),
    "find late runs": ("note_late_runs", _RECORD, {"limit": 500, "now": NOW}, 100),
    "find long runs": ("note_long_runs", _RECORD, {"limit": 500, "now": NOW}, 4_000),
    "tell again of 50 incidents": ("tell_again", _RECORD, {"after_id": 0, "limit": 50, "now": NOW}, 10_000),
    "pause failing jobs": ("pause_failing_jobs", _RECORD, {"limit": 500}, 12_000),
    "channels with something due": ("list_due_channels", _RECORD, {"now": NOW}, 150),
    "claim alerts": ("claim_alerts", _RECORD, {"channel_id": 1, "limit": 500, "retry_in": 9.0, "now": NOW}, 300),
    "mark alerts": ("mark_alerts_sent", _RECORD, {"ids": _TEN, "now": NOW}, 400),
    "postpone alerts": (
        "postpone_alerts",
        _RECORD,
        {"ids": _TEN, "error": "no", "retry_in": 5.0, "permanent": False, "now": NOW},
        400,
    ),
    "open a SQL run": (
        "open_sql_run",
        _JOB,
        _SQL_RUN,
        20,
    ),
    "settle a SQL run": ("settle_sql_run", _JOB, {"job_id": 1, "run_id": "run"}, 20),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["own settings", "seqscan on", "generic plan", "generic plan, seqscan on"])
@pytest.mark.parametrize("case", _STATEMENTS)
def test_no_statement_feels_a_million_runs(case: str, mode: str, big: Database) -> None:
    assert_cheap(big, case, mode)


@pytest.mark.parametrize("mode", ["own settings", "generic plan"])
@pytest.mark.parametrize("case", _STATEMENTS)
def test_no_statement_is_led_astray_by_statistics_of_an_empty_table(case: str, mode: str, fresh: Database) -> None:
    if _STATEMENTS[case][1] is Purpose.JOB:
        mode += ", seqscan off"  # a job's session has no settings of ours; its statements go by the primary key
    assert_cheap(fresh, case, mode)


def assert_cheap(database: Database, case: str, mode: str) -> None:
    name, purpose, parameters, bound = _STATEMENTS[case]
    # What the cases before have rolled back is none of its pages.
    database.execute("vacuum (index_cleanup on) pgcron.alerts")
    with worker_session(database, purpose) as connection:
        if "seqscan on" in mode:
            connection.execute("set enable_seqscan = on")
        if "seqscan off" in mode:
            connection.execute("set enable_seqscan = off")
        if name == "enqueue_run":
            # The first call of a function in a session reads the catalog as well.
            connection.execute(query(name), parameters | {"name": "job-4001"})
        plan = explain(connection, name, with_ids(database, parameters), generic="generic" in mode)
    pages = pages_of(plan)
    print(f"{case} ({mode}): {pages} pages")
    assert sequential_scans(plan) == [], outline(plan)
    assert pages <= bound, outline(plan)


def test_a_plan_made_while_nothing_was_there_looks_up_the_runs_of_due_jobs_by_the_job(
    server: Server, migrated_template: str
) -> None:
    """The server keeps it for as long as the session lives: thousands of runs may be queued a second later."""
    parameters = _ZONE | {"limit": 500}
    with (
        new_database(server, template=migrated_template) as database,
        worker_session(database, Purpose.CONTROL) as connection,
    ):
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.execute(prepared(query("due_jobs").decode(), parameters))
        call = "execute s (%(zone_data)s, %(now)s, %(limit)s)"
        assert connection.execute(call, parameters).fetchall() == []
        connection.commit()
        database.execute(
            """insert into pgcron.jobs (name, kind, command, schedule, timezone, planned, next_run_at)
               select 'job-' || i, 'sql', 'select 1', '* * * * *', 'UTC', true, %s from generate_series(1, 4000) i""",
            [NOW],
        )
        database.execute(
            """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
               select id, name, kind, 'schedule', %s, %s, 1 from pgcron.jobs""",
            [NOW - timedelta(minutes=1), NOW - timedelta(minutes=1)],
        )
        row = connection.execute("explain (analyze, buffers, format json) " + call, parameters).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
    print(f"500 due of 4,000, all with a queued run: {pages_of(plan)} pages")
    assert pages_of(plan) <= 6_000, outline(plan)
    assert max(node["Actual Rows"] for node in nodes(plan) if node.get("Relation Name") == "runs") <= 1


# -------------------------------------------------------------------------------------------------- triggers


@pytest.mark.parametrize("status", ["failed", "succeeded"])
def test_what_ends_for_good_looks_up_its_incidents_and_alerts_by_their_keys(status: str, big: Database) -> None:
    """The triggers' own statements, which no plan shows."""
    with worker_session(big, Purpose.RECORD) as connection:
        connection.execute("update pgcron.runs set in_incident = true where status = 'running'")
        connection.commit()
        parameters = with_ids(big, _ENDINGS | {"run_ids": "runs", "retry_in": _NONE, "statuses": [status] * 10})
        connection.execute(query("finish_runs"), parameters)
        touched = connection.execute(
            "select relname, seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'pgcron'"
        ).fetchall()
    scanned = {table for table, scans, _ in touched if scans}
    assert scanned <= {"channels", "routes", "settings", "chains"}
    fetched = {table: rows for table, _, rows in touched}
    print(fetched)
    assert fetched["incidents"] <= 100
    assert fetched["alerts"] <= 200


# --------------------------------------------------------------------------------------------- backlogs


@pytest.fixture
def clean(big: Database) -> Iterator[Database]:
    """The big database; what a test left dead in its indexes is cleared away afterwards."""
    yield big
    big.execute("vacuum (index_cleanup on) pgcron.runs")


def queue_up(connection: psycopg.Connection, number: int, *, queue: str = "default", job_id: int | None = None) -> None:
    """Runs that have long been due: of one job, or of as many jobs."""
    connection.execute(
        """insert into pgcron.runs (job_id, job_name, kind, queue, trigger, scheduled_for, run_at, max_running)
           select coalesce(%s, 1000 + i), 'behind', 'sql', %s, 'schedule', at, at, 1
             from (select i, %s - interval '100 days' - i * interval '1 minute' as at
                     from generate_series(1, %s) i) behind""",
        (job_id, queue, NOW, number),
    )


def test_a_backlog_of_one_busy_job_costs_a_claim_less_than_a_page_for_each_of_its_runs(clean: Database) -> None:
    with worker_session(clean, Purpose.CONTROL) as connection:
        connection.execute("begin")
        queue_up(connection, 10_000, job_id=2 * _DUE + 1)
        plan = explain(connection, "claim_runs", _LANE | {"limit": 10})
    print(f"claim 10 behind a backlog of 10,000 of a busy job: {pages_of(plan)} pages")
    assert sequential_scans(plan) == []
    assert pages_of(plan) <= 10_000, outline(plan)


def test_a_backlog_of_another_queue_is_not_felt(clean: Database) -> None:
    with worker_session(clean, Purpose.CONTROL) as connection:
        connection.execute("begin")
        queue_up(connection, 20_000, queue="slow")
        claim = pages_of(explain(connection, "claim_runs", _LANE | {"limit": 10}))
        due = pages_of(explain(connection, "next_due", _ZONE))
    print(f"beside a backlog of 20,000 in another queue: claim 10 {claim} pages, next due {due} pages")
    assert claim <= 600
    assert due <= 50


def test_what_was_worked_through_before_the_next_vacuum_is_passed_once(clean: Database) -> None:
    with worker_session(clean, Purpose.CONTROL) as connection:
        queue_up(connection, 10_000)
        connection.rollback()
        first, second = (pages_of(explain(connection, "claim_runs", _LANE | {"limit": 10})) for _ in range(2))
    print(f"with 10,000 dead rows in front: the first claim of 10 {first} pages, the second {second} pages")
    assert second <= 600


# --------------------------------------------------------------------------------------------- EXPLAIN


@contextmanager
def worker_session(database: Database, purpose: Purpose) -> Iterator[psycopg.Connection]:
    """A session with the settings of its purpose, whose parameters the client binds; what it changed is rolled back."""
    with closing(psycopg.connect(database.dsn, cursor_factory=psycopg.ClientCursor)) as connection:
        for name, value in session_settings(purpose, timedelta(seconds=30)).items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
        connection.execute("set statement_timeout = '60s'")
        connection.commit()
        yield connection
        connection.rollback()


def with_ids(database: Database, parameters: dict[str, Any]) -> dict[str, Any]:
    ids = [row[0] for row in database.rows("select id from pgcron.runs where status = 'running' order by id limit 10")]
    return {name: ids[0] if value == "run" else ids if value == "runs" else value for name, value in parameters.items()}


def explain(
    connection: psycopg.Connection, name: str, parameters: dict[str, Any], *, generic: bool = False
) -> dict[str, Any]:
    """The plan of a statement as it ran: with its parameters known, or as the server keeps it for any parameters."""
    prefix = "explain (analyze, buffers, costs off, timing off, summary off, format json) "
    text = query(name).decode()
    if not generic:
        row = connection.execute(prefix + text, parameters).fetchone()
    else:
        connection.execute("set local plan_cache_mode = force_generic_plan")
        connection.execute(prepared(text, parameters))
        call = "execute s" + (f" ({', '.join(f'%({key})s' for key in parameters)})" if parameters else "")
        row = connection.execute(prefix + call, parameters).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


_TYPES: dict[type, str] = {int: "bigint", datetime: "timestamptz", UUID: "uuid", bool: "boolean"}


def prepared(text: str, parameters: dict[str, Any]) -> str:
    """PREPARE with the types that the driver would send; text and lists are left to the server, as the driver does."""
    numbers = {name: f"${number}" for number, name in enumerate(parameters, 1)}
    body = re.sub(r"%\((\w+)\)s", lambda found: numbers[found[1]], text)
    types = ", ".join(_TYPES.get(type(value), "unknown") for value in parameters.values())
    return f"prepare s {f'({types})' if types else ''} as {body}"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def sequential_scans(plan: dict[str, Any]) -> list[str]:
    """Tables that grow and were read from end to end."""
    return [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in ("jobs", "runs") and node["Actual Loops"] > 0
    ]


def pages_of(plan: dict[str, Any]) -> int:
    """Pages touched. A change in a WITH that nobody reads runs after the plan's root has ended: they come on top."""
    read = {node.get("CTE Name") for node in nodes(plan)}
    aside = [
        node
        for node in nodes(plan)
        if node["Node Type"] == "ModifyTable" and node.get("Subplan Name", "").removeprefix("CTE ") not in read
    ]
    tops = [plan, *(node for node in aside if node is not plan)]
    return sum(int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"]) for node in tops)


def outline(plan: dict[str, Any], depth: int = 0) -> str:
    """The plan in short, for a failing test."""
    what = " ".join(
        str(plan[key]) for key in ("Subplan Name", "Node Type", "Relation Name", "Index Name") if key in plan
    )
    pages = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    line = f"\n{'  ' * depth}{what}: {plan.get('Actual Rows')} rows x {plan.get('Actual Loops')}, {pages} pages"
    return line + "".join(outline(child, depth + 1) for child in plan.get("Plans", []))
