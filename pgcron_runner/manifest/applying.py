"""Bringing the table to what is wanted: read, decide, write, all in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgcron_runner.errors import PgcronError
from pgcron_runner.manifest.definition import AFTER
from pgcron_runner.manifest.document import Manifest
from pgcron_runner.manifest.fields import FIELDS
from pgcron_runner.manifest.plan import Change, Kind, is_another_file, plan, wanted_chains
from pgcron_runner.manifest.problems import Fault, InvalidManifest
from pgcron_runner.store import calendars, catalog, definitions
from pgcron_runner.store.calendars import Calendar
from pgcron_runner.store.chains import Chain, list_chains

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

KEPT_FOR_DAYS = 14
_EDITS = (Kind.CHANGED, Kind.RETURNED)


class Meanwhile(PgcronError):
    """Somebody else changed one of these jobs at the same time; nothing was changed. Try again."""


class AnotherFile(PgcronError):
    """All jobs of this source would go, and none stay."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was decided, in the order of the file; the database's clock and the calendars then."""

    changes: tuple[Change, ...]
    now: datetime
    calendars: tuple[Calendar, ...] = ()

    def of(self, *kinds: Kind) -> list[Change]:
        return [change for change in self.changes if change.kind in kinds]


async def apply(
    connection: Connection, manifest: Manifest, *, dry_run: bool = False, prune: bool = False, force: bool = False
) -> Outcome:
    """Makes the jobs of a source what the manifest says, or only tells what that would be.

    Raises InvalidManifest where it names what is not there, Meanwhile, AnotherFile; then nothing was changed.
    """
    async with connection.transaction():
        now = await catalog.read_clock(connection)
        names = [definition.name for definition in manifest.definitions]
        stored = await definitions.list_definitions(connection, source=manifest.source, names=names)
        chains = await list_chains(connection)
        known_days = await calendars.list_calendars(connection)
        await _check_names(connection, manifest, {job.name for job in stored}, {one.name for one in known_days})
        changes = plan(manifest.definitions, stored, chains, manifest.source, prune=prune, force=force)
        if is_another_file(changes, manifest.source) and not force:
            raise AnotherFile(_another_file(manifest))
        if not dry_run:
            await _write(connection, changes, manifest.source)
    return Outcome(tuple(changes), now, tuple(known_days))


def _another_file(manifest: Manifest) -> str:
    return (
        f"None of the jobs that {manifest.source} made is in this file: --prune would remove them all. Another file"
        ' of the same name says at its top what it is: source = "billing". If all are to go: --force'
    )


async def _check_names(connection: Connection, manifest: Manifest, there: set[str], dates: set[str]) -> None:
    """Raises InvalidManifest where a job names a job or a calendar that does not exist."""
    known = there | {definition.name for definition in manifest.definitions}
    upstreams = {chain.upstream for definition in manifest.definitions for chain in definition.after} - known
    if upstreams:
        known |= {job.name for job in await definitions.list_definitions(connection, names=sorted(upstreams))}
    problems = []
    for definition in manifest.definitions:
        for chain in definition.after:
            if chain.upstream not in known:
                fault = Fault(AFTER, f"there is no job {chain.upstream!r}, neither here nor in the database")
                problems.append(manifest.problem(definition.name, fault))
        for calendar in definition.columns["exclude"]:
            if calendar not in dates:
                fault = Fault(
                    "exclude", f"there is no calendar {calendar!r}. Add it: pgcron-runner calendar add {calendar}"
                )
                problems.append(manifest.problem(definition.name, fault))
    if problems:
        raise InvalidManifest(problems)


async def _write(connection: Connection, changes: Sequence[Change], source: str) -> None:
    def chosen(*kinds: Kind) -> list[Change]:
        return [change for change in changes if change.kind in kinds]

    async def write(made: Callable[..., Any], rows: list[dict[str, Any]], **more: Any) -> None:
        if rows and len(await made(connection, rows, **more)) != len(rows):
            raise Meanwhile

    noted = [*chosen(Kind.ADOPTED), *(change for change in chosen(Kind.SAME) if change.note)]
    await write(definitions.insert_jobs, [_row(change, source) for change in chosen(Kind.NEW)])
    await write(definitions.update_jobs, [_row(change, source) | _seen(change) for change in chosen(*_EDITS)])
    await write(definitions.note_synced, [_record(change, source) | _seen(change) for change in noted])
    reason = f"no longer in {source.partition(':')[2]}; removed after {KEPT_FOR_DAYS} days"
    await write(definitions.bury_jobs, [_seen(change) for change in chosen(Kind.REMOVED)], reason=reason)
    await _write_chains(connection, chosen(Kind.NEW, *_EDITS))


async def _write_chains(connection: Connection, changes: Sequence[Change]) -> None:
    gone: list[Chain] = []
    wanted: list[Chain] = []
    for change in changes:
        removed, written = wanted_chains(change)
        gone += removed
        wanted += written
    # First what goes: a chain may turn round.
    await definitions.remove_chains(connection, gone)
    if await definitions.insert_chains(connection, wanted) != len(wanted):
        raise Meanwhile


def _row(change: Change, source: str) -> dict[str, Any]:
    assert change.wanted is not None
    columns = change.wanted.columns
    said = {"kind": columns["kind"], "command": columns["command"]} | {f.key: columns[f.key] for f in FIELDS}
    return {"name": change.name} | said | {"enabled": change.enabled} | _record(change, source)


def _record(change: Change, source: str) -> dict[str, Any]:
    assert change.wanted is not None
    return {"source": source, "synced": change.wanted.form}


def _seen(change: Change) -> dict[str, Any]:
    """Which job is meant, as it was when it was read."""
    assert change.stored is not None
    return {"id": change.stored.id, "read_at": change.stored.updated_at}
