"""A guard for each test, and a word to know its processes by."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from pgcron_runner.execution.processes import Guard


@pytest.fixture
def marker() -> str:
    # sleep takes several numbers and adds them up.
    return f"0.{uuid.uuid4().int}"


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard.start()
    yield guard
    await guard.close()
