"""From a command to the database and back: one session, the schema checked, and Postgres's refusals in words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from pgcron_runner.cli.options import WrongUse
from pgcron_runner.errors import PgcronError

if TYPE_CHECKING:
    from pgcron_runner.database import Connection, DatabaseError

T = TypeVar("T")

# SQLSTATE classes of values that the tables refuse: data exceptions and integrity constraint violations.
_REFUSED_VALUE = ("22", "23")
# And what says that the session, the server or the schema is not there: connection, resources, shutdown, names, rights.
_SESSION_OR_SCHEMA = ("08", "53", "57P", "25006", "3F000", "42P01", "42501")


def with_database(dsn: str | None, work: Callable[[Connection], Awaitable[T]]) -> T:
    """What `work` returns, given a session on a database whose schema fits. Raises PgcronError and its kin only."""
    return asyncio.run(_with_database(dsn, work))


async def _with_database(dsn: str | None, work: Callable[[Connection], Awaitable[T]]) -> T:
    # Here, because the driver takes longer to load than most commands take to run.
    from pgcron_runner.database import Database, DatabaseError, Purpose, resolve_dsn
    from pgcron_runner.migrate import check_schema

    connection = await Database(resolve_dsn(dsn)).connect(Purpose.ADMIN)
    try:
        await check_schema(connection)
        return await work(connection)
    except DatabaseError as error:
        raise _in_words(error) from error
    finally:
        await connection.close()


def _in_words(error: DatabaseError) -> PgcronError:
    from pgcron_runner.database import explain

    diag, state = error.diag, error.sqlstate or ""
    if not state or diag.message_primary is None or state.startswith(_SESSION_OR_SCHEMA):
        return explain(error)
    if not state.startswith(_REFUSED_VALUE):
        return PgcronError(f"Postgres could not do it: {diag.message_primary}.")
    if diag.constraint_name and diag.table_name:
        field = re.sub(rf"^{diag.table_name}_|_check$", "", diag.constraint_name)
        return WrongUse(f"{field}: the database does not accept this value ({diag.constraint_name}).")
    return WrongUse(". ".join(text.rstrip(".") for text in (diag.message_primary, diag.message_hint) if text) + ".")
