"""SQL jobs: the work and its `succeeded` commit together, in one transaction on a session of the job's own.

The commit decides, whoever dies when; no clock is part of that. It must not know claims or leases.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from pgcron_runner.database import (
    Connection,
    Database,
    DatabaseError,
    DataError,
    Notice,
    Purpose,
    Results,
    describe,
    in_transaction,
    run_alone,
)
from pgcron_runner.errors import DatabaseRefused
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer, storable
from pgcron_runner.execution.result import MOST_BYTES, BadResultError, storable_result
from pgcron_runner.execution.script import copies_to_client, split_statements, transaction_end
from pgcron_runner.execution.sessions import Canceller, JobSessions
from pgcron_runner.execution.stop import Stop
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Outcome, Output, Status, Task
from pgcron_runner.statements import query
from pgcron_runner.store import runs

log = get_logger(__name__)

# Longer than a server takes to notice that a worker is gone, and its transaction with it.
_LOCK_PATIENCE = 15.0
_RETRY_PAUSE = 0.1
_MOST_COUNTS = 100
_READ_ONLY = "25006"

_TAKEN = Outcome(Status.LOST, reason="the run was taken over by another worker")
# Stands for "COMMIT was sent and got no answer" until the row has been read again.
_UNKNOWN = Outcome(Status.LOST, reason="the server did not answer the commit before the lease ended")
_ENDED_ITS_TRANSACTION = (
    'the command ended its own transaction (COMMIT or ROLLBACK); say "transaction": false in args if it must'
)
_RECORD_IS_A_WRITE = "a read-only transaction cannot record that the job succeeded"


class SqlRunner:
    """Runs SQL jobs for one worker, on at most `sessions` sessions, which are kept for the next jobs.

    `lock_patience`: how many seconds a run waits for a transaction of its job that a dead worker has left behind.
    """

    def __init__(
        self, database: Database, worker_id: UUID, *, sessions: int, lock_patience: float = _LOCK_PATIENCE
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._sessions = JobSessions(database, sessions)
        self._lock_patience = lock_patience

    async def run(self, task: Task, stop: Stop, live: Live) -> Outcome:
        """Runs the job's statements. The outcome is `recorded` where its own transaction wrote it."""
        statements = split_statements(task.command)
        if (problem := _problem_of(task, statements)) is not None:
            return Outcome(Status.FAILED, error=f"launch failed: {problem}")
        script = _Script(task, self._worker_id, statements, stop, self._lock_patience)
        live.output = script.output
        outcome = await self._attempt(script, task, stop)
        if outcome is not _UNKNOWN:
            return outcome
        log.warning(
            "commit_unanswered",
            job=task.job_name,
            run=task.run_id,
            consequence="the row is read again on a new session",
        )
        return await self._settle(script, task, stop)

    async def close(self) -> None:
        """Closes the sessions that are not in use, and the others as soon as they are given back."""
        await self._sessions.close()

    async def _attempt(self, script: _Script, task: Task, stop: Stop) -> Outcome:
        while stop.reason is None:
            connection: Connection | None = None
            try:
                with stop.cancels_this_task():
                    connection, is_new = await self._sessions.take()
            except DatabaseRefused as error:
                return Outcome(Status.FAILED, error=f"launch failed: {error}")
            if connection is None:
                break
            outcome = await self._run_on(connection, script, task, stop)
            # An idle session may have died unseen: nothing was begun on it.
            if is_new or script.begun or not script.lost:
                return outcome
        return Outcome(Status.FAILED)

    async def _run_on(self, connection: Connection, script: _Script, task: Task, stop: Stop) -> Outcome:
        canceller = Canceller(connection, stop, grace=task.kill_grace.total_seconds())
        reusable = False
        try:
            with stop.calls(canceller.start):
                outcome = await script.run(connection)
            # A request to cancel that is still on its way would hit the next job.
            reusable = stop.reason is None and not script.lost
        finally:
            await canceller.end()
            await self._sessions.give_back(connection, reusable=reusable)
        return outcome

    async def _settle(self, script: _Script, task: Task, stop: Stop) -> Outcome:
        """After a COMMIT without an answer: waits until the old transaction is over, then believes the row."""
        reading = asyncio.create_task(self._read_settled(task))
        urgent = asyncio.create_task(stop.now.wait())
        try:
            await asyncio.wait({reading, urgent}, return_when=asyncio.FIRST_COMPLETED)
            return script.settled(reading.result()) if reading.done() else _UNKNOWN
        finally:
            reading.cancel()
            urgent.cancel()
            await asyncio.wait({reading, urgent})

    async def _read_settled(self, task: Task) -> Status | None:
        while True:
            with suppress(DatabaseError, DatabaseRefused):
                connection = await self._database.connect_patiently(Purpose.RECORD)
                try:
                    over, _ = await runs.settle_sql_run(connection, task)
                    if over:
                        # The first look may have read the row before it had the lock.
                        return (await runs.settle_sql_run(connection, task))[1]
                finally:
                    await connection.close()
            await asyncio.sleep(_RETRY_PAUSE)


