"""A real PgBouncer in front of a test's server; those tests are skipped where it is not installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from pgcron_runner.embedded.host import as_server_user, environment, give_to_server_user
from tests.support.databases import Database
from tests.support.waiting import eventually

PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="needs PgBouncer (Debian: apt install pgbouncer)")

_CONFIG = """\
[databases]
* = host=127.0.0.1 port={server.port} user={server.superuser} password={server.password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
"""
# Else PgBouncer refuses every client with settings of its own; people add this line for that, and they are lost.
_FORGET_SETTINGS = "ignore_startup_parameters = options\n"

Mode = Literal["session", "transaction", "statement"]


@contextmanager
def pgbouncer(database: Database, mode: Mode, *, forgets_settings: bool = True, size: int = 20) -> Iterator[str]:
    """The DSN of the database by way of a pooler, which ends with the block."""
    assert PROGRAM is not None
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="pgcron-pooler-") as name:
        folder = Path(name)
        config = folder / "pgbouncer.ini"
        text = _CONFIG.format(server=database.server, port=port, mode=mode, size=size, folder=folder)
        config.write_text(text + (_FORGET_SETTINGS if forgets_settings else ""))
        for path in (folder, config):
            give_to_server_user(path)
        with subprocess.Popen(
            [PROGRAM, "-q", str(config)], cwd="/", env=environment(), start_new_session=True, **as_server_user()
        ) as pooler:
            try:
                dsn = f"host=127.0.0.1 port={port} dbname={database.name} user={database.server.superuser}"
                eventually(lambda: _answers(dsn), message="PgBouncer takes connections")
                yield dsn
            finally:
                pooler.kill()


def _answers(dsn: str) -> bool:
    with suppress(psycopg.OperationalError):
        psycopg.connect(dsn).close()
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
