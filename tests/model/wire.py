"""The way between a worker and the server: psycopg's connections on lines that can be slow, cut or deaf."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Self

import psycopg
from psycopg import pq

from pgcron_runner.database import Purpose
from pgcron_runner.errors import DatabaseUnavailable
from pgcron_runner.statements import migrations, query
from tests.model.server import Server, Session, Work
from tests.model.statements import NAMES, Rows
from tests.model.world import Host, Process

# As they are set in `database.connect`: who gives a line up, and when.
_CONNECT_TIMEOUT = 5.0
_LINE_TIMEOUT = 10.5
_SCHEMA = [(migration.version, migration.breaking) for migration in migrations()]
_KNOWN = {query(name): name for name in ("terminate_session", "terminate_sessions", "count_sessions")}
_NAMES = NAMES | _KNOWN
# Statements whose answer is always the same here.
_CONSTANT: dict[Any, Rows] = {
    "select to_regclass('pgcron.schema_migrations') is not null": [(True,)],
    query("list_migrations"): _SCHEMA,
    "select pg_stat_clear_snapshot()": [(None,)],
}


class Line:
    """The way between one host and the server. What is sent into a cut waits until it is mended."""

    def __init__(self, host: Host, server: Server) -> None:
        self.host, self.world, self.server = host, host.world, server
        self.slowness = 0.0
        self.is_cut = {"out": False, "in": False}
        self._cut_at = 0.0
        self._held: list[tuple[str, Callable[..., object], tuple[Any, ...]]] = []
        self.connections: list[Connection] = []
        self.sessions: list[Session] = []

    @property
    def is_whole(self) -> bool:
        return not (self.is_cut["out"] or self.is_cut["in"])

    def send(self, way: str, callback: Callable[..., object], *args: Any) -> None:
        if self.is_cut[way]:
            self._held.append((way, callback, args))
        else:
            self.world.after(self.latency(), callback, *args)

    def latency(self) -> float:
        return 0.0002 + (0.004 + self.slowness) * self.world.rng.random()

    def cut(self, *ways: str) -> None:
        for way in ways:
            self.is_cut[way] = True
        self._cut_at = self.world.now
        self.world.after(_LINE_TIMEOUT, self._give_up, self._cut_at)

    def mend(self) -> None:
        self.is_cut = {"out": False, "in": False}
        held, self._held = self._held, []
        for way, callback, args in held:
            self.world.after(self.latency() * 20, self.send, way, callback, *args)

    def _give_up(self, cut_at: float) -> None:
        """Keepalives and unanswered segments: both ends find out that nobody is there."""
        if not self.is_whole and self._cut_at == cut_at:
            self._held.clear()
            for session in self.sessions:
                session.end("its client does not answer")
            self.sessions.clear()
            for connection in list(self.connections):
                self.host.when_awake(connection.break_off, "timed out")


class Cursor:
    """The rows of an answer."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    async def fetchall(self) -> Rows:
        return self._rows


