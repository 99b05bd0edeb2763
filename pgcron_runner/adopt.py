"""Adopt: makes a new control session the worker's own: the right schema, and the locks of what is in hand."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from uuid import UUID

from pgcron_runner.database import Connection
from pgcron_runner.decisions import Adopted
from pgcron_runner.migrate import check_schema
from pgcron_runner.model import Task
from pgcron_runner.store import runs, workers
from pgcron_runner.store.runs import LockedJob


class Adopt:
    """The duty, on each new control session before anybody else may use it. `in_hand` tells what the worker holds."""

    def __init__(self, worker_id: UUID, lease: timedelta, in_hand: Callable[[], Collection[Task]]) -> None:
        self._worker_id = worker_id
        self._lease = lease
        self._in_hand = in_hand
        self._pid: int | None = None

    async def step(self, connection: Connection) -> Adopted:
        """Looks at what is in hand, row by row and lock by lock. It stops nothing itself."""
        await check_schema(connection)
        server, held_for = await workers.note_timeline(connection, self._lease)
        if self._pid is not None:
            # A line that was cut may look whole from the server: our own last session still has our locks.
            await workers.terminate_session(connection, self._worker_id, self._pid)
        self._pid = connection.server_pid
        tasks = {task.run_id: task for task in self._in_hand()}
        taken = await self._taken(connection, tasks)
        locks = [LockedJob(task.job_id, task.exclusive) for task in tasks.values() if task.run_id not in taken]
        refused = await runs.take_job_locks(connection, locks) if locks else set()
        return Adopted(
            server,
            held_for,
            taken=frozenset(taken),
            refused=frozenset(task.run_id for task in tasks.values() if task.job_id in refused),
            refused_jobs=frozenset(refused),
        )

    async def _taken(self, connection: Connection, run_ids: Collection[int]) -> set[int]:
        """Runs in hand that are not this worker's here: after a failover their claims may never have happened."""
        if not run_ids:
            return set()
        own = await runs.read_own_runs(connection, self._worker_id, run_ids)
        return set(run_ids) - own.keys()
