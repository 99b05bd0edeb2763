"""Sessions as workers open them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Connection, Purpose
from tests.support.databases import Database

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
async def connect(database: Database) -> AsyncIterator[Connect]:
    """Opens sessions on the test's database: `await connect(Purpose.RECORD)`. All end with the test."""
    async with AsyncExitStack() as opened:

        async def connect(
            purpose: Purpose = Purpose.CONTROL, *, dsn: str | None = None, name: str = "pgcron-runner"
        ) -> Connection:
            connection = await sessions.Database(dsn or database.dsn, application_name=name).connect(purpose)
            opened.push_async_callback(connection.close)
            return connection

        yield connect


@pytest.fixture
async def control(connect: Connect) -> Connection:
    """A control session."""
    return await connect(Purpose.CONTROL)


@pytest.fixture
async def other(connect: Connect) -> Connection:
    """The control session of another worker."""
    return await connect(Purpose.CONTROL)


@pytest.fixture
async def record(connect: Connect) -> Connection:
    """A record session."""
    return await connect(Purpose.RECORD)