def _problem_of(task: Task, statements: list[str]) -> str | None:
    """Why this command cannot be run; None where nothing is seen that would be in the way."""
    transactional = task.args.get("transaction", True)
    if not isinstance(transactional, bool):
        return f"args.transaction is {transactional!r}, not true or false"
    if not statements:
        return "the command has no SQL statement"
    if any(copies_to_client(statement) for statement in statements):
        return "COPY FROM STDIN and COPY TO STDOUT need a client, and a job has none"
    if transactional and (ends := next(filter(None, map(transaction_end, statements)), None)):
        return (
            f"{ends} would end the transaction that the job and its record share, so nothing was begun;"
            ' leave it out, or say "transaction": false in args'
        )
    return None


def _is_lost(connection: Connection, error: DatabaseError) -> bool:
    """Whether the session is over. What the server's last word was, and whether it was heard, depends on chance."""
    return connection.closed or error.sqlstate is None or error.diag.severity_nonlocalized in ("FATAL", "PANIC")


@dataclass
class _Script:
    """One job's statements on their way: what they printed and returned.

    `begun`: something may have been done. `lost`: the session is of no more use.
    """

    task: Task
    worker_id: UUID
    statements: list[str]
    stop: Stop
    lock_patience: float

    def __post_init__(self) -> None:
        self.begun = self.lost = False
        self.output = OutputBuffer(self.task.output_limit_kb * 1024)
        self._committing = False
        self._counts: list[dict[str, Any]] = []
        self._value: Any = None

    @property
    def _is_transactional(self) -> bool:
        return self.task.args.get("transaction") is not False

    async def run(self, connection: Connection) -> Outcome:
        """Runs all of it; _UNKNOWN where COMMIT was sent and the session was lost."""
        self.lost = False
        try:
            if self._is_transactional:
                return await self._in_one_transaction(connection)
            return await self._in_autocommit(connection)
        except DatabaseError as error:
            self.lost = _is_lost(connection, error)
            return _UNKNOWN if self._committing and self.lost else self._failure(error)

    async def _in_one_transaction(self, connection: Connection) -> Outcome:
        """Exactly once: lock, statements, `succeeded` and COMMIT on one session."""
        transaction_id = await self._open(connection)
        if isinstance(transaction_id, Outcome):
            return transaction_id
        self.begun = True
        if not await self._execute(connection):
            return self._failed(reason=None if self.stop.reason else _ENDED_ITS_TRANSACTION)
        self._committing = True
        outcome = await self._commit(connection, transaction_id)
        if outcome is not None:
            return outcome
        return await self._why_not_committed(connection)

    async def _in_autocommit(self, connection: Connection) -> Outcome:
        """At least once, for statements that refuse a transaction; `succeeded` is recorded afterwards."""
        task = self.task
        facts = {"run_id": task.run_id, "job_name": task.job_name, "attempt": task.attempt}
        await connection.execute(
            query("open_autocommit_run"), facts | {"scheduled_for": task.scheduled_for.isoformat()}
        )
        self.begun = True
        if not await self._execute(connection):
            return self._failed()
        if in_transaction(connection):
            return self._failed(reason="the command left a transaction open; it was rolled back")
        return self._success()

    async def _open(self, connection: Connection) -> str | Outcome:
        """Begins the transaction with the job's lock and returns its id, or why there is nothing to do."""
        patience = asyncio.get_running_loop().time() + self.lock_patience
        while True:
            opened = await runs.open_sql_run(connection, self.worker_id, self.task)
            if not opened.ours:
                return _TAKEN
            if opened.locked:
                return opened.transaction_id
            await connection.execute("rollback")
            late = asyncio.get_running_loop().time() >= patience
            if late or await self.stop.is_requested_within(_RETRY_PAUSE):
                reason = "another transaction of this job is still running; nothing was done"
                return Outcome(Status.FAILED, reason=reason)

    async def _execute(self, connection: Connection) -> bool:
        """Runs the statements one at a time; False where one of them ended the transaction, or a stop is asked for."""
        connection.add_notice_handler(self._notice)
        try:
            for statement in self.statements:
                if self.stop.reason is not None:
                    return False
                await self._execute_one(connection, statement)
                if self._is_transactional and not in_transaction(connection):
                    return False
        finally:
            connection.remove_notice_handler(self._notice)
        return self.stop.reason is None or not self._is_transactional

    async def _execute_one(self, connection: Connection, statement: str) -> None:
        self._note(await run_alone(connection, statement, most_bytes=MOST_BYTES))

    async def _commit(self, connection: Connection, transaction_id: str) -> Outcome | None:
        """Records `succeeded` and commits; None where the run or the transaction is no longer the one opened."""
        success = self._success(recorded=True)
        await self._undo_settings(connection)
        if connection.info.parameter_status("server_encoding") == "UTF8":
            return await self._commit_as(connection, transaction_id, success)
        await connection.execute("savepoint pgcron_result")
        try:
            return await self._commit_as(connection, transaction_id, success)
        except DataError:
            if not in_transaction(connection):
                raise
        await connection.execute("rollback to savepoint pgcron_result")
        words = "(what it printed and returned could not be stored in this database's encoding)"
        bare = replace(success, result=None, output=Output(words, self.output.total_bytes, truncated=True))
        return await self._commit_as(connection, transaction_id, bare)

    async def _commit_as(self, connection: Connection, transaction_id: str, success: Outcome) -> Outcome | None:
        committed = await runs.commit_sql_run(connection, self.worker_id, self.task, success, transaction_id)
        return success if committed else None

    async def _undo_settings(self, connection: Connection) -> None:
        """What the job has set for itself and would be in the way of the record."""
        text = self.task.command.lower()
        if "role" in text or "authorization" in text:
            async with connection.pipeline():
                await connection.execute("reset session authorization")
                await connection.execute("reset role")
        if "timeout" in text:
            await connection.execute(query("lift_timeouts"))
        if connection.info.encoding != "utf-8":
            await connection.execute("set local client_encoding to 'UTF8'")

    async def _why_not_committed(self, connection: Connection) -> Outcome:
        if not in_transaction(connection):
            # The record was accepted; the same error came out of COMMIT itself.
            return self._failed(error="22012: division by zero", reason="a deferred trigger failed at COMMIT")
        await connection.execute("rollback")
        # Not recorded by anybody, since our own transaction was rolled back.
        ours = await runs.read_own_runs(connection, self.worker_id, [self.task.run_id])
        return self._failed(reason=_ENDED_ITS_TRANSACTION) if self.task.run_id in ours else _TAKEN

    def _note(self, results: Results) -> None:
        self._counts.append({"command": results.command, "rows": results.rows})
        self._print(results.command)
        if self._value is None and results.unkept is not None:
            self._print(f"its value was not kept: {results.unkept}")
        if self._value is None and results.value is not None:
            try:
                self._value = storable_result(results.value)
            except BadResultError as error:
                self._print(f"its value was not kept: {error}")

    def _notice(self, notice: Notice) -> None:
        self._print(f"{notice.severity}: {notice.message_primary}")

    def _print(self, line: str) -> None:
        self.output.append(f"{line}\n".encode(errors="backslashreplace"))

    def _success(self, *, recorded: bool = False) -> Outcome:
        result = {"value": self._value, "statements": self._counts[:_MOST_COUNTS]}
        if len(self._counts) > _MOST_COUNTS:
            result["statements_left_out"] = len(self._counts) - _MOST_COUNTS
        return Outcome(Status.SUCCEEDED, result=result, output=self.output.render(), recorded=recorded)

    def _failed(self, *, reason: str | None = None, error: str | None = None) -> Outcome:
        return Outcome(Status.FAILED, reason=reason, error=error, output=self.output.render())

    def _failure(self, error: DatabaseError) -> Outcome:
        text = storable(describe(error))
        if not self.lost:
            read_only = self._committing and error.sqlstate == _READ_ONLY
            return self._failed(error=text, reason=_RECORD_IS_A_WRITE if read_only else None)
        if self._is_transactional:
            # Nothing was committed: the transaction ended with its session.
            reason = "the session was lost; the work was rolled back"
        else:
            reason = "the session was lost; what had been done before stays, since there was no transaction"
        return replace(self._failed(error=text, reason=reason), status=Status.LOST)

    def settled(self, status: Status | None) -> Outcome:
        """The outcome once the row is known: what the server committed, or nothing at all."""
        if status is Status.SUCCEEDED:
            return self._success(recorded=True)
        reason = "the server failed during the commit; the work was rolled back"
        return replace(self._failed(reason=reason), status=Status.LOST)