class Connection:
    """What the product sees of psycopg's AsyncConnection."""

    def __init__(self, line: Line, process: Process, name: str, purpose: Purpose, lease: float) -> None:
        self.line, self.closed = line, False
        self.session = line.server.connect(name, lease * 0.9 if purpose is Purpose.CONTROL else None)
        self.server_pid = self.session.pid
        self.session.hang_up = lambda why: line.send("in", line.host.when_awake, self.break_off, why)
        self.info = SimpleNamespace(
            backend_pid=self.session.pid, status=pq.ConnStatus.OK, transaction_status=pq.TransactionStatus.IDLE
        )
        self.process = process
        self._depth = 0
        self._is_begun = False
        self._future: asyncio.Future[Rows] | None = None
        self._heard: asyncio.Future[None] | None = None
        self._said: list[str] = []
        line.connections.append(self)
        line.sessions.append(self.session)

    # Statements.

    async def execute(self, text: Any, params: dict[str, Any] | None = None, *, binary: bool = False) -> Cursor:
        if (name := _NAMES.get(text)) is not None:
            return Cursor(await self.send([(name, params or {})]))
        # Anything else is no part of the protocol, and finds nothing.
        await self.send([])
        if text == "listen pgcron":
            self.line.server.listeners.append(self._notified)
        return Cursor(_CONSTANT.get(text, []))

    async def send(self, statements: list[Work]) -> Rows:
        """In one message; the rows of the last."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        if self._depth and not self._is_begun:
            self._is_begun = True
            statements = [("begin", {}), *statements]
        self._future = self.process.create_future()
        self.info.transaction_status = pq.TransactionStatus.ACTIVE
        self.line.send("out", self.session.receive, statements, self._answered)
        rows = await self._future
        in_transaction = self._is_begun or self.session.transaction is not None
        self.info.transaction_status = pq.TransactionStatus.INTRANS if in_transaction else pq.TransactionStatus.IDLE
        return rows

    def _answered(self, outcome: Rows | psycopg.Error) -> None:
        self.line.send("in", self.line.host.when_awake, self._arrive, outcome)

    def _arrive(self, outcome: Rows | psycopg.Error) -> None:
        if self._future is not None and not self._future.done() and not self.closed:
            if isinstance(outcome, psycopg.Error):
                self._future.set_exception(outcome)
            else:
                self._future.set_result(outcome)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """An inner one is a savepoint, which nothing here rolls back to alone."""
        self._depth += 1
        try:
            yield
        except (GeneratorExit, asyncio.CancelledError):
            self._depth -= 1
            raise
        except BaseException:
            self._depth -= 1
            with suppress(psycopg.Error):
                await self._end("rollback")
            raise
        self._depth -= 1
        await self._end("commit")

    async def _end(self, how: str) -> None:
        if self._is_begun and not self._depth:
            self._is_begun = False
            await self.send([(how, {})])

    # Its end.

    def break_off(self, why: str) -> None:
        """The client learns that the session is over."""
        if self.closed:
            return
        self._gone()
        error = psycopg.errors.AdminShutdown(why) if "terminated" in why else psycopg.OperationalError(why)
        for future in (self._future, self._heard):
            if future is not None and not future.done():
                future.set_exception(error)

    def _gone(self) -> None:
        self.closed, self.info.status = True, pq.ConnStatus.BAD
        self.line.connections.remove(self)
        if self._notified in self.line.server.listeners:
            self.line.server.listeners.remove(self._notified)

    def abandon(self) -> None:
        """The client is gone, and the server hears of it if the line is whole."""
        if not self.closed:
            self._gone()
            self.line.send("out", self.session.client_is_gone)

    def abandon_with_error(self) -> None:
        """The client itself cuts the line."""
        session = self.session
        self.break_off("cut off by its own side")
        self.line.send("out", session.client_is_gone)

    def lose_track(self) -> None:
        """Somebody in between has forgotten the connection: the client is told so, the server has to find out."""
        self.break_off("connection reset")
        self.line.world.after(_LINE_TIMEOUT, self.session.end, "its client does not answer")

    async def close(self) -> None:
        self.abandon()

    # Notifications.

    def _notified(self, payload: str) -> None:
        self.line.send("in", self.line.host.when_awake, self._hear, payload)

    def _hear(self, payload: str) -> None:
        self._said.append(payload)
        if self._heard is not None and not self._heard.done():
            self._heard.set_result(None)

    def notifies(self, *, timeout: float, stop_after: int) -> Self:
        self._timeout, self._left = timeout, stop_after
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SimpleNamespace:
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        if not self._said and self._left:
            heard = self._heard = self.process.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout):
                    await heard
        if not self._said or not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return SimpleNamespace(payload=self._said.pop(0))


@dataclass(frozen=True)
class Database:
    """What the product sees of `pgcron_runner.database.Database`."""

    line: Line = field(repr=False)
    application_name: str = ""
    conninfo: str = ""
    lease: timedelta = timedelta(seconds=30)

    async def connect(self, purpose: Purpose) -> Connection:
        """Raises DatabaseUnavailable, as where nobody answers or the server is down."""
        line = self.line
        if not line.is_whole:
            await asyncio.sleep(_CONNECT_TIMEOUT)
        else:
            await asyncio.sleep(2 * line.latency())
        if not line.is_whole or not line.server.is_up:
            raise DatabaseUnavailable("model: no answer")
        process: Any = asyncio.get_running_loop()
        return Connection(line, process, self.application_name, purpose, self.lease.total_seconds())

    async def connect_patiently(self, purpose: Purpose) -> Connection:
        while True:
            try:
                return await self.connect(purpose)
            except DatabaseUnavailable:
                await asyncio.sleep(0.2)
