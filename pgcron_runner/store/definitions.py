"""Statements about whole definitions of many jobs at once: read, made, edited, buried. It decides nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgcron_runner.statements import query
from pgcron_runner.store.chains import Chain

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

# A JSON text of a megabyte.
_BATCH = 1000
_FACTS = ("id", "removed_at", "updated_at")


@dataclass(frozen=True, slots=True)
class Stored:
    """A job as it is in the table. `synced`: what sync wrote last; None: it was made without."""

    id: int
    columns: Mapping[str, Any]
    removed_at: datetime | None
    updated_at: datetime

    @property
    def name(self) -> str:
        return str(self.columns["name"])

    @property
    def source(self) -> str:
        return str(self.columns["source"])

    @property
    def synced(self) -> dict[str, Any] | None:
        synced: dict[str, Any] | None = self.columns["synced"]
        return synced


async def list_definitions(
    connection: Connection, *, source: str | None = None, names: Sequence[str] | None = None
) -> list[Stored]:
    """Jobs by name: what sync made for `source`, and those called so; without either, all of them."""
    given = {"source": source, "names": None if names is None else list(names)}
    cursor = await connection.execute(query("list_definitions"), given, binary=True)
    columns = [column.name for column in cursor.description or ()]
    return [_stored(dict(zip(columns, row, strict=True))) for row in await cursor.fetchall()]


def _stored(row: dict[str, Any]) -> Stored:
    facts = {name: row.pop(name) for name in _FACTS}
    return Stored(columns=row, **facts)


async def insert_jobs(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[str, datetime]:
    """Adds jobs; of each the instant that its schedule counts from. One that is missing has a name that is taken."""
    return dict(await _write(connection, "insert_jobs", rows))


async def update_jobs(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[str, datetime]:
    """Edits jobs, each with its `id` and `read_at`, its `updated_at` then; of each the instant that it counts from.

    One that is missing was changed or removed meanwhile.
    """
    return dict(await _write(connection, "update_jobs", rows))


async def note_synced(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Notes `source` and `synced` of jobs, as `update_jobs` does, and changes nothing else; the names."""
    return {row[0] for row in await _write(connection, "note_synced", rows)}


async def bury_jobs(
    connection: Connection, rows: Sequence[Mapping[str, Any]], *, reason: str, now: datetime | None = None
) -> set[str]:
    """Disables jobs, each with its `id` and `read_at`, until they are removed; the names of those that it could."""
    return {row[0] for row in await _write(connection, "bury_jobs", rows, reason=reason, now=now)}


async def remove_buried_jobs(connection: Connection, *, limit: int, now: datetime | None = None) -> int:
    """Deletes one batch of the jobs that were buried two weeks ago; how many."""
    cursor = await connection.execute(query("remove_buried_jobs"), {"limit": limit, "now": now})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def remove_chains(connection: Connection, chains: Sequence[Chain]) -> None:
    """Deletes chains; one that is not there is not missed."""
    for batch in _batches([_as_row(chain) for chain in chains]):
        await connection.execute(query("remove_chains"), {"chains": json.dumps(batch)})


async def insert_chains(connection: Connection, chains: Sequence[Chain]) -> int:
    """Adds chains, or changes those that are there; how many have both of their jobs. Raises where it is a circle."""
    count = 0
    for batch in _batches([_as_row(chain) for chain in chains]):
        cursor = await connection.execute(query("insert_chains"), {"chains": json.dumps(batch)})
        count += cursor.rowcount
    return count


async def _write(
    connection: Connection, name: str, rows: Sequence[Mapping[str, Any]], **given: Any
) -> list[tuple[Any, ...]]:
    written: list[tuple[Any, ...]] = []
    for batch in _batches(rows):
        jobs = json.dumps([{key: _as_json(value) for key, value in row.items()} for row in batch])
        cursor = await connection.execute(query(name), {"jobs": jobs} | given)
        written += await cursor.fetchall()
    return written


def _batches(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), _BATCH):
        yield rows[start : start + _BATCH]


def _as_row(chain: Chain) -> dict[str, Any]:
    return {
        "upstream": chain.upstream,
        "downstream": chain.downstream,
        "on_status": chain.on_status,
        "delay": _as_json(chain.delay),
    }


def _as_json(value: Any) -> Any:
    """What Postgres reads as the type of the column."""
    match value:
        case timedelta():
            # Whole numbers: a float would be rounded.
            return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
        case datetime():
            return value.isoformat()
    return value
