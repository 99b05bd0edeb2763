"""`pgcron-runner dev` as people start it: a server that stays, a worker that works, and an orderly end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import pgcron_runner
from pgcron_runner.embedded import start_persistent
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder for the server that its user can reach when we are root; whatever still serves it is ended."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "data"
        if (Path(folder) / "data").exists():
            start_persistent(Path(folder) / "data").stop("immediate")


@contextmanager
def dev(data: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The running command, its DSN, and what it has printed up to the end of its greeting."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PGCRON_TEST_")}
    package = str(Path(pgcron_runner.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-m", "pgcron_runner", "dev", "--data", str(data)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment | {"PYTHONPATH": package},
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = ""
            while "worker_started" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            found = re.search(r"export PGCRON_DSN='(.*)'", said)
            assert found, said
            yield process, found[1], said
        finally:
            process.kill()


def interrupt(process: subprocess.Popen[str]) -> str:
    """Ctrl-C; what it said after that. Its exit code is that of an orderly end."""
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def rows(dsn: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def is_stopped(data: Path) -> bool:
    """Whether no server serves this data."""
    return not (data / "postmaster.pid").exists()


def test_dev_runs_a_job_and_keeps_what_it_holds(data: Path) -> None:
    with dev(data) as (process, dsn, said):
        assert "pgcron-runner job add" in said
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "insert into pgcron.jobs (name, schedule, timezone, kind, command)"
                " values ('hello', '@every 1s', 'UTC', 'shell', 'echo hello')"
            )
        eventually(lambda: rows(dsn, "select 1 from pgcron.runs where status = 'succeeded'"), timeout=30)
        assert f"its data stays in {data}" in interrupt(process)
    assert is_stopped(data)

    with dev(data) as (process, dsn, _):
        before = rows(dsn, "select count(*) from pgcron.runs where output = E'hello\\n'")
        assert before[0] != (0,)
        assert rows(dsn, "select name from pgcron.jobs") == [("hello",)]
        interrupt(process)


def test_dev_leaves_a_server_running_that_it_found_running(data: Path) -> None:
    server = start_persistent(data)
    with dev(data) as (process, dsn, said):
        assert "running already" in said
        interrupt(process)
        assert rows(dsn, "select end_reason from pgcron.workers") == [("stopped",)]
    assert server.pid is not None
