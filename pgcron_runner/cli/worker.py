"""`pgcron-runner worker` and `pgcron-runner migrate`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from pgcron_runner.database import Database, resolve_dsn
from pgcron_runner.durations import parse_duration
from pgcron_runner.execution.processes import Guard
from pgcron_runner.logs import configure_logs
from pgcron_runner.migrate import migrate as migrate_schema
from pgcron_runner.model import Kind
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.worker import Worker


def worker(
    dsn: Annotated[str | None, typer.Option()] = None,
    slots: Annotated[int, typer.Option()] = 10,
    lease: Annotated[str, typer.Option()] = "30s",
    poll: Annotated[str, typer.Option()] = "5s",
    queues: Annotated[str | None, typer.Option()] = None,
    kinds: Annotated[str | None, typer.Option()] = None,
    name: Annotated[str | None, typer.Option()] = None,
    drain_timeout: Annotated[str | None, typer.Option()] = None,
    once: Annotated[bool, typer.Option("--once")] = False,
    log_json: Annotated[bool, typer.Option("--log-json")] = False,
) -> None:
    """Run jobs."""
    settings = WorkerSettings(
        **({"name": name} if name else {}),
        queues=tuple(queues.split(",")) if queues else None,
        kinds=tuple(Kind(k) for k in kinds.split(",")) if kinds else tuple(Kind),
        slots=slots,
        lease=parse_duration(lease, field="lease"),
        poll=parse_duration(poll, field="poll"),
        drain_timeout=parse_duration(drain_timeout, field="drain-timeout", minimum=timedelta(0))
        if drain_timeout
        else None,
        once=once,
    )
    database = Database(resolve_dsn(dsn))
    guard = Guard.start()
    configure_logs(as_json=log_json)
    asyncio.run(Worker(database, settings, guard).run())


def migrate(dsn: Annotated[str | None, typer.Option()] = None) -> None:
    """Install or upgrade the schema."""
    for migration in asyncio.run(migrate_schema(Database(resolve_dsn(dsn)))):
        typer.echo(migration.name)
