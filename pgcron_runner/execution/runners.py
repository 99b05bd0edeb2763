"""Which code runs which kind. The seam where a kind is added."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from pgcron_runner.database import Database
from pgcron_runner.execution.http.runner import HttpRunner
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.python import PythonRunner
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.sql import SqlRunner
from pgcron_runner.execution.stop import Stop
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Kind, Outcome, Task
from pgcron_runner.settings import WorkerSettings

log = get_logger(__name__)

# More sessions than this do not make SQL jobs faster on any server, and they count against max_connections.
_MOST_SESSIONS = 20

Runner = Callable[[Task, Stop, Live], Awaitable[Outcome]]


class Runners:
    """The executors of one worker, and what they keep open."""

    def __init__(self, database: Database, worker_id: UUID, guard: Guard, settings: WorkerSettings) -> None:
        slots = settings.slots
        others = {name: replace(database, conninfo=dsn) for name, dsn in settings.connections.items()}
        self._guard = guard
        self._sql = SqlRunner(database, worker_id, sessions=min(slots, _MOST_SESSIONS), connections=others)
        self._python = PythonRunner(guard, threads=min(slots, 64), preload=settings.preload)
        self._http = HttpRunner()

    def by_kind(self) -> dict[Kind, Runner]:
        """The executor of every kind."""
        return {
            Kind.SHELL: self._shell,
            Kind.SQL: self._sql.run,
            Kind.PYTHON: self._python.run,
            Kind.HTTP: self._http.run,
        }

    async def close(self) -> None:
        """Closes sessions and gives up threads."""
        await self._sql.close()
        if not self._python.close():
            log.warning("functions_still_running", consequence="the process ends only when they have returned")

    async def _shell(self, task: Task, stop: Stop, live: Live) -> Outcome:
        return await run_shell(task, self._guard, stop, live)
