"""`pgcron-runner dev`: a Postgres whose data stays, and one worker in this terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pgcron_runner.embedded import Server

_HINTS = """\
Postgres runs in {data}, on a Unix socket. In another terminal:

  export PGCRON_DSN={dsn}
  pgcron-runner job add hello --shell 'echo hello' --schedule '@every 10s' --timezone UTC
  pgcron-runner runs list

Ctrl-C ends the worker{and_server}; jobs and history stay.
"""


def dev(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Where the data is kept.", show_default="among your own files"),
    ] = None,
) -> None:
    """A Postgres and a worker to try things with; its data stays.

    Starts the server of that folder, or uses it where it runs already, installs the schema, and runs a worker in this
    terminal until Ctrl-C.
    """
    # Here, because the driver takes longer to load than most commands take to run.
    from pgcron_runner.cli.interrupts import Interrupts
    from pgcron_runner.embedded import start_persistent

    with Interrupts() as interrupts:
        server = start_persistent(data)
        ours = _is_child(server)
        try:
            _work(server, ends_with_us=ours)
        finally:
            interrupts.hold()
            if ours:
                server.stop()
                typer.echo(f"Postgres has stopped; its data stays in {server.data}.")


def _work(server: Server, *, ends_with_us: bool) -> None:
    """Runs the worker until it is told to stop."""
    import asyncio
    import shlex

    from pgcron_runner.database import Database
    from pgcron_runner.logs import configure_logs
    from pgcron_runner.migrate import migrate
    from pgcron_runner.settings import WorkerSettings
    from pgcron_runner.worker import run_worker

    database = Database(server.dsn())
    asyncio.run(migrate(database))
    and_server = " and the server" if ends_with_us else ", not the server, which was running already"
    typer.echo(_HINTS.format(data=server.data, dsn=shlex.quote(server.dsn()), and_server=and_server))
    configure_logs()
    run_worker(database, WorkerSettings())


def _is_child(server: Server) -> bool:
    """Whether this process has started the server, rather than found it."""
    import os

    pid = server.pid
    if pid is None:
        return False
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
