"""The door of the demo. It loads nothing of it until it is opened."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    seconds: Annotated[
        int, typer.Option("--seconds", metavar="N", min=10, max=600, help="About how long it shall take.")
    ] = 30,
) -> None:
    """See it work: a real Postgres, three workers, one of them killed.

    It needs no database: it starts its own and leaves nothing behind.
    Exit code 1 if one of the checks at its end fails.
    """
    # Here, because the driver takes longer to load than most commands take to run.
    from pgcron_runner.cli.demo.show import run_show

    if code := run_show(seconds):
        raise typer.Exit(code)
