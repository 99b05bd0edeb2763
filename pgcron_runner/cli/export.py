"""`pgcron-runner export`: jobs as a file that `sync` reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import Dsn, Unchanged, examples, option
from pgcron_runner.cli.session import with_database

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

EXAMPLES = examples(
    "pgcron-runner export > jobs.toml",
    "pgcron-runner export backup clean-up",
    "pgcron-runner export --tag reports > reports.toml",
)


def export(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Only these jobs.", show_default=False)
    ] = None,
    tag: Annotated[str | None, option("--tag", "WORD", "Only jobs with this tag.")] = None,
    dsn: Dsn = None,
) -> None:
    """Print jobs in the form of a file. What is as by default is left out; sync reads back the same jobs."""

    async def read(connection: Connection) -> str:
        from pgcron_runner.manifest.exporting import export_jobs

        return await export_jobs(connection, names or None, tag=tag)

    text = with_database(dsn, read)
    if not text:
        raise Unchanged(
            "There is no such job." if names or tag else "There are no jobs. See: pgcron-runner job add --help"
        )
    typer.echo(text, nl=False)
