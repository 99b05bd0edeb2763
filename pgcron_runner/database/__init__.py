"""Sessions with Postgres: how they are opened, what they are set to, and how they come back. The home of psycopg.

It must not know jobs, runs or workers beyond the name that a session carries.
"""

from pgcron_runner.database.connect import Connection, Database, Purpose, check_dsn, resolve_dsn, session_settings
from pgcron_runner.database.failures import (
    DatabaseError,
    DataError,
    DivisionByZero,
    UniqueViolation,
    describe,
    explain,
    is_connection_lost,
)
from pgcron_runner.database.foreign import (
    Notice,
    Results,
    execute_at_once,
    in_transaction,
    is_at_rest,
    run_alone,
    speak_utf8,
)

__all__ = [
    "Connection",
    "DataError",
    "Database",
    "DatabaseError",
    "DivisionByZero",
    "Notice",
    "Purpose",
    "Results",
    "UniqueViolation",
    "check_dsn",
    "describe",
    "execute_at_once",
    "explain",
    "in_transaction",
    "is_at_rest",
    "is_connection_lost",
    "resolve_dsn",
    "run_alone",
    "session_settings",
    "speak_utf8",
]
