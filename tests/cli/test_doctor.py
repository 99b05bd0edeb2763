"""`pgcron-runner doctor` on a healthy server, and on servers, lines and hosts that really have what it warns of."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgcron_runner import __version__
from pgcron_runner.cli import doctor, findings
from pgcron_runner.embedded import Server
from pgcron_runner.embedded.host import give_to_server_user
from pgcron_runner.store.inquiry import Server as Asked
from tests.cli.conftest import Cli
from tests.cli.test_watch import undelivered
from tests.statements.builders import add_job, register, text_of
from tests.statements.test_incidents import add_channel
from tests.support.databases import Database
from tests.support.folders import quick_folder
from tests.support.pooler import Mode, needs_pgbouncer, pgbouncer
from tests.support.proxy import Proxy

SHIM = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
LONG_AGO, NOT_YET = datetime(2001, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
GRANTS = (
    "grant usage on schema pgcron to {role}",
    "grant select, insert, update, delete on all tables in schema pgcron to {role}",
    "grant execute on all functions in schema pgcron to {role}",
)


def results(cli: Cli, *arguments: str) -> dict[str, tuple[str, str]]:
    return {f["check"]: (f["result"], f["words"]) for f in cli("doctor", *arguments, "--json").json}


def not_ok(found: dict[str, tuple[str, str]]) -> list[str]:
    return [check for check, (result, _) in found.items() if result != "ok"]


def administer(database: Database, statement: str, **names: sql.Composable) -> None:
    database.execute(text_of(sql.SQL(statement).format(**names)))


@contextmanager
def role(database: Database, *, limit: int = -1, granted: bool = True) -> Iterator[str]:
    """The DSN of an ordinary role, `r_` and the name of the database, which is dropped with the block."""
    name = f"r_{database.name}"
    identifier = sql.Identifier(name)
    administer(database, "create role {role} login connection limit {limit}", role=identifier, limit=sql.Literal(limit))
    for grant in GRANTS if granted else ():
        administer(database, grant, role=identifier)
    try:
        yield database.server.dsn(database.name, name)
    finally:
        administer(database, "drop owned by {role}; drop role {role}", role=identifier)


def test_a_healthy_server(cli: Cli, database: Database) -> None:
    result = cli("doctor")
    assert (result.code, result.err) == (0, "")
    found = results(cli)
    assert not_ok(found) == [], found
    assert list(found) == [
        "connection", "version", "session", "writable", "schema", "notify", "clock", "workers", "zone data", "rights",
        "alerts", "transactions", "connections",
    ]  # fmt: skip
    assert found["notify"][1].startswith("a round trip took ")
    assert found["session"][1] == "direct, no pooler in between"
    version = database.value("show server_version")
    python = platform.python_version()
    assert found["version"][1] == f"PostgreSQL {version}; pgcron-runner {__version__} on Python {python}"


def test_an_ordinary_role_with_its_rights_is_healthy_too(offline: Cli, database: Database) -> None:
    with role(database) as dsn:
        found = results(offline, "--dsn", dsn)
    assert not_ok(found) == [], found
    assert found["transactions"][1] == "none is open, as far as this role may see"


def test_where_nobody_would_be_told(cli: Cli, database: Database) -> None:
    add_job(database)
    assert results(cli)["alerts"][0] == "warn"
    assert "nobody is told of jobs that fail" in results(cli)["alerts"][1]
    add_channel(database)
    assert results(cli)["alerts"] == ("ok", "1 channel; try each: pgcron-runner channel test")
    undelivered(database)
    assert results(cli)["alerts"][1].startswith("1 message is not taken by the channel.")


def test_channels_that_were_written_by_hand_and_can_send_nothing(cli: Cli, database: Database) -> None:
    database.execute(
        """insert into pgcron.channels (name, target, template) values
           ('good', 'env:OPS_URL', null), ('typo', 'slakc://T0KEN/B/C', null),
           ('text', 'env:OPS_URL', '{{ nothing }}')"""
    )
    result, words = results(cli)["alerts"]
    assert result == "warn"
    assert words.startswith("channel text: its template: ")
    assert "channel typo: its target: 'slakc://…' is not a scheme that Apprise or this program knows" in words
    assert "T0KEN" not in words
    assert "good" not in words
    assert words.endswith("Remove it and add it again: pgcron-runner channel add")
    database.execute("update pgcron.channels set enabled = name = 'good'")
    assert results(cli)["alerts"] == ("ok", "1 channel; try each: pgcron-runner channel test")


# ------------------------------------------------------------------------------------------- other workers


def test_workers_with_other_zone_data_or_another_version(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "zone_data_version", lambda: "2026b")
    alive: dict[str, Any] = {"version": __version__, "heartbeat_at": NOT_YET}
    register(database, name="new", zone_data="2026b", **alive)
    register(database, name="old", zone_data="2019a", **alive)
    register(database, name="silent", zone_data="2001a", version="0", heartbeat_at=LONG_AGO)
    register(database, name="gone", zone_data="2001a", version="0", ended_at=LONG_AGO)
    found = results(cli)
    assert not_ok(found) == ["zone data"]
    assert found["zone data"][1].startswith("the newest is 2026b, but old has 2019a. Upgrade it there")
    assert cli("doctor").code == 0
    register(database, name="newest", zone_data="2027a", **alive | {"version": "99"})
    found = results(cli)
    assert not_ok(found) == ["workers", "zone data"]
    assert found["workers"][1].startswith(f"here is {__version__}, but newest has 99. After an upgrade restart")
    assert "the newest is 2027a, but this host has 2026b, " in found["zone data"][1]
    for each in ("new has 2026b", "old has 2019a"):
        assert each in found["zone data"][1]


# ------------------------------------------------------------------------------------------- transactions


def test_a_transaction_that_is_open_for_long_is_named_and_can_be_ended_as_it_says(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "_LONG_TRANSACTION", timedelta(0))
    with closing(psycopg.connect(database.worker_dsn, application_name="report-tool")) as forgotten:
        forgotten.execute("select 1")
        result, words = results(cli)["transactions"]
        pid = forgotten.info.backend_pid
        assert result == "warn"
        assert f"(pid {pid}, role worker, report-tool, idle in transaction)" in words
        assert words.endswith(f"If it is stuck, end it: select pg_terminate_backend({pid})")
        assert cli("doctor").code == 0
        database.execute("select pg_terminate_backend(%s, 5000)", (pid,))
        assert results(cli)["transactions"][0] == "ok"


def test_a_short_transaction_is_no_matter(cli: Cli, database: Database) -> None:
    with psycopg.connect(database.dsn) as open_now:
        open_now.execute("select 1")
        result, words = results(cli)["transactions"]
    assert (result, "the oldest has been open for" in words) == ("ok", True)


def test_a_forgotten_prepared_transaction_is_named(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "_LONG_TRANSACTION", timedelta(0))
    with psycopg.connect(database.dsn, autocommit=True) as other:
        for statement in ("begin", "create table t ()", "prepare transaction 'transfer-7'"):
            other.execute(statement)
    result, words = results(cli)["transactions"]
    assert (result, "(role postgres, transfer-7, prepared)" in words) == ("warn", True)
    assert words.endswith("rollback prepared 'transfer-7'")
    database.execute("rollback prepared 'transfer-7'")


# ------------------------------------------------------------------------------------------- clock and line


@pytest.mark.skipif(SHIM is None, reason="needs libfaketime (Debian: apt install faketime)")
@pytest.mark.parametrize(("offset", "words"), [("+1h", "behind this host"), ("-1h", "ahead of this host")])
def test_a_host_whose_clock_is_wrong(offset: str, words: str, database: Database) -> None:
    clock = {"LD_PRELOAD": str(SHIM), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    command = [sys.executable, "-m", "pgcron_runner", "doctor", "--json", "--dsn", database.dsn]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | clock)
    assert done.returncode == 0, done.stderr
    found = {f["check"]: f for f in json.loads(done.stdout)}
    assert found["clock"]["result"] == "warn"
    assert f"h {words}. Jobs go by the server's; let both keep time" in found["clock"]["words"]


def test_a_line_so_slow_that_notifications_come_too_late(
    offline: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE", 0.05)
    with Proxy(("127.0.0.1", database.server.port)) as proxy:
        proxy.slow_down(0.06)
        found = results(offline, "--dsn", database.dsn_through(proxy.port))
    assert not_ok(found) == ["notify"]
    assert found["notify"][1].startswith("nothing came within 0.05s: workers find work only by looking (worker --poll)")


# ------------------------------------------------------------------------------------------- connections


def test_a_role_with_few_connections_left(offline: Cli, database: Database) -> None:
    with role(database, limit=8) as dsn:
        found = results(offline, "--dsn", dsn)
    name = f"r_{database.name}"
    assert not_ok(found) == ["connections"]
    assert found["connections"] == (
        "warn",
        f"1 of role {name}'s 8 in use: a worker needs 3, and one for each SQL job. "
        f"alter role {name} connection limit 28",
    )


def test_a_role_with_one_connection_cannot_listen_beside_it(offline: Cli, database: Database) -> None:
    with role(database, limit=1) as dsn:
        result = offline("doctor", "--dsn", dsn)
        found = results(offline, "--dsn", dsn)
    assert result.code == 1
    assert not_ok(found) == ["notify", "connections"]
    assert found["notify"][1].startswith("no second session can be opened: The CONNECTION LIMIT of the role")


def test_a_role_without_connections_left(offline: Cli, database: Database) -> None:
    with role(database, limit=1) as dsn, psycopg.connect(dsn):
        [(check, (result, words))] = results(offline, "--dsn", dsn).items()
    assert (check, result) == ("connections", "fail")
    assert words.startswith("The CONNECTION LIMIT of the role or the database is used up: ")


def test_a_database_with_few_connections_left(offline: Cli, database: Database) -> None:
    administer(database, "alter database {name} connection limit 9", name=sql.Identifier(database.name))
    with role(database) as dsn:
        found = results(offline, "--dsn", dsn)
    assert not_ok(found) == ["connections"]
    # This one, and the test's own.
    assert found["connections"][1].startswith(f"2 of database {database.name}'s 9 in use: ")
    assert found["connections"][1].endswith(f"alter database {database.name} connection limit 29")


def asked(**facts: Any) -> Asked:
    usual: dict[str, Any] = {
        "version_number": 180_001, "version": "18.1", "role": "r", "database": "d", "now": datetime.now(UTC),
        "connections": 100, "connections_used": 10, "role_limit": -1, "role_used": 9, "database_limit": -1,
        "database_used": 9, "may_terminate": True, "oldest_pid": None, "oldest_role": None, "oldest_application": None,
        "oldest_state": None, "oldest_age": None,
    }  # fmt: skip
    return Asked(**usual | facts)


@pytest.mark.parametrize(
    ("facts", "result", "words"),
    [
        ({}, "ok", "10 of the server's 100 in use"),
        ({"connections_used": 90}, "ok", "90 of the server's 100 in use"),
        (
            {"connections_used": 91},
            "warn",
            "91 of the server's 100 in use: a worker needs 3, and one for each SQL job.",
        ),
        ({"role_limit": 30, "role_used": 1}, "ok", "1 of role r's 30 in use"),
        ({"role": "My Role", "role_limit": 3}, "warn", 'alter role "My Role" connection limit 23'),
    ],
)
def test_the_nearest_limit_counts(facts: dict[str, Any], result: str, words: str) -> None:
    found = findings.of_connections(asked(**facts))
    assert (found.result, words in found.words) == (result, True), found.words


def test_a_server_that_is_too_old() -> None:
    found = findings.of_version(asked(version_number=130_021, version="13.21"))
    assert (found.result, found.words.endswith(": PostgreSQL 14 or newer is needed")) == ("fail", True)


# ------------------------------------------------------------------------------------------- rights


def test_a_role_without_rights_is_told_how_to_get_them(offline: Cli, database: Database) -> None:
    with role(database, granted=False) as dsn:
        name = f"r_{database.name}"
        assert "permission denied for schema pgcron" in results(offline, "--dsn", dsn)["schema"][1]
        for grant in (GRANTS[0], "grant select on all tables in schema pgcron to {role}"):
            administer(database, grant, role=sql.Identifier(name))
        assert offline("doctor", "--dsn", dsn).code == 1
        result, words = results(offline, "--dsn", dsn)["rights"]
        assert result == "fail"
        lacking, _, advice = words.partition("As its owner: ")
        assert lacking.startswith(f"role {name} may not delete, insert, update on ")
        assert {"jobs", "runs", "workers"} <= set(lacking.replace(";", ",").split(", "))
        assert "; update on channels, queues; execute " in lacking
        for statement in advice.split("; "):
            administer(database, statement)
        assert not_ok(results(offline, "--dsn", dsn)) == []


def test_a_role_that_may_end_no_sessions(offline: Cli, database: Database) -> None:
    # Functions of the system, too, are a database's own.
    database.execute("revoke execute on function pg_terminate_backend(int, bigint) from public")
    with role(database) as dsn:
        found = results(offline, "--dsn", dsn)
    assert not_ok(found) == ["rights"]
    assert found["rights"][0] == "warn"
    assert "the locks of a dead worker stay until it times out" in found["rights"][1]


# ------------------------------------------------------------------------------------------- the wrong server


@needs_pgbouncer
@pytest.mark.parametrize("forgets_settings", [True, False])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_lends_sessions(mode: Mode, forgets_settings: bool, offline: Cli, database: Database) -> None:
    with pgbouncer(database, mode, forgets_settings=forgets_settings) as dsn:
        result = offline("doctor", "--dsn", dsn)
    assert result.code == 1
    assert result.out.startswith("session  fail  A connection pooler in transaction or statement mode is in between")


@needs_pgbouncer
def test_a_pooler_that_keeps_sessions_apart(offline: Cli, database: Database) -> None:
    with pgbouncer(database, "session") as dsn:
        found = results(offline, "--dsn", dsn)
    assert not_ok(found) == [], found
    assert found["session"][1] == "by way of a pooler, which keeps it for this client alone"


@pytest.mark.slow
def test_a_standby(offline: Cli, database: Database) -> None:
    with standby_of(database.server) as standby:
        result = offline("doctor", "--dsn", standby.dsn(database.name))
    assert (result.code, result.out.split()[:2]) == (1, ["writable", "fail"])
    assert "This Postgres is a standby or read-only: name the one that can write" in result.out


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    """A real one, that follows."""
    with tempfile.TemporaryDirectory(prefix="pgcron-standby-", dir=quick_folder()) as name:
        data, sockets = Path(name) / "data", Path(name) / "s"
        sockets.mkdir()
        for folder in (Path(name), sockets):
            give_to_server_user(folder)
        where = ("-h", str(primary.socket_dir), "-p", str(primary.port), "-U", primary.superuser)
        primary.run("pg_basebackup", "-D", str(data), "-R", "-c", "fast", "-X", "stream", "--no-sync", *where)
        standby = Server(data, sockets, primary.port, primary.bin_dir, Path(name) / "standby.log")
        standby.start()
        try:
            yield standby
        finally:
            standby.stop("immediate")


def test_a_server_that_cannot_write(offline: Cli, database: Database) -> None:
    name = sql.Identifier(database.name)
    administer(database, "alter database {name} set default_transaction_read_only = on", name=name)
    result = offline("doctor", "--dsn", database.dsn)
    assert (result.code, result.out.split()[:2]) == (1, ["writable", "fail"])
    assert "standby or read-only" in result.out


def test_no_schema_or_one_that_is_too_new(offline: Cli, empty_database: Database, database: Database) -> None:
    result = offline("doctor", "--dsn", empty_database.dsn)
    assert result.code == 1
    assert "fail  This database has no pgcron schema yet. Run: pgcron-runner migrate" in result.out
    database.execute("insert into pgcron.schema_migrations (version, name, breaking) values (9999, 'x', true)")
    result = offline("doctor", "--dsn", database.dsn)
    assert result.code == 1
    assert "fail  The database has schema version 9999, and this pgcron-runner knows versions up to" in result.out


def test_no_server_no_database_and_no_such_role(offline: Cli, database: Database) -> None:
    result = offline("doctor")
    assert result.code == 1
    assert result.out.startswith("connection  fail  Postgres cannot be reached")
    assert os.environ["PGHOST"] == "/nonexistent"
    for dsn, words in (
        (database.server.dsn("nowhere"), "There is no such database"),
        (database.server.dsn(database.name, "nobody_here"), "Postgres refuses this role"),
    ):
        [(check, (outcome, told))] = results(offline, "--dsn", dsn).items()
        assert (check, outcome, words in told) == ("connection", "fail", True)
