"""Looking again and again at a database that may go away and come back. It must not know how what it sees is drawn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from pgcron_runner.cli.output import clean, span
from pgcron_runner.errors import PgcronError
from pgcron_runner.store import catalog_top
from pgcron_runner.store.catalog_top import Snapshot

if TYPE_CHECKING:
    from pgcron_runner.database import Connection, Database

# More than a screen has rows.
_LIMIT = 100
# A session that says nothing for so long is said to, and then given up.
_SILENT, _GIVEN_UP = 2.0, 10.0


class Watch:
    """The last snapshot, and what is in the way of a newer one. Its session comes back."""

    def __init__(self, database: Database) -> None:
        self.snapshot: Snapshot | None = None
        self.place = ""
        self._database = database
        self._connection: Connection | None = None
        self._refusal: PgcronError | None = None
        self._looking: asyncio.Task[None] | None = None
        self._asked = self._seen = 0.0

    async def look(self, patience: float) -> None:
        """Asks for a new snapshot and waits so long for it; where it takes longer, the next call goes on waiting."""
        if self._looking is None:
            self._asked = _now()
            self._looking = asyncio.create_task(self._look())
        elif _now() - self._asked > _GIVEN_UP:
            await self._disconnect()  # which ends the statement too
        done, _ = await asyncio.wait({self._looking}, timeout=patience)
        for task in done:
            self._looking = None
            task.result()

    async def begin(self) -> None:
        """The first look. Raises where Postgres refuses it."""
        await self._look()
        if self._refusal is not None:
            raise self._refusal

    def trouble(self) -> str:
        """Why the snapshot is an old one; empty where it is not."""
        age = span(timedelta(seconds=max(round(_now() - self._seen), 1)))
        if self._looking is not None and _now() - self._asked > _SILENT and self._refusal is None:
            return f"Postgres does not answer; this is {age} old."
        if self._refusal is not None:
            return f"No connection, trying again; this is {age} old. {clean(str(self._refusal))}"
        return ""

    async def close(self) -> None:
        """Ends the session, also in the middle of a statement."""
        await self._disconnect()
        if self._looking is not None:
            # The driver would wait for the end of a statement that is cancelled; it was cut off instead.
            _, pending = await asyncio.wait({self._looking}, timeout=1)
            for task in pending:
                task.cancel()
            self._looking = None

    async def _look(self) -> None:
        from pgcron_runner.database import DatabaseError, explain

        try:
            self.snapshot = await self._read()
            self._refusal, self._seen = None, _now()
        except DatabaseError as error:
            self._refusal = explain(error)
            await self._disconnect()
        except PgcronError as error:
            self._refusal = error
            await self._disconnect()

    async def _read(self) -> Snapshot:
        from pgcron_runner.database import Purpose
        from pgcron_runner.migrate import check_schema

        if self._connection is None:
            # A record session has limits of time, and no plan that an empty table has misled.
            self._connection = await self._database.connect(Purpose.RECORD)
            await check_schema(self._connection)
            self.place = _place(self._connection)
        return await catalog_top.read_snapshot(self._connection, limit=_LIMIT)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _place(connection: Connection) -> str:
    """`app on db.example.org`."""
    host = connection.info.host
    return f"{connection.info.dbname} on {host if host and not host.startswith('/') else 'this host'}"
