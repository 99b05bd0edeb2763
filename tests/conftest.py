"""One temporary Postgres server for the whole run, and a database of its own for each test."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pgcron_runner.embedded import Programs, Server, find_programs, start_temporary
from tests.support.databases import Database, create_database, create_worker_role, new_database
from tests.support.folders import quick_folder
from tests.support.workers import WorkerProcess

_TEMPLATE = "pgcron_template"
_LIBC = ctypes.CDLL(None)
_PR_SET_CHILD_SUBREAPER = 36

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="session", autouse=True)
def _no_postgres_environment() -> Iterator[None]:
    """The developer's own PGHOST, PGSERVICE, PGCRON_DSN … must not reach a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("PG") and not name.startswith("PGCRON_TEST_"):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _orphans_go_to_init() -> Iterator[None]:
    """A guard that a test starts makes this process the parent of orphans, and nobody here reaps them after that test.

    A storm of forks that it has left would fill the host with zombies.
    """
    yield
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(scope="session")
def server(_no_postgres_environment: None) -> Iterator[Server]:
    """The run's server, on a Unix socket and 127.0.0.1. PGCRON_TEST_BIN names another version's programs."""
    settings = {
        "fsync": "off",
        "full_page_writes": "off",
        "max_connections": "200",
        "shared_buffers": "32MB",
        "max_prepared_transactions": "10",
    }
    if _has_module(find_programs(), "pg_stat_statements"):
        settings["shared_preload_libraries"] = "pg_stat_statements"
    with start_temporary(settings=settings, listen=True, folder=quick_folder()) as server:
        create_worker_role(server)
        yield server


@pytest.fixture
def empty_database(server: Server) -> Iterator[Database]:
    """A database without the pgcron schema."""
    with new_database(server) as database:
        yield database


@pytest.fixture
def database(server: Server, migrated_template: str) -> Iterator[Database]:
    """A database with the newest schema and nothing in it."""
    with new_database(server, template=migrated_template) as database:
        yield database


@pytest.fixture(scope="session")
def migrated_template(server: Server) -> str:
    """The name of the database that `database` copies. Never connect to it."""
    migrate = importlib.import_module("pgcron_runner.migrate")
    create_database(server, _TEMPLATE)
    migrate.migrate_database(server.dsn(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture
def start_worker(database: Database, tmp_path: Path) -> Iterator[StartWorker]:
    """Start worker processes on `database`: arguments as for the command. All end with the test."""
    numbers = itertools.count(1)
    with ExitStack() as started:

        def start(*arguments: str, dsn: str | None = None, name: str | None = None) -> WorkerProcess:
            worker = WorkerProcess(
                dsn or database.dsn, *arguments, folder=tmp_path, name=name or f"worker-{next(numbers)}"
            )
            return started.enter_context(worker)

        yield start


def _has_module(programs: Programs, name: str) -> bool:
    return any(programs.bin_dir.parent.glob(f"lib/**/{name}.*"))
