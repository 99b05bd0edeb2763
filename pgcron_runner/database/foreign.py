"""Statements of foreign text, one at a time and row by row; and our own around them, in one round trip."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg
from psycopg import capabilities, pq
from psycopg.abc import PQGen
from psycopg.generators import fetch, send
from psycopg.pq.abc import PGconn, PGresult

from pgcron_runner.database.connect import Connection
from pgcron_runner.database.failures import DatabaseError, DataError

Notice: TypeAlias = psycopg.errors.Diagnostic

# One by one they take three times as long (measured: 7 s a million), and a hundred of a megabyte each are too many.
_ROWS_AT_A_TIME = 20
_ROWS = (pq.ExecStatus.SINGLE_TUPLE, pq.ExecStatus.TUPLES_CHUNK)


@dataclass(frozen=True, slots=True)
class Results:
    """What one statement of a job came to. `value`: the first column of its first row, as JSON can hold it.

    `unkept`: why there is no value although there was one.
    """

    command: str
    rows: int | None
    value: Any = None
    unkept: str | None = None


async def run_alone(connection: Connection, statement: str, *, most_bytes: int) -> Results:
    """Runs exactly one statement of foreign text as it stands: `%` is ordinary, a second statement is refused.

    It runs to its end, but only a few of its rows are in memory at a time; of a first value beyond `most_bytes` only
    its size is told.
    """
    encoding = _encoding(connection)
    try:
        text = statement.encode(encoding)
    except UnicodeEncodeError as error:
        raise DataError(f"the statement cannot be written in the client_encoding that was set: {error}") from None
    async with connection.lock:
        first, last = await connection.wait(_run_row_by_row(connection.pgconn, text, encoding))
    value, unkept = (None, None) if first is None else _value_of(first, encoding, most_bytes)
    return Results((last.command_status or b"").decode(), last.command_tuples, value, unkept)


def _run_row_by_row(pgconn: PGconn, statement: bytes, encoding: str) -> PQGen[tuple[PGresult | None, PGresult]]:
    """The first rows, and the end."""
    # With parameters, be there none, libpq uses the extended protocol, where Postgres itself refuses more than one
    # statement; the simple protocol would let `commit; begin` through.
    pgconn.send_query_params(statement, None)
    if capabilities.has_stream_chunked():
        pgconn.set_chunked_rows_mode(_ROWS_AT_A_TIME)
    else:
        pgconn.set_single_row_mode()
    yield from send(pgconn)
    first: PGresult | None = None
    last: PGresult | None = None
    refusal: DatabaseError | None = None
    while (result := (yield from _next_result(pgconn, refusal))) is not None:
        # Where rows come in chunks, the last of them tells what the statement was, and not the end behind it.
        if last is None or result.command_status:
            last = result
        if result.status in _ROWS:
            first = first or result
            continue
        match pq.ExecStatus(result.status):
            case pq.ExecStatus.FATAL_ERROR:
                refusal = refusal or psycopg.errors.error_from_result(result, encoding=encoding)
            case pq.ExecStatus.COPY_IN | pq.ExecStatus.COPY_OUT | pq.ExecStatus.COPY_BOTH:
                raise psycopg.NotSupportedError("COPY FROM STDIN and COPY TO STDOUT need a client, and a job has none")
    if refusal is not None:
        raise refusal
    assert last is not None
    return first, last


def _next_result(pgconn: PGconn, refusal: DatabaseError | None) -> PQGen[PGresult | None]:
    try:
        result: PGresult | None = yield from fetch(pgconn)
    except DatabaseError:
        # The server's last word, said before the line was cut, tells more.
        if refusal is None:
            raise
        return None
    return result


def _encoding(connection: Connection) -> str:
    """What a job's text travels in. An encoding that Python does not know, or that is none, is taken for UTF-8."""
    try:
        encoding = connection.info.encoding
    except psycopg.NotSupportedError:
        return "utf-8"
    return "utf-8" if encoding == "ascii" else encoding


_BOOL, _VOID = 16, 2278
# Types whose text is JSON already.
_JSON_TYPES = {20, 21, 23, 114, 3802}


def _value_of(result: PGresult, encoding: str, most_bytes: int) -> tuple[Any, str | None]:
    """The first value of a row, and why it was not kept."""
    raw = result.get_value(0, 0) if result.nfields else None
    if raw is None or result.ftype(0) == _VOID:
        return None, None
    if len(raw) > most_bytes:
        return None, f"it has {len(raw):,} bytes, more than {most_bytes:,}"
    text = raw.decode(encoding, errors="replace")
    match result.ftype(0):
        case kind if kind == _BOOL:
            return text == "t", None
        case kind if kind in _JSON_TYPES:
            try:
                return json.loads(text), None
            except (ValueError, RecursionError) as error:
                # Postgres holds numbers and depths that Python does not.
                return None, str(error)
        case _:
            return text, None


async def execute_at_once(connection: Connection, statements: bytes, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """Runs several statements of our own in one round trip; the last row that came, empty where none did.

    The first that fails ends them all. Parameters must be texts, numbers, truths or None: the driver puts their values
    into the text, and the name of a type would be looked up in the job's search_path.
    """
    cursor = psycopg.AsyncClientCursor(connection)
    await cursor.execute(statements, parameters)
    row: tuple[Any, ...] = ()
    while True:
        if cursor.description is not None:
            row = await cursor.fetchone() or row
        if not cursor.nextset():
            return row


async def speak_utf8(connection: Connection) -> None:
    """Undoes another encoding that a job has set; it may be one that the driver does not know."""
    if connection.pgconn.parameter_status(b"client_encoding") != b"UTF8":
        await run_alone(connection, "set client_encoding to 'UTF8'", most_bytes=0)


def is_at_rest(connection: Connection) -> bool:
    """True where no statement is on its way and no transaction is open. Asks no server."""
    return connection.info.transaction_status is pq.TransactionStatus.IDLE


def in_transaction(connection: Connection) -> bool:
    """True while the session has a transaction open, also a failed one. Asks no server."""
    return connection.info.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)
