"""Statements around the text of a SQL job: on its session before and after it, and for a commit without an answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from pgcron_runner.database import Connection, DivisionByZero, execute_at_once, speak_utf8
from pgcron_runner.model import Outcome, Output, Status, Task
from pgcron_runner.statements import query
from pgcron_runner.store.runs import as_json

# The largest that a setting of Postgres takes, some 24 days.
_LONGEST_TIMEOUT_MS = 2**31 - 1
_BEGIN = b"begin isolation level read committed;\n"
# The job may have become somebody who must not write to our tables.
_AS_OURSELVES = b"reset session authorization; reset role;\n"
_COMMIT = b";\ncommit"


@dataclass(frozen=True, slots=True)
class OpenedSqlRun:
    """A SQL job's transaction as it begins: its lock was granted, the run still is this worker's, its id."""

    locked: bool
    ours: bool
    transaction_id: str


@dataclass(frozen=True, slots=True)
class SqlSteps:
    """What the text of a job has left in settings, as JSON texts; empty or None: nothing.

    `transaction_id` None: it has written nothing in the transaction that is open.
    """

    state: str | None
    next_runs: str | None
    transaction_id: str | None


async def open_sql_run(connection: Connection, worker_id: UUID, task: Task) -> OpenedSqlRun:
    """Begins the job's own transaction, takes its lock and looks at the run."""
    facts = _facts(task) | {"exclusive": task.exclusive, "job_id": task.job_id, "worker_id": str(worker_id)}
    locked, ours, transaction_id, *_ = await execute_at_once(connection, _BEGIN + query("open_sql_run"), facts)
    return OpenedSqlRun(locked, ours, transaction_id)


async def commit_sql_run(
    connection: Connection, worker_id: UUID, task: Task, outcome: Outcome, transaction_id: str
) -> bool:
    """Writes `succeeded` in the job's own transaction and commits both.

    False: nothing was committed, since the run or the transaction is no longer the one that was opened. Any other
    DatabaseError after a lost session leaves open whether the server has committed.
    """
    output = outcome.output or Output()
    record = {
        "run_id": task.run_id,
        "worker_id": str(worker_id),
        "transaction_id": transaction_id,
        "result": as_json(outcome.result),
        "output": output.text or None,
        "output_bytes": output.total_bytes or None,
        "output_truncated": output.truncated if output.text else None,
        "progress": as_json(outcome.progress),
        "now": None,
    }
    try:
        await execute_at_once(connection, _AS_OURSELVES + query("succeed_sql_run") + _COMMIT, record)
    except DivisionByZero:
        return False
    return True


async def lift_timeouts(connection: Connection) -> None:
    """Takes back the limits that a job's text has set, until its transaction ends."""
    await execute_at_once(connection, query("lift_timeouts"), {})


async def settle_sql_run(connection: Connection, task: Task) -> tuple[bool, Status | None]:
    """After a COMMIT without an answer: whether the old transaction is over, and the state that the run then has."""
    cursor = await connection.execute(query("settle_sql_run"), {"job_id": task.job_id, "run_id": task.run_id})
    row = await cursor.fetchone()
    assert row is not None
    return bool(row[0]), None if row[1] is None else Status(row[1])


async def end_session(connection: Connection, *, pid: int, application_name: str) -> None:
    """Ends the session of a job that cannot be stopped otherwise, if the server still has it."""
    await connection.execute(query("terminate_session"), {"application_name": application_name, "pid": pid})


async def open_autocommit_run(connection: Connection, worker_id: UUID, task: Task, *, remote: bool) -> bool:
    """Tells the session of a job without a transaction which run it is; False where the run is not this worker's there.

    A database that is `remote` knows no runs.
    """
    facts = _facts(task) | {"worker_id": str(worker_id), "transaction": "" if remote else "off"}
    await execute_at_once(connection, query("open_autocommit_run"), facts)
    if remote:
        return True
    (ours,) = await execute_at_once(connection, query("see_run"), facts)
    return bool(ours)


async def read_sql_steps(connection: Connection) -> SqlSteps:
    """What the job has saved and asked for, on its own session after its last statement."""
    await speak_utf8(connection)
    return SqlSteps(*await execute_at_once(connection, query("read_sql_steps"), {}))


async def check_run(connection: Connection, worker_id: UUID, task: Task) -> tuple[bool, str]:
    """Whether the run is still this worker's, and the name of this installation."""
    cursor = await connection.execute(query("check_run"), {"run_id": task.run_id, "worker_id": worker_id})
    row = await cursor.fetchone()
    assert row is not None
    return bool(row[0]), str(row[1])


async def open_remote_run(connection: Connection, task: Task, installation: str) -> bool:
    """Begins the job's transaction on another database; whether its lock was granted there."""
    name = f"{installation} {task.job_id}".encode()
    lock_key = int.from_bytes(blake2b(name, digest_size=8).digest(), "big") >> 1
    facts = _facts(task) | {"exclusive": task.exclusive, "lock_key": lock_key}
    locked, *_ = await execute_at_once(connection, _BEGIN + query("open_remote_run"), facts)
    return bool(locked)


async def read_commit_fate(connection: Connection, transaction_id: str) -> str | None:
    """What became of a transaction: committed, aborted, in progress; None: nobody knows any more."""
    row = await execute_at_once(connection, query("read_commit_fate"), {"transaction_id": transaction_id})
    return None if row[0] is None else str(row[0])


def _facts(task: Task) -> dict[str, Any]:
    return {
        "run_id": task.run_id,
        "job_name": task.job_name,
        "scheduled_for": task.scheduled_for.isoformat(),
        "attempt": task.attempt,
        "args": as_json(task.args),
        "state": as_json(task.state) or "",
        # The worker stops the run at its timeout; this is for a server that the worker no longer reaches.
        "timeout_ms": min(task.timeout // timedelta(milliseconds=1) + 5000, _LONGEST_TIMEOUT_MS),
    }
