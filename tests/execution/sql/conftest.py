"""A database with a table to work on, and runners that leave no session behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.execution.sql import SqlRunner
from tests.execution.sql.stage import WORK, MakeRunner
from tests.execution.tasks import SESSION_NAME, session_pids
from tests.statements.builders import WORKER
from tests.support.databases import Database
from tests.support.waiting import eventually_async


@pytest.fixture
def database(database: Database) -> Database:
    database.execute(WORK)
    return database


@pytest.fixture
async def make_runner(database: Database) -> AsyncIterator[MakeRunner]:
    """Makes runners; after they are closed there is no session left."""
    made: list[SqlRunner] = []

    def make(dsn: str = database.dsn, *, sessions_: int = 2, **options: Any) -> SqlRunner:
        target = sessions.Database(dsn, application_name=SESSION_NAME)
        made.append(SqlRunner(target, WORKER, sessions=sessions_, **options))
        return made[-1]

    yield make
    for runner in made:
        await runner.close()

    async def none_is_left() -> bool:
        return not session_pids(database)

    # The loop goes on meanwhile: what is still in use is closed when it is given back.
    await eventually_async(none_is_left, 60, message="no session is left")


@pytest.fixture
def runner(make_runner: MakeRunner) -> SqlRunner:
    return make_runner()
