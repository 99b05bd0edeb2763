"""What every fault test stands on: a database whose jobs write down the truth themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgcron_runner.embedded import Server, start_temporary
from pgcron_runner.migrate import migrate_database
from tests.faults.stage import Stage
from tests.support.databases import Database, create_worker_role, new_database
from tests.support.folders import quick_folder


@pytest.fixture
def stage(database: Database, tmp_path: Path) -> Iterator[Stage]:
    with Stage(database, tmp_path) as stage:
        yield stage


@pytest.fixture(scope="module")
def own_server(_no_postgres_environment: None) -> Iterator[Server]:
    """A server that may be stopped and killed: nobody else's."""
    with start_temporary(settings={"fsync": "off"}, listen=True, folder=quick_folder()) as server:
        create_worker_role(server)
        yield server


@pytest.fixture
def own_stage(own_server: Server, tmp_path: Path) -> Iterator[Stage]:
    """A stage on that server."""
    with new_database(own_server) as database:
        migrate_database(database.dsn)
        with Stage(database, tmp_path) as stage:
            yield stage
