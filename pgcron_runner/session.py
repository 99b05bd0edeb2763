"""Sessions that come back: who uses one waits until it is there. It must not know what is said on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from pgcron_runner.database import Connection, Database, DatabaseError, Purpose, explain, is_at_rest, is_connection_lost
from pgcron_runner.errors import DatabaseRefused, DatabaseUnavailable, PgcronError
from pgcron_runner.logs import get_logger

log = get_logger(__name__)


class Session:
    """One session that comes back: whoever uses it waits until it is there; one user at a time.

    `on_connect` runs on each new connection before anyone else may use it. `patient`: waits for the end of a refusal as
    well, which may be an administrator's passing mistake; else the first connect raises it.
    """

    def __init__(
        self,
        database: Database,
        purpose: Purpose,
        *,
        on_connect: Callable[[Connection], Awaitable[None]] | None = None,
        patient: bool = True,
        availability: Availability | None = None,
    ) -> None:
        self._availability = availability or Availability()
        self._database = database
        self._purpose = purpose
        self._on_connect = on_connect
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._patient = patient

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """The connection, alone. A lost one raises DatabaseUnavailable here and is opened anew at the next use."""
        async with self._lock:
            connection = self._connection or await self._reconnect()
            try:
                yield connection
            except DatabaseError as error:
                if not is_connection_lost(connection, error):
                    raise
                await self._drop(str(explain(error)))
                raise explain(error) from error
            except asyncio.CancelledError:
                # Cancelled in the middle of a statement: what the session holds now is not known.
                if not is_at_rest(connection):
                    await self._drop("interrupted")
                raise

    async def connect_once(self) -> None:
        """Opens the session without waiting for better times: the first connect of a program. Raises as `connect`."""
        async with self._lock:
            if self._connection is None:
                self._connection = await self._open()

    async def close(self) -> None:
        """Ends the session. A later use opens a new one."""
        async with self._lock:
            await self._drop(None)

    async def _reconnect(self) -> Connection:
        retrying = AsyncRetrying(
            # Well inside a lease: who comes back in time keeps its runs.
            wait=wait_random_exponential(multiplier=0.1, max=min(5.0, self._database.lease.total_seconds() / 6)),
            retry=retry_if_exception_type(
                (DatabaseUnavailable, DatabaseRefused) if self._patient else DatabaseUnavailable
            ),
        )
        async for attempt in retrying:
            with attempt:
                try:
                    self._connection = await self._open()
                except PgcronError as error:
                    if self._patient or isinstance(error, DatabaseUnavailable):
                        self._availability.away(self, str(error))
                    raise
        self._availability.back(self)
        assert self._connection is not None
        return self._connection

    async def _open(self) -> Connection:
        connection = await self._database.connect(self._purpose)
        try:
            if self._on_connect is not None:
                await self._on_connect(connection)
        except DatabaseError as error:
            await connection.close()
            raise explain(error) from error
        except BaseException:
            await connection.close()
            raise
        self._patient = True
        return connection

    async def _drop(self, why: str | None) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if why is not None:
            log.warning(
                "session_lost", session=self._purpose.value, error=why, consequence="it is opened again at once"
            )
        with suppress(DatabaseError):
            await connection.close()


class Availability:
    """What has been said of the present outage: each sentence once, however many sessions meet it; its end once."""

    def __init__(self) -> None:
        self._away: set[Session] = set()
        self._said: set[str] = set()
        self._since = 0.0

    def away(self, session: Session, sentence: str) -> None:
        if not self._away:
            self._since = time.monotonic()
        self._away.add(session)
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning("database_away", error=sentence, consequence="waiting; nothing new starts")

    def back(self, session: Session) -> None:
        if session not in self._away:
            return
        self._away.discard(session)
        if not self._away:
            self._said.clear()
            log.info("database_back", after_s=round(time.monotonic() - self._since, 1))
