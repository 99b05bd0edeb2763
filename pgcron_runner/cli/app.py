"""The console script: puts the commands together and turns errors into sentences and exit codes."""

from __future__ import annotations

import sys

import typer

from pgcron_runner.cli import worker
from pgcron_runner.errors import InvalidInput, PgcronError

app = typer.Typer(no_args_is_help=True, add_completion=True)
app.command()(worker.worker)
app.command()(worker.migrate)


def main() -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong use."""
    try:
        app()
    except InvalidInput as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except PgcronError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)
