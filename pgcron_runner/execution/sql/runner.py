"""Runs SQL jobs: finds the session, the commit mode and the end of each."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from pgcron_runner.database import Connection, Database, DatabaseError
from pgcron_runner.errors import DatabaseRefused
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.sql.autocommit import Autocommit
from pgcron_runner.execution.sql.commit_mode import CommitMode
from pgcron_runner.execution.sql.exactly_once import ExactlyOnce
from pgcron_runner.execution.sql.other_database import OtherDatabase
from pgcron_runner.execution.sql.script import copies_to_client, split_statements, transaction_end
from pgcron_runner.execution.sql.sessions import Canceller, JobSessions
from pgcron_runner.execution.sql.waiting import unless
from pgcron_runner.execution.sql.work import Work
from pgcron_runner.execution.stop import Stop
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Outcome, Status, Task

log = get_logger(__name__)

# Longer than a server takes to notice that a worker is gone, and its transaction with it.
_LOCK_PATIENCE = 15.0
# Stands for "COMMIT was sent and got no answer" until it is known how that ended.
_UNKNOWN = Outcome(Status.LOST, reason="the server did not answer the commit before the lease ended")


class SqlRunner:
    """Runs SQL jobs for one worker, on at most `sessions` sessions a database, which are kept for the next jobs.

    `connections`: the other databases that args.connection may name. `lock_patience`: how many seconds a run waits for
    a transaction of its job that a dead worker has left behind.
    """

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        *,
        sessions: int,
        connections: Mapping[str, Database] | None = None,
        lock_patience: float = _LOCK_PATIENCE,
    ) -> None:
        self._home = database
        self._worker_id = worker_id
        self._others = dict(connections or {})
        self._sessions: dict[str | None, JobSessions] = {None: JobSessions(database, sessions)}
        self._sessions |= {name: JobSessions(there, sessions, remote=True) for name, there in self._others.items()}
        self._lock_patience = lock_patience

    async def run(self, task: Task, stop: Stop, live: Live) -> Outcome:
        """Runs the job's statements. The outcome is `recorded` where its own transaction wrote it."""
        statements = split_statements(task.command)
        problem = _problem_of(task, statements) or self._unknown_connection(task)
        if problem is not None:
            return Outcome(Status.FAILED, error=f"launch failed: {problem}")
        work = Work(task, statements, stop, live)
        mode = self._mode_of(work)
        outcome = await self._attempt(mode, work, self._sessions[_connection_of(task)])
        if outcome is not _UNKNOWN:
            return outcome
        log.warning(
            "commit_unanswered",
            job=task.job_name,
            run=task.run_id,
            consequence="it is looked up on a new session how it ended",
        )
        return await unless(stop.now, mode.settle()) or _UNKNOWN

    async def close(self) -> None:
        """Closes the sessions that are not in use, and the others as soon as they are given back."""
        for sessions in self._sessions.values():
            await sessions.close()

    def _mode_of(self, work: Work) -> CommitMode:
        name = _connection_of(work.task)
        if work.task.args.get("transaction") is False:
            return Autocommit(work, self._worker_id, remote=name is not None)
        if name is None:
            return ExactlyOnce(work, self._home, self._worker_id, lock_patience=self._lock_patience)
        there = self._others[name]
        return OtherDatabase(work, self._home, there, self._worker_id, lock_patience=self._lock_patience)

    async def _attempt(self, mode: CommitMode, work: Work, sessions: JobSessions) -> Outcome:
        stop = work.stop
        while stop.reason is None:
            connection: Connection | None = None
            try:
                with stop.cancels_this_task():
                    connection, is_new = await sessions.take()
            except DatabaseRefused as error:
                return Outcome(Status.FAILED, error=f"launch failed: {_where(work.task)}{error}")
            if connection is None:
                break
            outcome = await self._run_on(connection, mode, work, sessions)
            # An idle session may have died unseen: nothing was begun on it.
            if is_new or work.begun or not work.lost:
                return outcome
        return Outcome(Status.FAILED, error=_waited_for(work.task, sessions))

    async def _run_on(self, connection: Connection, mode: CommitMode, work: Work, sessions: JobSessions) -> Outcome:
        canceller = Canceller(connection, sessions.database, work.stop, grace=work.task.kill_grace.total_seconds())
        reusable = work.lost = False
        try:
            with work.stop.calls(canceller.start):
                outcome = await _run(connection, mode, work)
            # A request to cancel that is still on its way would hit the next job.
            reusable = work.stop.reason is None and not work.lost
        finally:
            await canceller.end()
            await sessions.give_back(connection, reusable=reusable)
        return outcome

    def _unknown_connection(self, task: Task) -> str | None:
        name = _connection_of(task)
        if name is None or name in self._others:
            return None
        known = ", ".join(sorted(self._others)) or "none"
        variable = f"{name.upper().replace('-', '_')}_DSN"
        return (
            f"args.connection is {name!r}, which this worker does not know; it knows: {known};"
            f" start it with --connection {name}=env:{variable}"
        )


async def _run(connection: Connection, mode: CommitMode, work: Work) -> Outcome:
    try:
        return await mode.run(connection)
    except DatabaseError as error:
        work.lost = _is_lost(connection, error)
        return _UNKNOWN if mode.committing and work.lost else mode.refused(error)


def _is_lost(connection: Connection, error: DatabaseError) -> bool:
    """Whether the session is over. What the server's last word was, and whether it was heard, depends on chance."""
    return connection.closed or error.sqlstate is None or error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _connection_of(task: Task) -> str | None:
    name = task.args.get("connection")
    return name if isinstance(name, str) else None


def _where(task: Task) -> str:
    name = _connection_of(task)
    return "" if name is None else f"connection {name}: "


def _waited_for(task: Task, sessions: JobSessions) -> str | None:
    """Why there was no session until the run had to stop; None where that was not the reason."""
    return None if sessions.trouble is None else f"launch failed: {_where(task)}{sessions.trouble}"


def _problem_of(task: Task, statements: list[str]) -> str | None:
    """Why this command cannot be run; None where nothing is seen that would be in the way."""
    transactional, connection = task.args.get("transaction", True), task.args.get("connection")
    if not isinstance(transactional, bool):
        return f"args.transaction is {transactional!r}, not true or false"
    if connection is not None and (not isinstance(connection, str) or not connection):
        return f'args.connection is {connection!r}, not a name such as "reporting"'
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
