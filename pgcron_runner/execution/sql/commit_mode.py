"""How the work of a SQL job is committed and recorded: what the modes have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from pgcron_runner.database import Connection, DatabaseError
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome

RETRY_PAUSE = 0.1
LOCK_IS_HELD = "another transaction of this job is still running; nothing was done"


class CommitMode(Protocol):
    """One way to run a job to its outcome. `committing`: COMMIT was sent, or is about to be."""

    committing: bool

    async def run(self, connection: Connection) -> Outcome:
        """All of it, on a clean session. Raises DatabaseError."""

    def refused(self, error: DatabaseError) -> Outcome:
        """The outcome where `run` has raised, and COMMIT has an answer."""

    async def settle(self) -> Outcome:
        """The outcome where COMMIT got no answer: waits until it is known."""


async def begin_with_lock(
    connection: Connection, begin: Callable[[], Awaitable[bool]], stop: Stop, *, patience: float
) -> bool:
    """Calls `begin` until it says that there is nothing more to wait for.

    False, with nothing open, after `patience` seconds, or where the run is to stop.
    """
    now = asyncio.get_running_loop().time
    end = now() + patience
    while not await begin():
        await connection.execute("rollback")
        late = now() >= end
        if late or await stop.is_requested_within(RETRY_PAUSE):
            return False
    return True
