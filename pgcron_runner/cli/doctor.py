"""`pgcron-runner doctor`: does everything that workers need work from here, and what to do where it does not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import typer

from pgcron_runner.cli import findings
from pgcron_runner.cli.findings import Finding
from pgcron_runner.cli.options import AsJson, Dsn, examples
from pgcron_runner.cli.output import Cell, Styled, print_facts, print_json, span
from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.statements import migrations
from pgcron_runner.store import catalog, channels, inquiry
from pgcron_runner.store.channels import ListedChannel

if TYPE_CHECKING:
    from pgcron_runner.database import Connection, Database

EXAMPLES = examples("pgcron-runner doctor", "pgcron-runner doctor --json", "pgcron-runner doctor || page-somebody")

_PATIENCE = 2.0
_MOST_WORKERS = 1000
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
# What a refused or failed connection is about, by a word of its sentence.
_ABOUT = {
    "connections": ("max_connections", "CONNECTION LIMIT", "session to give"),
    "session": ("pooler", "startup parameter"),
    "writable": ("standby", "read-only"),
    "version": ('parameter "client_connection_check_interval"', 'parameter "idle_session_timeout"'),
}


def doctor(as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Check what workers need: the server, the schema, NOTIFY, clocks, zone data, rights, connections.

    Exit code 1 where something must be mended; warnings leave it 0. It changes nothing.
    """
    from pgcron_runner.database import Database, resolve_dsn

    found = asyncio.run(_examine(Database(resolve_dsn(dsn))))
    if as_json:
        print_json(found)
    else:
        print_facts(
            [(f.check, Styled(f.result, _COLOURS[f.result]), Styled(f.words, _COLOURS[f.result])) for f in found]
        )
    if any(finding.result == "fail" for finding in found):
        raise typer.Exit(1)


def _row(finding: Finding) -> tuple[Cell, ...]:
    colour = _COLOURS[finding.result]
    return finding.check, Styled(finding.result, colour), Styled(finding.words, colour)


async def _examine(database: Database) -> list[Finding]:
    from pgcron_runner.database import DatabaseError, Purpose, explain

    try:
        connection = await database.connect(Purpose.ADMIN)
    except PgcronError as error:
        # It does not wait, as a worker would.
        told = str(error).replace("; waiting for one that can write", ": name the one that can write")
        about = (check for check, words in _ABOUT.items() if any(word in told for word in words))
        return [Finding(next(about, "connection"), "fail", told)]
    try:
        return await _examine_from(connection, database)
    except DatabaseError as error:
        raise explain(error) from error
    finally:
        await connection.close()


async def _examine_from(connection: Connection, database: Database) -> list[Finding]:
    server = await inquiry.read_server(connection)
    schema = await _schema(connection)
    checked = [
        Finding("connection", "ok", f"role {server.role}, database {server.database}"),
        findings.of_version(server),
        findings.of_session(is_pooled=connection.server_pid != connection.info.backend_pid),
        # Looked at when the session was opened, which is refused otherwise.
        Finding("writable", "ok", "no standby, and not read-only"),
        schema,
        await _notify(connection, database),
        findings.of_clock(await _ahead(connection)),
    ]
    if schema.result != "fail":
        listed = await catalog.list_workers(connection, limit=_MOST_WORKERS)
        workers = [worker for worker in listed if worker.state != "silent"]
        missing = await inquiry.list_missing_rights(connection)
        checked += [
            findings.of_workers(workers),
            findings.of_zone_data(zone_data_version(), workers),
            findings.of_rights(server, missing),
        ]
        if not missing:
            found = await channels.list_channels(connection)
            checked.append(findings.of_alerts(await catalog.read_health(connection), _unusable(found)))
    return [*checked, findings.of_transactions(server), findings.of_connections(server)]


def _unusable(found: Sequence[ListedChannel]) -> list[str]:
    """What is wrong with channels that were written by hand: `channel add` refuses it."""
    from pgcron_runner.notify.targets import check_target
    from pgcron_runner.notify.templates import check_template

    told = []
    for channel in found:
        try:
            if channel.enabled:
                check_target(channel.target, os.environ)
            if channel.enabled and channel.template is not None:
                check_template(channel.template)
        except InvalidInput as error:
            told.append(f"channel {channel.name}: its {error}")
    return told


async def _schema(connection: Connection) -> Finding:
    from pgcron_runner.database import DatabaseError, explain
    from pgcron_runner.migrate import check_schema

    try:
        await check_schema(connection)
    except PgcronError as error:
        return Finding("schema", "fail", str(error))
    except DatabaseError as error:
        return Finding("schema", "fail", str(explain(error)))
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
                    took = timedelta(seconds=time.monotonic() - sent)
                    return Finding("notify", "ok", f"a round trip took {span(took)}")
    finally:
        await listener.close()
    return Finding(
        "notify",
        "warn",
        f"nothing came within {_PATIENCE:g}s: workers find work only by looking (worker --poll). "
        "Is the line very slow, or does something in between drop notifications?",
    )


async def _ahead(connection: Connection) -> timedelta:
    """The server's clock less this host's, in the middle of the question and its answer."""
    before = datetime.now(UTC)
    there = await catalog.read_clock(connection)
    return there - (before + (datetime.now(UTC) - before) / 2)
