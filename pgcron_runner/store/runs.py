"""Statements about runs, as workers use them: claim, keep, finish."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgcron_runner.database import Connection
from pgcron_runner.decisions import Lane, LaneDue, NextDue
from pgcron_runner.model import Kind, NextRun, Outcome, Output, RetryPolicy, Said, Status, Task
from pgcron_runner.retry import retry_in
from pgcron_runner.settings import BATCH
from pgcron_runner.statements import query


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's final state as it is to be written; `retry_in` seconds, None: no further attempt."""

    run_id: int
    outcome: Outcome
    retry_in: float | None


@dataclass(frozen=True, slots=True)
class LostRun:
    """A running run of a dead worker; `retry` None: its job is gone."""

    run_id: int
    job_name: str
    attempt: int
    retry: RetryPolicy | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim came to: the runs, the jobs whose lock somebody else has, and whether more may be due."""

    tasks: list[Task]
    refused: frozenset[int]
    more: bool


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job lock as the control session holds it, once per run."""

    job_id: int
    exclusive: bool


async def next_due(connection: Connection, *, zone_data: str, now: datetime | None = None) -> NextDue:
    """When there is something to do, for a worker with this zone data. Empty while the installation is paused."""
    cursor = await connection.execute(query("next_due"), {"zone_data": zone_data, "now": now})
    jobs_due_in, lanes = None, []
    for queue, priority, max_running, is_due, due_in in await cursor.fetchall():
        if queue is None:
            jobs_due_in = due_in
        else:
            lanes.append(LaneDue(Lane(queue, priority, max_running), is_due, due_in))
    return NextDue(jobs_due_in, tuple(lanes))


async def claim_runs(
    connection: Connection,
    worker_id: UUID,
    lane: Lane,
    *,
    kinds: Sequence[Kind],
    limit: int,
    refused: Collection[int] = (),
    now: datetime | None = None,
) -> Claimed:
    """Claims up to `limit` due runs of a lane, but none of the `refused` jobs; this session holds their locks."""
    cursor = await connection.execute(
        query("claim_runs"),
        {
            "worker_id": worker_id,
            "queue": lane.queue,
            "priority": lane.priority,
            "kinds": [kind.value for kind in kinds],
            "limit": limit,
            "refused": list(refused),
            "now": now,
        },
        binary=True,
    )
    rows = await cursor.fetchall()
    return Claimed(
        [_task(row) for row in rows if row[0] is not None],
        frozenset(row[1] for row in rows if row[0] is None),
        more=bool(rows) and rows[0][-1] >= limit,
    )


def _task(row: Sequence[Any]) -> Task:
    return Task(
        run_id=row[0],
        job_id=row[1],
        job_name=row[2],
        kind=Kind(row[3]),
        command=row[4],
        args=row[5],
        scheduled_for=row[6],
        attempt=row[7],
        exclusive=row[8],
        timeout=row[9],
        kill_grace=row[10],
        retry=RetryPolicy(row[11], row[12], row[13], row[14]),
        env=row[15],
        env_from=tuple(row[16]),
        working_dir=row[17],
        memory_limit_mb=row[18],
        output_limit_kb=row[19],
        state=row[20],
        heartbeat_url=row[21],
    )


async def places_in_queue(connection: Connection, queue: str) -> int:
    """How many more runs of a limited queue may start; the queue is locked until the transaction ends.

    Zero where another worker is counting at this moment.
    """
    cursor = await connection.execute(query("lock_queue"), {"queue": queue})
    if await cursor.fetchone() is None:
        return 0
    cursor = await connection.execute(query("count_running_in_queue"), {"queue": queue})
    row = await cursor.fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


async def finish_runs(
    connection: Connection, worker_id: UUID, endings: Sequence[Ending], *, now: datetime | None = None
) -> set[int]:
    """Writes the final states in one statement; returns the runs that still were this worker's."""
    cursor = await connection.execute(
        query("finish_runs"),
        {
            "worker_id": worker_id,
            "run_ids": [ending.run_id for ending in endings],
            "statuses": [ending.outcome.status.value for ending in endings],
            "exit_codes": [ending.outcome.exit_code for ending in endings],
            "errors": [ending.outcome.error for ending in endings],
            "reasons": [ending.outcome.reason for ending in endings],
            "results": [as_json(ending.outcome.result) for ending in endings],
            "progress": [as_json(ending.outcome.progress) for ending in endings],
            "states": [as_json(ending.outcome.state) for ending in endings],
            "next_runs": [as_json(next_runs_value(ending.outcome.next_runs)) for ending in endings],
            "retry_in": [ending.retry_in for ending in endings],
            "now": now,
        },
    )
    return {row[0] for row in await cursor.fetchall()}


async def read_ended_so(connection: Connection, worker_id: UUID, endings: Sequence[Ending]) -> set[int]:
    """Which of these runs have been ended by this worker in just this way."""
    cursor = await connection.execute(
        query("read_ended_so"),
        {
            "worker_id": worker_id,
            "run_ids": [ending.run_id for ending in endings],
            "statuses": [ending.outcome.status.value for ending in endings],
            "reasons": [ending.outcome.reason for ending in endings],
        },
    )
    return {row[0] for row in await cursor.fetchall()}


