"""What Postgres refuses or fails at, in words, and whether waiting helps."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import pq

from pgcron_runner.errors import DatabaseRefused, DatabaseUnavailable, PgcronError, SchemaMissing

DatabaseError = psycopg.Error
DataError = psycopg.DataError
UniqueViolation = psycopg.errors.UniqueViolation
DivisionByZero = psycopg.errors.DivisionByZero

_REFUSALS = (
    (r"password authentication failed|no password supplied", "Postgres refuses the password"),
    (r"role \S+ does not exist|no pg_hba\.conf entry|authentication failed", "Postgres refuses this role"),
    (r"database \S+ does not exist", "There is no such database"),
)
_OUTAGES = (
    (r"too many connections for (role|database)", "The CONNECTION LIMIT of the role or the database is used up"),
    (r"too many clients|connection slots", "Postgres has no free connection (max_connections)"),
    (r"no more connections allowed|query_wait_timeout", "The connection pooler in between has no session to give"),
    (
        r"session is read-only|hot standby|not currently primary",
        "This Postgres is a standby or read-only; waiting for one that can write",
    ),
    (r"starting up|shutting down|recovery mode|not yet accepting", "Postgres is starting up or shutting down"),
)
# Others are in the way for the moment: lock_not_available, query_canceled (by a timeout), deadlocks and the like.
_PASSING = ("55P03", "57014", "40")


def explain(error: psycopg.Error) -> PgcronError:
    """The plain sentence for what psycopg raised, as an error that says whether waiting helps."""
    text = " ".join(str(error).split())
    match error.sqlstate:
        case "25006":
            return DatabaseUnavailable("This Postgres is a standby or read-only; waiting for one that can write.")
        case "3F000" | "42P01":
            return SchemaMissing()
        case "42501":
            return DatabaseRefused(f"The role lacks a right: {text}. Grant it, or run as the role that migrated.")
    for pattern, sentence in _REFUSALS:
        if re.search(pattern, text):
            return DatabaseRefused(f"{sentence}: {text}")
    for pattern, sentence in _OUTAGES:
        if re.search(pattern, text):
            return DatabaseUnavailable(f"{sentence}: {text}")
    if error.sqlstate is not None and error.sqlstate.startswith(_PASSING):
        return DatabaseUnavailable(f"Postgres cannot do it at the moment: {text}")
    # Classes 08, 53 and 57P: the connection, the server's resources, its operators. Others are about one statement.
    if error.sqlstate is None or error.sqlstate.startswith(("08", "53", "57P")):
        return DatabaseUnavailable(f"Postgres cannot be reached: {text}")
    return DatabaseRefused(f"Postgres refuses: {text}")


def is_connection_lost(connection: psycopg.AsyncConnection[Any], error: BaseException) -> bool:
    """True where the session is of no more use: closed, broken, or its server can no longer write."""
    if isinstance(error, psycopg.Error) and (
        error.sqlstate == "25006" or error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    ):
        return True
    return connection.closed or connection.info.status is not pq.ConnStatus.OK


def describe(error: DatabaseError) -> str:
    """What Postgres said, for a run's `error`: code, message, detail, hint and where."""
    diag = error.diag
    if diag.message_primary is None:
        return " ".join(str(error).split())
    lines = [f"{diag.sqlstate}: {diag.message_primary}"]
    lines += [
        f"{name}: {text}"
        for name, text in (("DETAIL", diag.message_detail), ("HINT", diag.message_hint), ("CONTEXT", diag.context))
        if text
    ]
    return "\n".join(lines)
