"""`pgcron-runner watch`: alerts from a host that runs no jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from pgcron_runner.cli.options import Dsn, examples
from pgcron_runner.cli.worker import LogLevel

EXAMPLES = examples("pgcron-runner watch", "pgcron-runner watch --log-json")


def watch(
    dsn: Dsn = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")] = False,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Log this and what is worse.")] = LogLevel.INFO,
) -> None:
    """Look for what is late, long or lost, and send alerts, until told to stop. It runs no jobs.

    Workers do the same. This is for a host that is still there when all of theirs are not.
    """
    from pgcron_runner.database import Database, resolve_dsn
    from pgcron_runner.logs import configure_logs
    from pgcron_runner.watcher import run_watcher

    configure_logs(as_json=log_json, level=log_level.value)
    run_watcher(Database(resolve_dsn(dsn), application_name="pgcron-runner watch"))