async def store_output(connection: Connection, worker_id: UUID, outputs: Sequence[tuple[int, Output]]) -> None:
    """Writes what runs have printed, while they still are running runs of this worker."""
    await connection.execute(
        query("store_output"),
        {
            "worker_id": worker_id,
            "run_ids": [run_id for run_id, _ in outputs],
            "outputs": [output.text for _, output in outputs],
            "total_bytes": [output.total_bytes for _, output in outputs],
            "truncated": [output.truncated for _, output in outputs],
        },
    )


async def report_runs(connection: Connection, worker_id: UUID, news: Mapping[int, Said]) -> set[int]:
    """Writes what running runs of this worker have said; returns those that could be written now."""
    outputs = [said.output for said in news.values()]
    cursor = await connection.execute(
        query("report_runs"),
        {
            "worker_id": worker_id,
            "run_ids": list(news),
            "outputs": [None if output is None else output.text for output in outputs],
            "total_bytes": [None if output is None else output.total_bytes for output in outputs],
            "truncated": [None if output is None else output.truncated for output in outputs],
            "progress": [as_json(said.progress) for said in news.values()],
            "states": [as_json(said.state) for said in news.values()],
        },
    )
    return {row[0] for row in await cursor.fetchall()}


async def read_own_runs(connection: Connection, worker_id: UUID, run_ids: Collection[int]) -> dict[int, bool]:
    """What is running under this worker's id, and which of `run_ids` it has just recorded itself.

    Id -> whether somebody wants the run stopped.
    """
    cursor = await connection.execute(query("read_own_runs"), {"worker_id": worker_id, "run_ids": list(run_ids)})
    return dict(await cursor.fetchall())


async def give_back_runs(connection: Connection, worker_id: UUID, run_ids: Collection[int]) -> None:
    """Queues runs again that this worker holds in the database but never began."""
    await connection.execute(query("give_back_runs"), {"worker_id": worker_id, "run_ids": list(run_ids)})


async def close_lost_runs(
    connection: Connection, worker_id: UUID, *, reason: str, run_ids: Collection[int] | None = None
) -> int:
    """Closes the running runs of a worker as lost, or only some, with what follows; the transaction is the caller's."""
    closed = 0
    while lost := await lock_lost_runs(connection, worker_id, limit=BATCH, run_ids=run_ids):
        endings = [_lost(run, reason) for run in lost]
        closed += len(await finish_runs(connection, worker_id, endings))
    return closed


def _lost(run: LostRun, reason: str) -> Ending:
    retry = None if run.retry is None else retry_in(run.retry, Status.LOST, run.attempt)
    return Ending(run.run_id, Outcome(Status.LOST, reason=reason), retry)


async def lock_lost_runs(
    connection: Connection, worker_id: UUID, *, limit: int, run_ids: Collection[int] | None = None
) -> list[LostRun]:
    """The running runs of a dead worker, locked; only these, where `run_ids` is not None."""
    given = {"worker_id": worker_id, "limit": limit, "run_ids": None if run_ids is None else list(run_ids)}
    cursor = await connection.execute(query("lock_lost_runs"), given, binary=True)
    return [
        LostRun(run_id, name, attempt, None if policy[0] is None else RetryPolicy(*policy))
        for run_id, _, name, attempt, *policy in await cursor.fetchall()
    ]


async def release_job_locks(connection: Connection, locks: Sequence[LockedJob]) -> int:
    """Gives job locks back; returns how many this session really held."""
    cursor = await connection.execute(query("release_job_locks"), _arrays(locks))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def take_job_locks(connection: Connection, locks: Sequence[LockedJob]) -> set[int]:
    """Takes job locks again on a new session; returns the jobs whose lock somebody else has."""
    cursor = await connection.execute(query("take_job_locks"), _arrays(locks))
    return {row[0] for row in await cursor.fetchall()}


def _arrays(locks: Sequence[LockedJob]) -> dict[str, Any]:
    return {"job_ids": [lock.job_id for lock in locks], "exclusive": [lock.exclusive for lock in locks]}


async def list_own_locks(connection: Connection) -> list[LockedJob]:
    """The job locks that this session holds by `pg_locks`: one row a job and mode, however often it was taken."""
    cursor = await connection.execute(query("list_own_locks"))
    return [LockedJob(job_id, exclusive) for job_id, exclusive in await cursor.fetchall()]


def next_runs_value(next_runs: Sequence[NextRun]) -> list[dict[str, Any]] | None:
    """As the schema's functions take it: `after` in seconds; None where nothing was asked for."""
    return [{"job": n.job, "after": n.after.total_seconds(), "args": n.args} for n in next_runs] or None


def as_json(value: Any) -> str | None:
    """A result as JSON text that jsonb takes; None stays NULL."""
    return None if value is None else json.dumps(value, ensure_ascii=True, allow_nan=False)
