"""`pgcron-runner workers`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, NamesOnly, examples
from pgcron_runner.cli.output import (
    Cell,
    Column,
    note,
    print_json,
    print_names,
    print_table,
    relative,
    span,
    status_cell,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.model import Kind
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import ListedWorker

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

EXAMPLES = examples("pgcron-runner workers", "pgcron-runner workers --all --json")

_LIMIT = 1000
_COLUMNS = (
    Column("NAME", flexible=True),
    Column("HOST", flexible=True),
    Column("PID", right=True),
    Column("STATE"),
    Column("BUSY", right=True),
    Column("LEASE", right=True),
    Column("HEARTBEAT"),
    Column("QUEUES", flexible=True),
    Column("KINDS", flexible=True, optional=1),
    Column("VERSION", optional=2),
    Column("ZONE DATA", optional=3),
)


def workers(
    ended: Annotated[bool, typer.Option("--all", help="Also those that ended within the last day.")] = False,
    names_only: NamesOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List the workers: who is alive, how busy, and when last heard."""

    async def read(connection: Connection) -> tuple[list[ListedWorker], datetime]:
        return await catalog.list_workers(connection, limit=_LIMIT, ended=ended), await catalog.read_clock(connection)

    found, now = with_database(dsn, read)
    if as_json:
        print_json(found)
    elif names_only:
        print_names(worker.name for worker in found)
    elif found:
        print_table(_COLUMNS, [_row(worker, now) for worker in found])
    else:
        note("No worker is there. Start one: pgcron-runner worker")


def _row(worker: ListedWorker, now: datetime) -> Sequence[Cell]:
    return (
        worker.name,
        worker.host,
        str(worker.pid),
        status_cell(worker.state),
        f"{worker.running}/{worker.slots}",
        span(worker.lease),
        relative(worker.heartbeat_at, now),
        "all" if worker.queues is None else ",".join(worker.queues),
        "all" if set(worker.kinds) >= {kind.value for kind in Kind} else ",".join(worker.kinds),
        worker.version,
        worker.zone_data,
    )
