"""`pgcron-runner worker`."""

from __future__ import annotations

import os
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from pgcron_runner.cli.connections import parse_connections
from pgcron_runner.cli.options import Dsn, duration, option, parse_kinds, parse_names, parse_queues
from pgcron_runner.model import Kind
from pgcron_runner.settings import WorkerSettings


class LogLevel(StrEnum):
    """How much a worker says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def worker(
    dsn: Dsn = None,
    queues: Annotated[str | None, option("--queues", "A,B", "Run jobs of these queues only, else of all.")] = None,
    kinds: Annotated[
        str | None, option("--kinds", "A,B", "Run jobs of these kinds only, such as sql,shell; else of all.")
    ] = None,
    slots: Annotated[int, option("--slots", "N", "How many runs at a time.", show_default=True)] = 10,
    name: Annotated[str | None, option("--name", "NAME", "What people call it, else host:pid.")] = None,
    lease: Annotated[
        timedelta,
        option(
            "--lease",
            "DURATION",
            "How long it is believed alive after its last heartbeat, else 20s; then its runs are lost to others.",
            parser=duration("lease"),
        ),
    ] = timedelta(seconds=20),
    poll: Annotated[
        timedelta,
        option("--poll", "DURATION", "How often it looks even if nothing wakes it, else 5s.", parser=duration("poll")),
    ] = timedelta(seconds=5),
    drain_timeout: Annotated[
        timedelta | None,
        option(
            "--drain-timeout",
            "DURATION",
            "How long its runs may go on after TERM or Ctrl-C before they are interrupted, else as long as they take.",
            parser=duration("drain-timeout", minimum=timedelta(0)),
        ),
    ] = None,
    preload: Annotated[
        str | None,
        option(
            "--preload",
            "A,B",
            "Import these modules once, such as pandas,myapp.models, so that Python jobs start at once; they see them"
            " as they were then.",
            envvar="PGCRON_PRELOAD",
        ),
    ] = None,
    connection: Annotated[
        list[str] | None,
        option(
            "--connection",
            "NAME=DSN",
            "Another database, which SQL jobs name in args.connection, such as reporting=env:REPORTING_DSN. May be"
            " repeated; also PGCRON_CONNECTION_<NAME>.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Run what is due now, then end. For tests, and under another scheduler.")
    ] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")] = False,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Log this and what is worse.")] = LogLevel.INFO,
) -> None:
    """Run jobs until told to stop.

    Start as many as you like, on as many hosts: each run goes to one of them.
    TERM or Ctrl-C lets it finish what it has; a second one interrupts its runs, a third kills them.
    """
    settings = WorkerSettings(
        **({"name": name} if name is not None else {}),
        queues=None if queues is None else parse_queues(queues),
        kinds=tuple(Kind) if kinds is None else parse_kinds(kinds),
        slots=slots,
        lease=lease,
        poll=poll,
        drain_timeout=drain_timeout,
        once=once,
        preload=() if preload is None else parse_names(preload),
        connections=parse_connections(connection or (), os.environ),
    )
    _run(settings, dsn, log_json=log_json, log_level=log_level)


def _run(settings: WorkerSettings, dsn: str | None, *, log_json: bool, log_level: LogLevel) -> None:
    from pgcron_runner.database import Database, check_dsn, resolve_dsn
    from pgcron_runner.logs import configure_logs
    from pgcron_runner.worker import run_worker

    database = Database(resolve_dsn(dsn))
    for name, other in settings.connections.items():
        check_dsn(other, field=f"connection {name}")
    configure_logs(as_json=log_json, level=log_level.value)
    run_worker(database, settings)
