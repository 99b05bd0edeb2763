"""A Postgres server: sessions, what they wait for, advisory locks, restarts, and a standby that is promoted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.model.statements import STATEMENTS, DivisionByZero, Rows
from tests.model.tables import Blocked, Duplicate, Tables, Transaction
from tests.model.truth import Truth
from tests.model.world import World

T0 = datetime(2030, 1, 7, 9, tzinfo=UTC)
_LOOK_EVERY = 0.25
_LOCK_PATIENCE = 2.0
_CHECK_EVERY = 2.0

Answer = Callable[[Rows | psycopg.Error], None]
Work = tuple[str, dict[str, Any]]


class Session:
    """A backend. Its client has sent a list of statements at a time, and waits for the answer to the last."""

    def __init__(self, server: Server, pid: int, name: str, *, idle_limit: float | None = None) -> None:
        self.server, self.pid, self.name = server, pid, name
        self.idle_limit, self.idle_since = idle_limit, server.world.now
        self.locks: Counter[tuple[int, bool]] = Counter()
        self.transaction: Transaction | None = None
        self.hang_up: Callable[[str], None] = lambda why: None
        self.is_over = False
        self._is_alone = self._commits_itself = False
        self._todo: list[Work] = []
        self._answer: Answer | None = None

    # Statements.

    def receive(self, statements: list[Work], answer: Answer) -> None:
        if not self.is_over:
            self._todo, self._answer = statements, answer
            self._go_on([])

    def _go_on(self, rows: Rows) -> None:
        """The next statement, if nobody has ended the session while it waited."""
        while self._todo and not self.is_over:
            name, params = self._todo[0]
            try:
                if name == "sleep":
                    self._todo.pop(0)
                    self.server.world.after(params["seconds"], self._go_on, rows)
                    return None
                rows = self._execute(name, params)
            except Blocked as blocked:
                self.server.wait(self, blocked.holder, self.server.world.now + _LOCK_PATIENCE)
                return None
            except Duplicate:
                return self._fail(psycopg.errors.UniqueViolation("model: runs_running"))
            except DivisionByZero:
                return self._fail(psycopg.errors.DivisionByZero("model: not ours"))
            except psycopg.Error as error:
                return self._fail(error)
            self._todo.pop(0)
        return None if self.is_over else self._reply(rows)

    def again(self) -> None:
        """Whoever was in the way is gone."""
        self._go_on([])

    def give_up_waiting(self) -> None:
        self._fail(psycopg.errors.LockNotAvailable("model: lock_timeout"))

    def _execute(self, name: str, params: dict[str, Any]) -> Rows:
        if name == "begin":
            self._begin()
        elif name in ("commit", "rollback"):
            self._end(commit=name == "commit")
        elif (special := self.server.specials.get(name)) is not None:
            return special(self, params)
        else:
            return self._run(name, params)
        return []

    def _begin(self) -> Transaction:
        self.transaction = Transaction(self.server.tables, self, self.server.clock())
        return self.transaction

    def _run(self, name: str, params: dict[str, Any]) -> Rows:
        transaction = self.transaction
        if transaction is None:
            transaction, self._commits_itself = self._begin(), True
        transaction.now = self.server.clock()
        rows = STATEMENTS[name](transaction, params)
        if self.server.refuses_writes and transaction.writes and name in ("finish_runs", "insert_planned_runs"):
            raise psycopg.errors.DiskFull("model: no space left on device")
        if self._commits_itself:
            self._end(commit=True)
        return rows

    def _end(self, *, commit: bool) -> None:
        transaction, self.transaction, self._commits_itself = self.transaction, None, False
        if transaction is not None:
            transaction.commit() if commit else transaction.end()
            self.server.over(self, transaction)

    def _fail(self, error: psycopg.Error) -> None:
        """A failed statement ends the transaction; the client's ROLLBACK only says so."""
        self._todo.clear()
        self._end(commit=False)
        self._reply(error)

    def _reply(self, outcome: Rows | psycopg.Error) -> None:
        self.idle_since = self.server.world.now
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(outcome)
        if self._is_alone:
            self.end("its client is gone")

    @property
    def is_busy(self) -> bool:
        return self._answer is not None

    def client_is_gone(self) -> None:
        """It notices at the end of its statement, or when it looks (client_connection_check_interval)."""
        self._is_alone = True
        if self.is_busy:
            self.server.world.after(_CHECK_EVERY, self.end, "its client is gone")
        else:
            self.end("its client is gone")

    def end(self, why: str) -> None:
        """The session is over; a transaction of it is rolled back, its locks are free."""
        if not self.is_over:
            self.is_over = True
            del self.server.sessions[self.pid]
            self._end(commit=False)
            self.hang_up(why)

    # Advisory locks.

    def try_lock(self, job_id: int, *, exclusive: bool) -> bool:
        for other in self.server.sessions.values():
            if other is not self and (other.locks[job_id, True] or (exclusive and other.locks[job_id, False])):
                return False
        self.locks[job_id, exclusive] += 1
        return True

    def unlock(self, job_id: int, exclusive: bool) -> bool:
        held = self.locks[job_id, exclusive] > 0
        self.locks[job_id, exclusive] -= held
        if not self.locks[job_id, exclusive]:
            del self.locks[job_id, exclusive]
        return held

    def try_transaction_lock(self, job_id: int) -> bool:
        return self.server.transaction_locks.setdefault(job_id, self) is self


