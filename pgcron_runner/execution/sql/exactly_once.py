"""Exactly once: a job's work and its `succeeded` commit together, in one transaction of the schedule's own database.

The commit decides, whoever dies when; no clock is part of that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from pgcron_runner.database import (
    Connection,
    Database,
    DatabaseError,
    DataError,
    Purpose,
    in_transaction,
    speak_utf8,
)
from pgcron_runner.errors import DatabaseRefused
from pgcron_runner.execution.sql.commit_mode import LOCK_IS_HELD, RETRY_PAUSE, begin_with_lock
from pgcron_runner.execution.sql.work import ENDED_ITS_TRANSACTION, TAKEN_OVER, Work
from pgcron_runner.model import Outcome, Output, Status
from pgcron_runner.store import sql_runs
from pgcron_runner.store.sql_runs import OpenedSqlRun

_READ_ONLY = "25006"
_NOT_ITS_RECORD = "the command ended its own transaction, or changed the row of its own run; it was rolled back"
_RECORD_IS_A_WRITE = "a read-only transaction cannot record that the job succeeded"


class ExactlyOnce:
    """One transaction: lock, statements, `succeeded` and COMMIT on one session."""

    def __init__(self, work: Work, database: Database, worker_id: UUID, *, lock_patience: float) -> None:
        self.committing = False
        self._work = work
        self._task = work.task
        self._database = database
        self._worker_id = worker_id
        self._lock_patience = lock_patience
        self._opened = OpenedSqlRun(locked=False, ours=False, transaction_id="")

    async def run(self, connection: Connection) -> Outcome:
        work = self._work
        if not await begin_with_lock(
            connection, lambda: self._open(connection), work.stop, patience=self._lock_patience
        ):
            return work.failed(reason=LOCK_IS_HELD)
        if not self._opened.ours:
            return TAKEN_OVER
        if not await work.execute(connection, in_one_transaction=True):
            return work.failed(reason=None if work.stop.reason else ENDED_ITS_TRANSACTION)
        self.committing = True
        return await self._commit(connection) or await self._why_not_committed(connection)

    async def _open(self, connection: Connection) -> bool:
        self._opened = await sql_runs.open_sql_run(connection, self._worker_id, self._task)
        return self._opened.locked or not self._opened.ours

    async def _commit(self, connection: Connection) -> Outcome | None:
        """Records `succeeded` and commits; None where the run or the transaction is no longer the one opened."""
        success = self._work.success(recorded=True)
        await self._undo_settings(connection)
        if connection.info.parameter_status("server_encoding") == "UTF8":
            return await self._commit_as(connection, success)
        await connection.execute("savepoint pgcron_result")
        try:
            return await self._commit_as(connection, success)
        except DataError:
            if not in_transaction(connection):
                raise
        await connection.execute("rollback to savepoint pgcron_result")
        words = "(what it printed and returned could not be stored in this database's encoding)"
        output = Output(words, success.output.total_bytes if success.output else 0, truncated=True)
        return await self._commit_as(connection, replace(success, result=None, progress=None, output=output))

    async def _commit_as(self, connection: Connection, success: Outcome) -> Outcome | None:
        transaction_id = self._opened.transaction_id
        committed = await sql_runs.commit_sql_run(connection, self._worker_id, self._task, success, transaction_id)
        return success if committed else None

    async def _undo_settings(self, connection: Connection) -> None:
        """What the job has set for itself and would be in the way of the record."""
        await speak_utf8(connection)
        if "timeout" in self._task.command.lower():
            await sql_runs.lift_timeouts(connection)

    async def _why_not_committed(self, connection: Connection) -> Outcome:
        work = self._work
        if not in_transaction(connection):
            # The record was accepted; the same error came out of COMMIT itself.
            return work.failed(error="22012: division by zero", reason="a deferred trigger failed at COMMIT")
        await connection.execute("rollback")
        # Not recorded by anybody, since our own transaction was rolled back.
        opened = await sql_runs.open_sql_run(connection, self._worker_id, self._task)
        return work.failed(reason=_NOT_ITS_RECORD) if opened.ours else TAKEN_OVER

    def refused(self, error: DatabaseError) -> Outcome:
        # Nothing was committed: the transaction ended with its session.
        outcome = self._work.refused(error, if_lost="the session was lost; the work was rolled back")
        read_only = self.committing and not self._work.lost and error.sqlstate == _READ_ONLY
        return replace(outcome, reason=_RECORD_IS_A_WRITE) if read_only else outcome

    async def settle(self) -> Outcome:
        """Waits until the old transaction is over, then believes the row."""
        if await self._read_settled() is Status.SUCCEEDED:
            return self._work.success(recorded=True)
        return self._work.session_lost("the server failed during the commit; the work was rolled back")

    async def _read_settled(self) -> Status | None:
        while True:
            with suppress(DatabaseError, DatabaseRefused):
                connection = await self._database.connect_patiently(Purpose.RECORD)
                try:
                    over, _ = await sql_runs.settle_sql_run(connection, self._task)
                    if over:
                        # The first look may have read the row before it had the lock.
                        return (await sql_runs.settle_sql_run(connection, self._task))[1]
                finally:
                    await connection.close()
            await asyncio.sleep(RETRY_PAUSE)
