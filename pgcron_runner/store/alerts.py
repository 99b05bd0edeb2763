"""Statements of the watch and deliver duties: who is still to be told, and what a channel is to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pgcron_runner.database import Connection
from pgcron_runner.model import Alert, Channel
from pgcron_runner.pacing import Waiting
from pgcron_runner.statements import query


async def take_watch(connection: Connection, *, every: float, now: datetime | None = None) -> bool:
    """Whether it is this worker's turn to watch: somebody does so once in `every` seconds."""
    cursor = await connection.execute(query("take_watch"), {"every": every, "now": now})
    return await cursor.fetchone() is not None


async def take_heartbeat(connection: Connection, *, now: datetime | None = None) -> str | None:
    """The address that is to be told now that the installation lives; None: it is not set, or was told a moment ago."""
    cursor = await connection.execute(query("take_heartbeat"), {"now": now})
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def note_late_runs(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Opens incidents of jobs that should have started; returns how many."""
    return await _count(connection, "note_late_runs", limit=limit, now=now)


async def note_long_runs(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Opens incidents of jobs that take too long; returns how many."""
    return await _count(connection, "note_long_runs", limit=limit, now=now)


async def close_settled_incidents(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Closes late and long incidents that no run will close; returns how many."""
    return await _count(connection, "close_settled_incidents", limit=limit, now=now)


async def tell_again(
    connection: Connection, *, after_id: int, limit: int, now: datetime | None = None
) -> tuple[int | None, int]:
    """Looks at the next open incidents; returns the last (None: there are no more) and how many alerts were written."""
    cursor = await connection.execute(query("tell_again"), {"after_id": after_id, "limit": limit, "now": now})
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def pause_failing_jobs(connection: Connection, *, limit: int) -> list[tuple[str, str]]:
    """Disables jobs that have failed too often in a row; returns their names and the reason."""
    cursor = await connection.execute(query("pause_failing_jobs"), {"limit": limit})
    return [(name, reason) for name, reason in await cursor.fetchall()]


async def list_due_channels(connection: Connection, *, now: datetime | None = None) -> list[tuple[Channel, Waiting]]:
    """Channels for which something waits, due or not, the longest waiting first."""
    cursor = await connection.execute(query("list_due_channels"), {"now": now})
    return [_channel(row) for row in await cursor.fetchall()]


def _channel(row: Sequence[Any]) -> tuple[Channel, Waiting]:
    channel_id, name, target, timezone, template, *rest = row
    quiet_from, quiet_until, digest_every, told_at, count, due_in, sent, now = rest
    return Channel(channel_id, name, target, timezone, template), Waiting(
        count=count,
        due_in=due_in,
        sent_in_last_minute=sent,
        now=now,
        timezone=timezone,
        quiet_from=quiet_from,
        quiet_until=quiet_until,
        digest_every=digest_every,
        told_at=told_at,
    )


async def claim_alerts(
    connection: Connection, channel_id: int, *, limit: int, retry_in: float, now: datetime | None = None
) -> list[Alert]:
    """Due alerts for one message; they are due again after `retry_in` seconds unless they are marked before."""
    given = {"channel_id": channel_id, "limit": limit, "retry_in": retry_in, "now": now}
    cursor = await connection.execute(query("claim_alerts"), given)
    return [Alert(*row) for row in await cursor.fetchall()]


async def mark_alerts_sent(connection: Connection, alert_ids: Sequence[int], *, now: datetime | None = None) -> None:
    """The channel has taken them, in one message."""
    await connection.execute(query("mark_alerts_sent"), {"ids": list(alert_ids), "now": now})


async def postpone_alerts(
    connection: Connection,
    alert_ids: Sequence[int],
    *,
    error: str,
    retry_in: float,
    permanent: bool = False,
    now: datetime | None = None,
) -> int:
    """The channel did not take them: another try after `retry_in` seconds; returns how many were given up instead."""
    given = {"ids": list(alert_ids), "error": error, "retry_in": retry_in, "permanent": permanent, "now": now}
    cursor = await connection.execute(query("postpone_alerts"), given)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _count(connection: Connection, name: str, *, limit: int, now: datetime | None) -> int:
    cursor = await connection.execute(query(name), {"limit": limit, "now": now})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
