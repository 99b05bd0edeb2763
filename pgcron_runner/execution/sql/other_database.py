"""At least once: a job's work in one transaction of another database, and `succeeded` here, after it.

Two commits cannot be one: who dies between them leaves work without a record, and it is done again if attempts remain.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

from pgcron_runner.database import Connection, Database, DatabaseError, DataError, Purpose
from pgcron_runner.errors import DatabaseRefused
from pgcron_runner.execution.sql.commit_mode import LOCK_IS_HELD, RETRY_PAUSE, begin_with_lock
from pgcron_runner.execution.sql.steps import with_steps
from pgcron_runner.execution.sql.waiting import unless
from pgcron_runner.execution.sql.work import ENDED_ITS_TRANSACTION, TAKEN_OVER, Work
from pgcron_runner.model import Outcome
from pgcron_runner.store import sql_runs

_LOST = "the session was lost; the work was rolled back"
_FAILED_COMMIT = "the server failed during the commit; the work was rolled back"
_UNKNOWN_FATE = "the server failed during the commit, and no longer knows whether the work was committed"


class OtherDatabase:
    """One transaction there. Before it begins and right before COMMIT, `home` is asked whether the run is ours."""

    def __init__(self, work: Work, home: Database, there: Database, worker_id: UUID, *, lock_patience: float) -> None:
        self.committing = False
        self._work = work
        self._task = work.task
        self._home = home
        self._there = there
        self._worker_id = worker_id
        self._lock_patience = lock_patience
        self._success = work.success()
        self._transaction_id: str | None = None

    async def run(self, connection: Connection) -> Outcome:
        work, stop = self._work, self._work.stop
        if (ours := await unless(stop.event, self._check())) is None:
            return work.failed()
        is_ours, installation = ours
        if not is_ours:
            return TAKEN_OVER

        async def begin() -> bool:
            return await sql_runs.open_remote_run(connection, self._task, installation)

        if not await begin_with_lock(connection, begin, stop, patience=self._lock_patience):
            return work.failed(reason=LOCK_IS_HELD)
        if not await work.execute(connection, in_one_transaction=True):
            return work.failed(reason=None if stop.reason else ENDED_ITS_TRANSACTION)
        return await self._commit(connection)

    async def _commit(self, connection: Connection) -> Outcome:
        steps = await sql_runs.read_sql_steps(connection)
        self._transaction_id = steps.transaction_id
        self._success = with_steps(self._work.success(), steps)
        if self._success.error is not None:
            return self._success
        if (ours := await unless(self._work.stop.event, self._check())) is None:
            return self._work.failed()
        if not ours[0]:
            return TAKEN_OVER
        self.committing = True
        await connection.execute("commit")
        return self._success

    async def _check(self) -> tuple[bool, str]:
        """Whether the run is still ours, as soon as the schedule's database can say so."""
        while True:
            with suppress(DatabaseError, DatabaseRefused):
                connection = await self._home.connect_patiently(Purpose.RECORD)
                try:
                    return await sql_runs.check_run(connection, self._worker_id, self._task)
                finally:
                    await connection.close()
            await asyncio.sleep(RETRY_PAUSE)

    def refused(self, error: DatabaseError) -> Outcome:
        return self._work.refused(error, if_lost=_LOST)

    async def settle(self) -> Outcome:
        """Asks the other server what became of the transaction. One that has written nothing has nothing to lose."""
        if self._transaction_id is None:
            return self._success
        match await self._fate(self._transaction_id):
            case "committed":
                return self._success
            case "aborted":
                return self._work.session_lost(_FAILED_COMMIT)
            case _:
                return self._work.session_lost(_UNKNOWN_FATE)

    async def _fate(self, transaction_id: str) -> str | None:
        while True:
            with suppress(DatabaseError, DatabaseRefused):
                connection = await self._there.connect_patiently(Purpose.REMOTE_JOB)
                try:
                    fate = await sql_runs.read_commit_fate(connection, transaction_id)
                    if fate != "in progress":
                        return fate
                except DataError:
                    # The number is still to come: the server has crashed before it wrote anything of it.
                    return "aborted"
                finally:
                    await connection.close()
            await asyncio.sleep(RETRY_PAUSE)
