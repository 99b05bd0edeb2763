"""Databases of the test server: made from a template, looked into with a plain superuser connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql

from pgcron_runner.embedded import Server

WORKER_ROLE = "worker"

Params = Sequence[Any] | Mapping[str, Any] | None


@dataclass
class Database:
    """One database. The helpers run on one autocommit superuser connection, opened when first needed."""

    server: Server
    name: str
    _connection: psycopg.Connection | None = field(default=None, repr=False)

    @property
    def dsn(self) -> str:
        """As the superuser, over the Unix socket."""
        return self.server.dsn(self.name)

    @property
    def worker_dsn(self) -> str:
        """As an ordinary role that may log in and owns nothing."""
        return self.server.dsn(self.name, WORKER_ROLE)

    @property
    def tcp_dsn(self) -> str:
        """As the superuser, over 127.0.0.1."""
        return self.server.dsn(self.name, tcp=True)

    def dsn_through(self, port: int) -> str:
        """`tcp_dsn` by way of a proxy on that port of 127.0.0.1."""
        return psycopg.conninfo.make_conninfo(self.tcp_dsn, port=port)

    def execute(self, statement: LiteralString, params: Params = None) -> int:
        """Run a statement; how many rows it touched."""
        return self._connected().execute(statement, params).rowcount

    def rows(self, query: LiteralString, params: Params = None) -> list[tuple[Any, ...]]:
        return self._connected().execute(query, params).fetchall()

    def value(self, query: LiteralString, params: Params = None) -> Any:
        """The first column of the first row; None when there is no row."""
        row = self._connected().execute(query, params).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection:
        # A test may have restarted the server since.
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.dsn, autocommit=True, application_name="test")
        return self._connection


@contextmanager
def new_database(server: Server, *, template: str = "template0") -> Iterator[Database]:
    """A database copied from a template, dropped at the end with whoever is still in it."""
    name = f"test_{uuid4().hex[:12]}"
    create_database(server, name, template=template)
    database = Database(server, name)
    try:
        yield database
    finally:
        database.close()
        server.start()  # a test may have left it dead
        drop_database(server, name)


def create_database(server: Server, name: str, *, template: str = "template0") -> None:
    _administer(
        server,
        sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template)),
    )


def drop_database(server: Server, name: str) -> None:
    _administer(server, sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def create_worker_role(server: Server) -> None:
    _administer(
        server,
        sql.SQL("create role {} login password {}").format(
            sql.Identifier(WORKER_ROLE), sql.Literal(server.password or "")
        ),
    )


def _administer(server: Server, statement: sql.Composed) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(statement)
