"""`pgcron-runner doctor`: does everything that workers need work from here, and what to do where it does not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import typer

from pgcron_runner.cli.options import AsJson, Dsn, examples
from pgcron_runner.cli.output import Styled, clean, plural, print_facts, print_json, span
from pgcron_runner.errors import PgcronError
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.statements import migrations
from pgcron_runner.store import catalog, inquiry
from pgcron_runner.store.inquiry import Server

if TYPE_CHECKING:
    from pgcron_runner.database import Connection, Database

EXAMPLES = examples("pgcron-runner doctor", "pgcron-runner doctor --json", "pgcron-runner doctor || page-somebody")

_OLDEST_SERVER = 140_000
_PATIENCE = 2.0
_MOST_WORKERS = 1000
_CLOCKS_AGREE = timedelta(seconds=2)
_LONG_TRANSACTION = timedelta(minutes=10)
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
# What a refused or failed connection is about, by a word of its sentence.
_ABOUT = {
    "session": ("pooler", "startup parameter"),
    "writable": ("standby", "read-only"),
    "version": ("unrecognized configuration parameter",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ok, warn or fail, and what to do about it."""

    check: str
    result: str
    words: str


def doctor(as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Check what workers need: the server, the schema, NOTIFY, clocks, zone data, rights, connections.

    Exit code 1 where something must be mended; warnings leave it 0. It changes nothing.
    """
    from pgcron_runner.database import Database, resolve_dsn

    findings = asyncio.run(_examine(Database(resolve_dsn(dsn))))
    if as_json:
        print_json(findings)
    else:
        print_facts([(f.check, Styled(f"{f.result:<5} {clean(f.words)}", _COLOURS[f.result])) for f in findings])
    if any(finding.result == "fail" for finding in findings):
        raise typer.Exit(1)


async def _examine(database: Database) -> list[Finding]:
    from pgcron_runner.database import DatabaseError, Purpose, explain

    try:
        connection = await database.connect(Purpose.ADMIN)
    except PgcronError as error:
        about = (check for check, words in _ABOUT.items() if any(word in str(error) for word in words))
        return [Finding(next(about, "connection"), "fail", str(error))]
    try:
        return await _examine_from(connection, database)
    except DatabaseError as error:
        raise explain(error) from error
    finally:
        await connection.close()


async def _examine_from(connection: Connection, database: Database) -> list[Finding]:
    server = await inquiry.read_server(connection)
    schema = await _schema(connection)
    findings = [
        Finding("connection", "ok", f"role {server.role}, database {server.database}"),
        _version(server),
        # Both were looked at when the session was opened, which is refused otherwise.
        Finding("session", "ok", "direct: no pooler that shares sessions is in between"),
        Finding("writable", "ok", "no standby, and not read-only"),
        schema,
        await _notify(connection, database),
        await _clock(connection),
    ]
    if schema.result != "fail":
        findings += [await _zone_data(connection), await _rights(connection, server)]
    return [*findings, _transactions(server), _connections(server)]


def _version(server: Server) -> Finding:
    if server.version_number < _OLDEST_SERVER:
        return Finding("version", "fail", f"PostgreSQL {server.version} is too old: 14 or newer is needed")
    return Finding("version", "ok", f"PostgreSQL {server.version}")


async def _schema(connection: Connection) -> Finding:
    from pgcron_runner.migrate import check_schema

    try:
        await check_schema(connection)
    except PgcronError as error:
        return Finding("schema", "fail", str(error))
    return Finding("schema", "ok", f"version {max(migration.version for migration in migrations())}")


async def _notify(connection: Connection, database: Database) -> Finding:
    """A notification from one session to another, as workers wake each other."""
    from pgcron_runner.database import Purpose

    try:
        listener = await database.connect(Purpose.LISTEN)
    except PgcronError as error:
        return Finding("notify", "fail", f"no second session can be opened: {error}")
    try:
        await listener.execute("listen pgcron_doctor")
        payload, sent = str(uuid4()), time.monotonic()
        await inquiry.notify_doctor(connection, payload)
        while (left := sent + _PATIENCE - time.monotonic()) > 0:
            async for notification in listener.notifies(timeout=left, stop_after=1):
                if notification.payload == payload:
                    return Finding("notify", "ok", f"a round trip took {span(_seconds(time.monotonic() - sent))}")
    finally:
        await listener.close()
    return Finding(
        "notify",
        "warn",
        f"nothing came within {_PATIENCE:g}s: workers find work only by looking (worker --poll). "
        "Is a pooler in between?",
    )


async def _clock(connection: Connection) -> Finding:
    """The server's clock against this host's, in the middle of the question and its answer."""
    before = datetime.now(UTC)
    there = await catalog.read_clock(connection)
    here = before + (datetime.now(UTC) - before) / 2
    ahead = there - here
    apart = f"the server is {span(abs(ahead))} {'ahead of' if ahead > timedelta(0) else 'behind'} this host"
    if abs(ahead) > _CLOCKS_AGREE:
        return Finding("clock", "warn", f"{apart}. Jobs go by the server's; let both keep time (chrony, ntpd)")
    return Finding("clock", "ok", apart)


async def _zone_data(connection: Connection) -> Finding:
    """Workers with other zone data than this host's would plan other times after a government's change of mind."""
    own = zone_data_version()
    workers = [w for w in await catalog.list_workers(connection, limit=_MOST_WORKERS) if w.state != "silent"]
    others = sorted({f"{worker.name} has {worker.zone_data}" for worker in workers if worker.zone_data != own})
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        words = f"this host has {own}, but {shown}. Upgrade the tzdata package (pip install -U tzdata) everywhere"
        return Finding("zone data", "warn", words)
    return Finding("zone data", "ok", f"{own} here, and on {plural(len(workers), 'living worker')}")


async def _rights(connection: Connection, server: Server) -> Finding:
    missing = await inquiry.list_missing_rights(connection)
    if missing:
        tables = sorted({table for table, _ in missing})
        lacking = "; ".join(f"{', '.join(r for t, r in missing if t == table)} on pgcron.{table}" for table in tables)
        return Finding(
            "rights", "fail", f"role {server.role} may not: {lacking}. Grant it, or use the role that migrated"
        )
    if not server.may_terminate:
        words = (
            f"role {server.role} may not call pg_terminate_backend: the locks of a dead worker stay until it times out"
        )
        return Finding("rights", "warn", words)
    return Finding("rights", "ok", f"role {server.role} may read and write jobs and runs, and end its own sessions")


def _transactions(server: Server) -> Finding:
    if server.oldest_age is None:
        return Finding("transactions", "ok", "none is open, as far as this role may see")
    program = server.oldest_application or "unnamed"
    who = f"pid {server.oldest_pid}, role {server.oldest_role}, {program}, {server.oldest_state}"
    words = f"the oldest has been open for {span(server.oldest_age)} ({who})"
    if server.oldest_age > _LONG_TRANSACTION:
        end = f"select pg_terminate_backend({server.oldest_pid})"
        return Finding(
            "transactions", "warn", f"{words}: it keeps vacuum from cleaning up. End it, if it is stuck: {end}"
        )
    return Finding("transactions", "ok", words)


def _connections(server: Server) -> Finding:
    free = server.connections - server.connections_used
    words = f"{server.connections_used} of {server.connections} in use"
    if free < max(10, server.connections // 10):
        return Finding(
            "connections", "warn", f"{words}: a worker needs 3, and one for each SQL job. Raise max_connections"
        )
    return Finding("connections", "ok", words)


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