class Server:
    """The primary. `clock` is what it shows, `offset` how far that has been stepped."""

    def __init__(self, world: World, truth: Truth) -> None:
        self.world, self._truth = world, truth
        self.tables = Tables(lambda: world.now, truth.committed)
        self.sessions: dict[int, Session] = {}
        self.transaction_locks: dict[int, Session] = {}
        self.offset = 0.0
        self._timeline = 1
        self.tables.store("timeline", 1, {"server": None, "noticed_at": datetime(1, 1, 1, tzinfo=UTC)})
        self.is_up = True
        self.refuses_writes = False
        self.listeners: list[Callable[[str], None]] = []
        self._pids = 100
        self._waiting: dict[Transaction, list[tuple[Session, float]]] = defaultdict(list)
        self.specials: dict[str, Callable[[Session, dict[str, Any]], Rows]] = {
            "terminate_session": self._terminate_session,
            "terminate_sessions": self._terminate_sessions,
            "count_sessions": lambda session, p: [(len(self._named(p["application_name"], session)),)],
        }
        world.after(_LOOK_EVERY, self._look)

    @property
    def history(self) -> str:
        """System and timeline."""
        return f"7/{self._timeline:08X}"

    def clock(self) -> datetime:
        return T0 + timedelta(seconds=self.world.now + self.offset)

    def connect(self, name: str, idle_limit: float | None) -> Session:
        self._pids += 1
        session = self.sessions[self._pids] = Session(self, self._pids, name, idle_limit=idle_limit)
        return session

    # Waiting for rows.

    def wait(self, session: Session, holder: Transaction, until: float) -> None:
        self._waiting[holder].append((session, until))

    def over(self, session: Session, transaction: Transaction) -> None:
        """A transaction has ended: who waited for its rows goes on."""
        for job_id in [job_id for job_id, holder in self.transaction_locks.items() if holder is session]:
            del self.transaction_locks[job_id]
        for waiting, _ in self._waiting.pop(transaction, ()):
            if not waiting.is_over:
                waiting.again()

    def _look(self) -> None:
        """Who waits too long for a row, and who has been idle for too long."""
        self.world.after(_LOOK_EVERY, self._look)
        for holder, waiting in list(self._waiting.items()):
            late = [session for session, until in waiting if until <= self.world.now]
            self._waiting[holder] = [(session, until) for session, until in waiting if until > self.world.now]
            for session in late:
                if not session.is_over:
                    session.give_up_waiting()
        for session in list(self.sessions.values()):
            limit = session.idle_limit
            if limit is not None and not session.is_busy and self.world.now - session.idle_since >= limit:
                session.end("idle for too long")

    # Who ends sessions.

    def _named(self, name: str, asking: Session) -> list[Session]:
        return [session for session in self.sessions.values() if session.name == name and session is not asking]

    def _terminate_session(self, session: Session, p: dict[str, Any]) -> Rows:
        found = [one for one in self._named(p["application_name"], session) if one.pid == p["pid"]]
        for one in found:
            one.end("terminated by its worker")
        return [(True,) for _ in found]

    def _terminate_sessions(self, session: Session, p: dict[str, Any]) -> Rows:
        found = self._named(p["application_name"], session)
        for one in found:
            one.end("terminated by who reaps")
        return [(len(found), len(found))]

    # What happens to it.

    def go_down(self, *, crash: bool) -> None:
        """All sessions are over. A crash takes back the last commits that nothing after them has flushed."""
        self.is_up = False
        for session in list(self.sessions.values()):
            session.end("the server is going down")
        if crash:
            self._forget(self.tables.unflushed())

    def _forget(self, commits: int) -> None:
        self.tables.forget(commits)
        self._truth.forgotten()

    def come_up(self) -> None:
        self.is_up = True

    def promote_standby(self, lag: int) -> None:
        """Another server takes over, which has not heard of the last `lag` commits."""
        self.go_down(crash=False)
        self._forget(lag)
        self.tables.log.clear()
        self._timeline += 1
        self.is_up = True

    def notify(self, payload: str) -> None:
        for hear in list(self.listeners):
            hear(payload)
