"""SQL jobs: the work and its `succeeded` commit together, in one transaction on a session of the job's own.

The commit decides, whoever dies when; no clock is part of that. It must not know claims or leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

from pgcron_runner.database import (
    Connection,
    Database,
    DatabaseError,
    Notice,
    Purpose,
    Results,
    describe,
    in_transaction,
    is_connection_lost,
    run_alone,
)
from pgcron_runner.errors import DatabaseRefused
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.script import split_statements
from pgcron_runner.execution.stop import Stop
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Outcome, Status, Task
from pgcron_runner.store import runs

log = get_logger(__name__)

_TAKEN = Outcome(Status.LOST, reason="the run was taken over by another worker")


class SqlRunner:
    """Runs SQL jobs for one worker, on at most `sessions` sessions, which are kept for the next jobs."""

    def __init__(self, database: Database, worker_id: UUID, *, sessions: int) -> None:
        self._database = database
        self._worker_id = worker_id
        self._places = asyncio.Semaphore(sessions)
        self._idle: list[Connection] = []

    async def run(self, task: Task, stop: Stop) -> Outcome:
        """Runs the job's statements. The outcome is `recorded` where its own transaction wrote it."""
        statements = split_statements(task.command)
        if not statements:
            return Outcome(Status.FAILED, error="launch failed: the command has no SQL statement")
        body = _Script(task, self._worker_id, statements)
        work = body.in_autocommit if task.args.get("transaction") is False else body.in_one_transaction
        outcome: Outcome | None = None
        with stop.cancels_this_task():
            outcome = await self._attempt(work)
        if outcome is None:
            outcome = Outcome(Status.FAILED, error="stopped", output=body.output.render())
        if outcome is not _UNKNOWN:
            return outcome
        log.warning(
            "commit_unanswered",
            job=task.job_name,
            run=task.run_id,
            consequence="the row is read again on a new session",
        )
        return await self._settle(task, stop, body)

    async def close(self) -> None:
        """Closes the sessions that are not in use."""
        while self._idle:
            await self._idle.pop().close()

    async def _attempt(self, work: Callable[[Connection], Any]) -> Outcome:
        async with self._session() as connection:
            try:
                outcome: Outcome = await work(connection)
            except DatabaseRefused as error:
                return Outcome(Status.FAILED, error=str(error))
        return outcome

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Connection]:
        """A clean session; afterwards it is kept if it can be made clean again, else closed."""
        async with self._places:
            connection = self._idle.pop() if self._idle else await self._database.connect_patiently(Purpose.JOB)
            clean = False
            try:
                yield connection
                clean = await _clean(connection)
            finally:
                if clean:
                    self._idle.append(connection)
                else:
                    with suppress(DatabaseError):
                        await asyncio.shield(connection.close())

    async def _settle(self, task: Task, stop: Stop, body: _Script) -> Outcome:
        """After a COMMIT without an answer: waits until the old transaction is over, then believes the row."""
        while not stop.now.is_set():
            connection = await self._database.connect_patiently(Purpose.JOB)
            try:
                over, status = await runs.settle_sql_run(connection, task)
            except DatabaseError:
                over, status = False, None
            finally:
                await connection.close()
            if over:
                return body.settled(status)
            await asyncio.sleep(0.1)
        return Outcome(Status.LOST, reason="the server did not answer the commit before the lease ended")


# Stands for "COMMIT was sent and got no answer" until the row has been read again.
_UNKNOWN = Outcome(Status.LOST, reason="the server did not answer the commit")


class _Script:
    """One job's statements on their way: what they printed and returned."""

    def __init__(self, task: Task, worker_id: UUID, statements: list[str]) -> None:
        self._task = task
        self._worker_id = worker_id
        self._statements = statements
        self._counts: list[dict[str, Any]] = []
        self._value: Any = None
        self.output = OutputBuffer(task.output_limit_kb * 1024)

    async def in_one_transaction(self, connection: Connection) -> Outcome:
        """Exactly once: lock, statements, `succeeded` and COMMIT on one session."""
        committing = False
        try:
            opened = await runs.open_sql_run(connection, self._worker_id, self._task)
            if not opened.locked:
                return Outcome(
                    Status.FAILED, reason="another transaction of this job is still running; nothing was done"
                )
            if not opened.ours:
                return _TAKEN
            if not await self._execute(connection):
                return self._ended_its_transaction()
            committing = True
            success = self._success(recorded=True)
            if not await runs.commit_sql_run(connection, self._worker_id, self._task, success, opened.transaction_id):
                await connection.execute("rollback")
                return self._ended_its_transaction() if await self._is_ours(connection) else _TAKEN
        except DatabaseError as error:
            lost = is_connection_lost(connection, error)
            return _UNKNOWN if committing and lost else self._failure(error, lost=lost)
        return success

    async def in_autocommit(self, connection: Connection) -> Outcome:
        """At least once, for statements that refuse a transaction; `succeeded` is recorded afterwards."""
        try:
            await self._execute(connection, transactional=False)
        except DatabaseError as error:
            return self._failure(error, lost=is_connection_lost(connection, error))
        return self._success()

    async def _execute(self, connection: Connection, *, transactional: bool = True) -> bool:
        """Runs the statements one at a time; False where one of them ended the transaction."""
        connection.add_notice_handler(self._notice)
        try:
            for statement in self._statements:
                self._note(await run_alone(connection, statement))
                if transactional and not in_transaction(connection):
                    return False
        finally:
            connection.remove_notice_handler(self._notice)
        return True

    async def _is_ours(self, connection: Connection) -> bool:
        # Not recorded by anybody, since our own transaction was rolled back.
        return self._task.run_id in await runs.read_own_runs(connection, self._worker_id, [self._task.run_id])

    def _note(self, results: Results) -> None:
        self._counts.append({"command": results.command, "rows": results.rows})
        if self._value is None:
            self._value = results.value
        self.output.append(f"{results.command}\n".encode())

    def _notice(self, notice: Notice) -> None:
        self.output.append(f"{notice.severity}: {notice.message_primary}\n".encode(errors="replace"))

    def _success(self, *, recorded: bool = False) -> Outcome:
        result = {"value": self._value, "statements": self._counts}
        return Outcome(Status.SUCCEEDED, result=result, output=self.output.render(), recorded=recorded)

    def _failure(self, error: DatabaseError, *, lost: bool) -> Outcome:
        if lost:
            # Nothing was committed: the transaction ended with its session.
            return Outcome(
                Status.LOST,
                error=describe(error),
                reason="the session was lost; the work was rolled back",
                output=self.output.render(),
            )
        return Outcome(Status.FAILED, error=describe(error), output=self.output.render())

    def _ended_its_transaction(self) -> Outcome:
        reason = (
            'the command ended its own transaction (COMMIT or ROLLBACK); say "transaction": false in args if it must'
        )
        return Outcome(Status.FAILED, reason=reason, output=self.output.render())

    def settled(self, status: Status | None) -> Outcome:
        """The outcome once the row is known: what the server committed, or nothing at all."""
        if status is Status.SUCCEEDED:
            return self._success(recorded=True)
        return Outcome(
            Status.LOST,
            reason="the server failed during the commit; the work was rolled back",
            output=self.output.render(),
        )


async def _clean(connection: Connection) -> bool:
    """Ends what the job has left open and resets the session; False: it is of no more use."""
    try:
        if in_transaction(connection):
            await connection.execute("rollback")
        await connection.execute("discard all")
    except DatabaseError:
        return False
    return True
