"""Statements for people about chains: jobs that run after other jobs. It knows jobs by their names only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pgcron_runner.statements import query

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


@dataclass(frozen=True, slots=True)
class Chain:
    """`downstream` runs `delay` after each end of `upstream` that is as `on_status` says."""

    upstream: str
    downstream: str
    on_status: str
    delay: timedelta


async def insert_chain(connection: Connection, chain: Chain) -> bool | None:
    """Adds a chain, or changes the one that is there (False); None: one of the jobs does not exist."""
    given = {
        "upstream": chain.upstream,
        "downstream": chain.downstream,
        "on_status": chain.on_status,
        "delay": chain.delay,
    }
    cursor = await connection.execute(query("insert_chain"), given)
    row = await cursor.fetchone()
    return None if row is None else bool(row[0])


async def list_chains(connection: Connection, job: str | None = None) -> list[Chain]:
    """All chains, or those that this job is part of."""
    cursor = await connection.execute(query("list_chains"), {"job": job})
    return [Chain(*row) for row in await cursor.fetchall()]


async def remove_chain(connection: Connection, upstream: str, downstream: str) -> bool:
    """Deletes a chain; False: there is none."""
    cursor = await connection.execute(query("remove_chain"), {"upstream": upstream, "downstream": downstream})
    return await cursor.fetchone() is not None
