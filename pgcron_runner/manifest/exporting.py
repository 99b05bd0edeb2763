"""The jobs of the table as a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgcron_runner.errors import NotFound
from pgcron_runner.manifest.definition import form_of
from pgcron_runner.manifest.writing import write_toml
from pgcron_runner.store import definitions
from pgcron_runner.store.chains import Chain, list_chains

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


async def export_jobs(connection: Connection, names: Sequence[str] | None = None, *, tag: str | None = None) -> str:
    """The text of a file with these jobs, or all but those that wait to be deleted; "": none. Raises NotFound."""
    into: dict[str, list[Chain]] = {}
    for chain in await list_chains(connection):
        into.setdefault(chain.downstream, []).append(chain)
    found = await definitions.list_definitions(connection, names=names)
    if missing := set(names or ()) - {job.name for job in found}:
        raise NotFound(f"There is no job named {min(missing)!r}. See: pgcron-runner job list")
    return write_toml(
        {
            job.name: form_of(job.columns, into.get(job.name, ()))
            for job in found
            if job.removed_at is None and (tag is None or tag in job.columns["tags"])
        }
    )
