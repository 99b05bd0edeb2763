"""At least once: statements that refuse a transaction, each by itself; `succeeded` is recorded afterwards."""

from __future__ import annotations

from uuid import UUID

from pgcron_runner.database import Connection, DatabaseError, in_transaction
from pgcron_runner.execution.sql.steps import with_steps
from pgcron_runner.execution.sql.work import TAKEN_OVER, Work
from pgcron_runner.model import Outcome
from pgcron_runner.store import sql_runs

_ON_ONE_SERVER = (
    "it was stopped while the server waited for its standby; one that takes over may not have what was done"
)


class Autocommit:
    """One statement after the other. `remote`: on a database that does not know the schedule."""

    committing = False

    def __init__(self, work: Work, worker_id: UUID, *, remote: bool) -> None:
        self._work = work
        self._worker_id = worker_id
        self._remote = remote

    async def run(self, connection: Connection) -> Outcome:
        work = self._work
        if not await sql_runs.open_autocommit_run(connection, self._worker_id, work.task, remote=self._remote):
            return TAKEN_OVER
        if not await work.execute(connection, in_one_transaction=False):
            return work.failed()
        if in_transaction(connection):
            return work.failed(reason="the command left a transaction open; it was rolled back")
        if work.on_one_server:
            return work.session_lost(_ON_ONE_SERVER)
        return with_steps(work.success(), await sql_runs.read_sql_steps(connection))

    def refused(self, error: DatabaseError) -> Outcome:
        reason = "the session was lost; what had been done before stays, since there was no transaction"
        return self._work.refused(error, if_lost=reason)

    async def settle(self) -> Outcome:
        raise AssertionError("nothing is committed here")
