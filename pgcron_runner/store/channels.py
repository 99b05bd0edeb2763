"""Statements for people about channels and routes: where alerts go, and which."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from pgcron_runner.statements import query
from pgcron_runner.store.catalog import read_row, read_rows

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChannel:
    """A channel as it is made; the target is checked before."""

    name: str
    target: str
    timezone: str | None = None
    quiet_from: time | None = None
    quiet_until: time | None = None
    digest_every: timedelta | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChannel(NewChannel):
    """A channel, what waits for it, how many messages were given up, and what went wrong last."""

    id: int
    enabled: bool
    muted_until: datetime | None
    told_at: datetime | None
    routes: int
    waiting: int
    given_up: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRoute:
    """Which events of which jobs go to a channel, and when they are said again."""

    channel: str
    job_pattern: str
    tags: list[str]
    queue: str | None
    events: list[str]
    min_failures: int
    repeat_every: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRoute(NewRoute):
    """A route, and how many jobs it matches now."""

    id: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Message:
    """How far one message is."""

    sent_at: datetime | None
    given_up_at: datetime | None
    tries: int
    error: str | None
    send_at: datetime


async def insert_channel(connection: Connection, channel: NewChannel) -> list[str] | None:
    """Adds a channel; the names of others with the same target. None: the name is taken."""
    cursor = await connection.execute(query("insert_channel"), asdict(channel))
    row = await cursor.fetchone()
    return None if row is None else list(row[1])


async def list_channels(connection: Connection, name: str | None = None) -> list[ListedChannel]:
    """All channels by name, or the one of that name."""
    return await read_rows(connection, "list_channels", {"name": name}, ListedChannel)


async def remove_channel(connection: Connection, name: str) -> bool:
    """Deletes a channel, its routes and what waits for it; False: there is none."""
    cursor = await connection.execute(query("remove_channel"), {"name": name})
    return await cursor.fetchone() is not None


async def insert_test_alert(connection: Connection, channel: str) -> int | None:
    """A message that only says that the channel works; its id. None: there is no such channel."""
    cursor = await connection.execute(query("insert_test_alert"), {"channel": channel})
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def read_alert(connection: Connection, alert_id: int) -> Message | None:
    """How far a message is; None: it is gone."""
    return await read_row(connection, "read_alert", {"alert_id": alert_id}, Message)


async def mute_channel(connection: Connection, name: str, *, until: datetime | None) -> bool:
    """Sends nothing to it before an instant; None: again. False: there is no such channel."""
    cursor = await connection.execute(query("mute_channel"), {"name": name, "until": until})
    return await cursor.fetchone() is not None


async def insert_route(connection: Connection, route: NewRoute) -> int | None:
    """Adds a route; its id. None: there is no such channel."""
    cursor = await connection.execute(query("insert_route"), asdict(route))
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def list_routes(connection: Connection, channel: str | None = None) -> list[ListedRoute]:
    """Routes of all channels, or of one."""
    return await read_rows(connection, "list_routes", {"channel": channel}, ListedRoute)


async def remove_route(connection: Connection, route_id: int) -> str | None:
    """Deletes a route; the name of its channel. None: there is none."""
    cursor = await connection.execute(query("remove_route"), {"route_id": route_id})
    row = await cursor.fetchone()
    return None if row is None else str(row[0])
