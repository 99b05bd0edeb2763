"""Rows for the tests of statements, in few words, and short looks at what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg import sql
from psycopg.types.json import Jsonb

from pgcron_runner.database import Connection
from pgcron_runner.decisions import Lane
from pgcron_runner.model import Kind, Outcome, Status
from pgcron_runner.store import runs
from pgcron_runner.store.runs import Claimed, Ending
from tests.support.databases import Database

# The tests' own clock: far enough from the server's that no statement can mix the two up unseen.
NOW = datetime(2035, 3, 14, 12, tzinfo=UTC)
WORKER = UUID("11111111-1111-1111-1111-111111111111")
OTHER_WORKER = UUID("22222222-2222-2222-2222-222222222222")
DEFAULT_LANE = Lane("default", 0)
ZONE_DATA = "2026a"


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


_A_MINUTE = minutes(1)


def add_job(database: Database, name: str = "job", **columns: Any) -> int:
    """A job as a person inserts it; a worker has yet to plan it."""
    columns = {"kind": "sql", "command": "select 1", "schedule": "* * * * *", "timezone": "UTC"} | columns
    return int(_insert(database, "jobs", {"name": name} | columns))


def add_planned_job(
    database: Database, name: str = "job", *, next_run_at: datetime | None = NOW, **columns: Any
) -> int:
    """A job that a worker has planned already."""
    job_id = add_job(database, name, **columns)
    database.execute("update pgcron.jobs set planned = true, next_run_at = %s where id = %s", (next_run_at, job_id))
    return job_id


def add_run(database: Database, job_id: int, *, ago: timedelta = _A_MINUTE, **columns: Any) -> int:
    """A queued run of the job, due `ago` before NOW, as firing would make it."""
    [(name, kind, queue, priority, overlap, max_running)] = database.rows(
        "select name, kind, queue, priority, overlap, max_running from pgcron.jobs where id = %s", (job_id,)
    )
    made = {
        "job_id": job_id,
        "job_name": name,
        "kind": kind,
        "queue": queue,
        "priority": priority,
        "trigger": "schedule",
        "scheduled_for": NOW - ago,
        "run_at": NOW - ago,
        "max_running": max_running if overlap == "allow" else 1,
    }
    return int(_insert(database, "runs", made | columns))


def add_running(database: Database, job_id: int, worker_id: UUID = WORKER, **columns: Any) -> int:
    """A running run; in lane 1 unless the job allows any number of them."""
    run_id = add_run(database, job_id, **columns)
    database.execute(
        """update pgcron.runs set status = 'running', worker_id = %s, started_at = run_at,
                  lane = coalesce(lane, case when max_running is not null then 1 end) where id = %s""",
        (worker_id, run_id),
    )
    return run_id


def add_final(database: Database, job_id: int, status: str = "succeeded", **columns: Any) -> int:
    """A run that ended when it was due."""
    run_id = add_running(database, job_id, **columns)
    database.execute("update pgcron.runs set status = %s, finished_at = run_at where id = %s", (status, run_id))
    return run_id


def register(database: Database, worker_id: UUID | None = None, **columns: Any) -> UUID:
    """A living worker."""
    worker_id = worker_id or uuid4()
    facts = {"name": "w", "host": "h", "pid": 1, "version": "1", "zone_data": ZONE_DATA, "kinds": ["sql"], "slots": 5}
    _insert(database, "workers", {"id": worker_id, "lease": timedelta(seconds=30)} | facts | columns)
    return worker_id


def _insert(database: Database, table: str, columns: Mapping[str, Any]) -> Any:
    statement = sql.SQL("insert into pgcron.{} ({}) values ({}) returning id").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
    )
    values = [Jsonb(value) if isinstance(value, dict) else value for value in columns.values()]
    return database.value(text_of(statement), values)


def text_of(statement: sql.Composed) -> str:
    """For the helpers, which take what a test has written out: here that is every name in it."""
    return statement.as_string()


def edit_job(database: Database, job_id: int, **columns: Any) -> None:
    """An edit as a person makes it."""
    statement = sql.SQL("update pgcron.jobs set {} where id = {}").format(
        sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in columns), job_id
    )
    values = [Jsonb(value) if isinstance(value, dict) else value for value in columns.values()]
    assert database.execute(text_of(statement), values) == 1


def status(database: Database, run_id: int) -> str:
    return str(database.value("select status from pgcron.runs where id = %s", (run_id,)))


def statuses(database: Database, job_id: int) -> list[str]:
    """The states of a job's runs, in the order of their occurrences."""
    rows = database.rows("select status from pgcron.runs where job_id = %s order by scheduled_for, attempt", (job_id,))
    return [row[0] for row in rows]


async def claim(
    connection: Connection,
    worker_id: UUID = WORKER,
    *,
    lane: Lane = DEFAULT_LANE,
    kinds: tuple[Kind, ...] = tuple(Kind),
    limit: int = 10,
    refused: tuple[int, ...] = (),
    now: datetime | None = NOW,
) -> Claimed:
    """One claim, at NOW."""
    return await runs.claim_runs(connection, worker_id, lane, kinds=kinds, limit=limit, refused=refused, now=now)


def claimed_ids(claimed: Claimed) -> list[int]:
    return sorted(task.run_id for task in claimed.tasks)


def ending(run_id: int, ended_as: Status = Status.SUCCEEDED, *, retry_in: float | None = None, **facts: Any) -> Ending:
    return Ending(run_id, Outcome(ended_as, **facts), retry_in)


def job_locks(database: Database, connection: Connection) -> int:
    """How many job locks a session holds, seen from outside."""
    return int(
        database.value(
            "select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and pid = %s",
            (connection.info.backend_pid,),
        )
    )


def take_job_lock(database: Database, job_id: int, *, shared: bool = False) -> None:
    """A person in psql takes a job's lock; the helper's session holds it until the test ends."""
    if shared:
        database.execute("select pg_advisory_lock_shared('pgcron'::regnamespace::oid::int, %s)", (job_id,))
    else:
        database.execute("select pg_advisory_lock('pgcron'::regnamespace::oid::int, %s)", (job_id,))
