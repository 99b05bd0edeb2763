"""The sessions that SQL jobs run on: kept clean for the next job, and cancelled where a job must stop.

It must not know what runs on them.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import suppress

from pgcron_runner.clock import boottime
from pgcron_runner.database import Connection, Database, DatabaseError, Purpose, in_transaction
from pgcron_runner.errors import PgcronError
from pgcron_runner.execution.stop import Stop
from pgcron_runner.store.sql_runs import end_session

# A request to cancel that comes between two statements is lost, so it is made again.
_PRESS_EVERY, _PRESS_FOR = 0.2, 2.0
_LAST_BREATH = 0.5
# A session grows with what it has seen, on the server and here (the driver's buffer keeps the size of its widest row).
_LIFETIME = 600.0


class JobSessions:
    """At most `limit` sessions at a time. Each is used by one job, and cleaned before the next.

    `remote`: on a database that does not hold the schedule. `trouble`: why there is none to be had at the moment.
    """

    def __init__(self, database: Database, limit: int, *, remote: bool = False) -> None:
        self.database = database
        self.trouble: PgcronError | None = None
        self._purpose = Purpose.REMOTE_JOB if remote else Purpose.JOB
        self._places = asyncio.Semaphore(limit)
        self._idle: list[Connection] = []
        self._old_at: dict[Connection, float] = {}
        self._closed = False

    async def take(self) -> tuple[Connection, bool]:
        """A clean session, and whether it is new. Waits for a place, and for a server that is away.

        Raises DatabaseRefused. One that is not new may turn out to be dead.
        """
        await self._places.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if _is_quiet(connection):
                    return connection, False
                await self._close(connection)
            return await self._connect(), True
        except BaseException:
            self._places.release()
            raise

    async def _connect(self) -> Connection:
        while True:
            # A session may end again before its first statement.
            with suppress(DatabaseError):
                connection = await self.database.connect_patiently(self._purpose, on_wait=self._note_trouble)
                self.trouble = None
                self._old_at[connection] = boottime() + _LIFETIME
                return connection
            await asyncio.sleep(_PRESS_EVERY)

    def _note_trouble(self, trouble: PgcronError) -> None:
        self.trouble = trouble

    async def give_back(self, connection: Connection, *, reusable: bool) -> None:
        """Ends what the job has left open; the session is kept if that could be done and it is `reusable`."""
        kept = False
        try:
            if in_transaction(connection):
                await connection.execute("rollback")
            if reusable and self._may_stay(connection):
                await connection.execute("discard all")
                kept = True
        except DatabaseError:
            pass
        finally:
            self._places.release()
            if kept and not self._closed:
                self._idle.append(connection)
            else:
                await self._close(connection)

    def _may_stay(self, connection: Connection) -> bool:
        # By way of a pooler its settings were made after the start, and would be gone with what the job has left.
        is_direct = connection.server_pid == connection.info.backend_pid
        return is_direct and not self._closed and boottime() < self._old_at[connection]

    async def close(self) -> None:
        """Closes the sessions that are not in use; the others follow when they are given back."""
        self._closed = True
        while self._idle:
            await self._close(self._idle.pop())

    async def _close(self, connection: Connection) -> None:
        del self._old_at[connection]
        with suppress(DatabaseError):
            await connection.close()


class Canceller:
    """Makes the server give up what a session runs, from the moment that `start` is called until `end`.

    First by requests to cancel, which a job may catch. After the grace, or when the stop is urgent, its session is
    ended from another one and the line is cut, so that the wait for an answer has an end whatever has become of server
    and network. The job's transaction ends with its session.
    """

    def __init__(self, connection: Connection, database: Database, stop: Stop, *, grace: float) -> None:
        self._connection = connection
        self._database = database
        self._stop = stop
        self._grace = grace
        self._pressing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins; never waits."""
        self._pressing = asyncio.create_task(self._press())

    async def end(self) -> None:
        """The session has answered: no more requests."""
        if self._pressing is not None:
            self._pressing.cancel()
            await asyncio.wait({self._pressing})

    async def _press(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + max(self._grace, _LAST_BREATH)
        while not self._stop.now.is_set() and (left := end - now()) > 0:
            await self._request(min(left, _PRESS_FOR))
            await self._stop.is_urgent_within(min(_PRESS_EVERY, max(end - now(), 0.0)))
        # A server may run on for seconds before it notices that its client is gone.
        await asyncio.gather(self._request(_LAST_BREATH), self._terminate(_LAST_BREATH))
        await asyncio.sleep(_LAST_BREATH)
        _cut(self._connection)

    async def _request(self, seconds: float) -> None:
        with suppress(DatabaseError, OSError):
            await self._connection.cancel_safe(timeout=seconds)

    async def _terminate(self, seconds: float) -> None:
        pid, name = self._connection.server_pid, self._database.application_name
        with suppress(DatabaseError, PgcronError, TimeoutError):
            async with asyncio.timeout(seconds):
                connection = await self._database.connect(Purpose.RECORD)
                try:
                    await end_session(connection, pid=pid, application_name=name)
                finally:
                    await connection.close()


def _is_quiet(connection: Connection) -> bool:
    """False where the server has said something since: mostly that this session is over."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def _cut(connection: Connection) -> None:
    # Closing it would leave whoever waits for its socket waiting for ever.
    with suppress(DatabaseError, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
