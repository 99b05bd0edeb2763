"""Opening sessions: how Postgres is found, and what each session is set to for its purpose."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from pgcron_runner.database import poolers
from pgcron_runner.database.failures import explain
from pgcron_runner.errors import DatabaseUnavailable, InvalidInput
from pgcron_runner.statements import query


class Connection(psycopg.AsyncConnection[TupleRow]):
    """A session. `server_pid` is the server's own number for it; what libpq knows may be a pooler's invention."""

    server_pid = 0


# A gap in the network must be noticed well inside a lease; both directions need both settings (measured: keepalives
# alone hang on unacknowledged data, tcp_user_timeout alone hangs when idle).
_CLIENT_SIDE = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
    "client_encoding": "UTF8",
}
_SERVER_SIDE = {
    "idle_in_transaction_session_timeout": "10s",
    "client_connection_check_interval": "2s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}
# Ours alone: a role's or database's own settings must not change what our statements mean or how they are planned.
_OWN_STATEMENTS = {
    **_SERVER_SIDE,
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    "search_path": "pg_catalog",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "10s",
    "lock_timeout": "5s",
    "idle_session_timeout": "0",
    # Every statement of ours has its index. A plan made while the tables were empty would otherwise stay a
    # sequential scan for as long as the session lives.
    "enable_seqscan": "off",
    "jit": "off",
}


class Purpose(Enum):
    """What a session is for; decides its settings."""

    CONTROL = "control"
    RECORD = "record"
    LISTEN = "listen"
    JOB = "job"
    REMOTE_JOB = "remote job"
    ADMIN = "admin"


# Whose sessions run the text of jobs.
_FOREIGN_TEXT = (Purpose.JOB, Purpose.REMOTE_JOB)


@dataclass(frozen=True, slots=True)
class Database:
    """Where Postgres is: a libpq connection string (empty: libpq's own environment) and the name sessions carry."""

    conninfo: str = ""
    application_name: str = "pgcron-runner"
    lease: timedelta = timedelta(seconds=20)

    async def connect(self, purpose: Purpose) -> Connection:
        """One session, set up for its purpose and checked.

        Raises DatabaseUnavailable where waiting may help and DatabaseRefused where it cannot; both are sentences.
        """
        try:
            connection = await self._open(purpose)
            try:
                await self._check(connection, purpose)
            except BaseException:
                await connection.close()
                raise
        except psycopg.Error as error:
            raise explain(error) from error
        return connection

    async def connect_patiently(
        self, purpose: Purpose, *, on_wait: Callable[[DatabaseUnavailable], None] | None = None
    ) -> Connection:
        """The same, but waits while Postgres is away or has no connection to give; the caller bounds the time.

        `on_wait` is told before each pause what the matter is.
        """

        def tell(state: RetryCallState) -> None:
            trouble = state.outcome.exception() if state.outcome is not None else None
            if on_wait is not None and isinstance(trouble, DatabaseUnavailable):
                on_wait(trouble)

        retrying = AsyncRetrying(
            wait=wait_random_exponential(multiplier=0.1, max=2),
            retry=retry_if_exception_type(DatabaseUnavailable),
            before_sleep=tell,
        )
        return await retrying(self.connect, purpose)

    async def _open(self, purpose: Purpose) -> Connection:
        parameters = self._parameters(purpose)
        # A job's session is reset with DISCARD ALL, which drops prepared statements behind psycopg's back.
        prepare = None if purpose in _FOREIGN_TEXT else 3
        connect = partial(Connection.connect, self.conninfo, autocommit=True, prepare_threshold=prepare)
        try:
            return await connect(**parameters)
        except psycopg.OperationalError as error:
            if poolers.REFUSES_SETTINGS not in str(error) or "options" in check_dsn(self.conninfo):
                raise
            # They are made once the session is known to be ours alone.
            return await connect(**parameters | {"options": ""})

    async def _check(self, connection: Connection, purpose: Purpose) -> None:
        """Sees that the session is what it seems: ours alone, with its settings, and able to write."""
        cursor = await connection.execute(query("read_session"))
        row = await cursor.fetchone()
        assert row is not None
        connection.server_pid, is_read_only = row
        if connection.server_pid != connection.info.backend_pid:
            settings = session_settings(purpose, self.lease)
            await poolers.make_own(connection, settings, lambda: self._open(purpose))
        if is_read_only and purpose is not Purpose.REMOTE_JOB:
            raise DatabaseUnavailable("This Postgres is a standby or read-only; waiting for one that can write.")

    def _parameters(self, purpose: Purpose) -> dict[str, Any]:
        given = check_dsn(self.conninfo)
        settings = session_settings(purpose, self.lease)
        options = " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.items())
        parameters = {key: value for key, value in _CLIENT_SIDE.items() if key not in given}
        if purpose is Purpose.REMOTE_JOB:
            # A job may well read from a standby.
            parameters.pop("target_session_attrs", None)
        return parameters | {
            "options": f"{given.get('options', '')} {options}".strip(),
            "application_name": self.application_name,
        }


def session_settings(purpose: Purpose, lease: timedelta) -> dict[str, str]:
    """The settings of a session. All can be set by an ordinary role."""
    milliseconds = lease // timedelta(milliseconds=1)
    match purpose:
        case Purpose.CONTROL:
            # The idle limit is the only one that frees the locks of a silently cut session in every idle case; a
            # statement that takes longer than a part of the lease could cost the lease itself.
            return _OWN_STATEMENTS | {
                "idle_session_timeout": str(milliseconds * 9 // 10),
                "statement_timeout": str(min(10_000, milliseconds // 3)),
                "lock_timeout": str(min(2_000, milliseconds // 6)),
            }
        case Purpose.RECORD | Purpose.LISTEN:
            return dict(_OWN_STATEMENTS)
        case Purpose.JOB | Purpose.REMOTE_JOB:
            # The job's own text runs here, under the role's and database's own settings.
            return _SERVER_SIDE | {"idle_in_transaction_session_timeout": "60s"}
        case Purpose.ADMIN:
            return _OWN_STATEMENTS | {"statement_timeout": "60s", "enable_seqscan": "on"}


def resolve_dsn(given: str | None) -> str:
    """The connection string: the flag, else PGCRON_DSN, else empty for libpq's own PG* environment."""
    text = given or os.environ.get("PGCRON_DSN") or ""
    check_dsn(text)
    return text


def check_dsn(text: str, *, field: str = "dsn") -> dict[str, Any]:
    """The parts of a connection string. Raises InvalidInput, which does not repeat it: it may hold a password."""
    try:
        return conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        example = "postgresql://user@host/database"
        raise InvalidInput(field, "(not shown)", "is not a connection string", example=example) from None


def _escaped(value: str) -> str:
    return re.sub(r"([\\ ])", r"\\\1", value)
