"""`pgcron-runner sync`: the jobs of a file, or of an application's functions, as the table is to have them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, WrongUse, examples
from pgcron_runner.cli.output import clean, note, print_json
from pgcron_runner.cli.session import with_database

if TYPE_CHECKING:
    from pgcron_runner.database import Connection
    from pgcron_runner.manifest.applying import Outcome
    from pgcron_runner.manifest.document import Manifest

EXAMPLES = examples(
    "pgcron-runner sync jobs.toml --dry-run",
    "pgcron-runner sync jobs.toml --prune",
    "pgcron-runner sync myapp.jobs        # functions with @job",
    "pgcron-runner sync --schema > jobs.schema.json",
    "",
    "A file:",
    "  [defaults]",
    '  timezone = "Europe/Berlin"',
    "",
    "  [jobs.clean-up]",
    '  schedule = "${CLEANUP_SCHEDULE:-0 3 * * *}"',
    '  sql = "delete from sessions where expires_at < now()"',
    "",
    "  [jobs.backup]",
    '  schedule = "30 */6 * * *"',
    '  shell = "/usr/local/bin/backup --all"',
    '  timeout = "2h"',
    '  after = ["clean-up"]',
)
_FILES = (".toml", ".yaml", ".yml")


def sync(
    source: Annotated[
        str | None,
        typer.Argument(metavar="FILE|MODULE", help="A TOML or YAML file, or a module.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Disable jobs that it made and has no longer; they are deleted after two weeks."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite what was edited by hand, and jobs that others made.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print a JSON Schema of the file, for editors.")] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Make the jobs in the database what a file says, in one transaction. A second time changes nothing.

    A job that was edited by hand since is shown and left alone: exit code 1. A pause by hand stays.
    """
    if schema:
        from pgcron_runner.manifest.schema import json_schema

        print_json(json_schema())
        return
    if source is None:
        raise WrongUse("FILE: say which file has the jobs. For example: pgcron-runner sync jobs.toml --dry-run")
    from pgcron_runner.cli.sync_report import Report
    from pgcron_runner.manifest.problems import InvalidManifest

    try:
        manifest = _read(source)
        outcome = with_database(dsn, lambda connection: _apply(connection, manifest, dry_run, prune, force))
    except InvalidManifest as error:
        for problem in error.problems:
            note(clean(str(problem)))
        raise typer.Exit(2) from None
    report = Report(manifest, outcome, dry_run=dry_run)
    if as_json:
        print_json(report.as_json())
    else:
        report.print()
    if report.left_alone and not dry_run:
        raise typer.Exit(1)


def _read(source: str) -> Manifest:
    path = Path(source)
    if path.suffix.lower() in _FILES or path.exists() or "/" in source:
        from pgcron_runner.manifest.document import read_file

        return read_file(path, os.environ)
    from pgcron_runner.manifest.functions import read_functions

    return read_functions(source)


async def _apply(connection: Connection, manifest: Manifest, dry_run: bool, prune: bool, force: bool) -> Outcome:
    from pgcron_runner.manifest.applying import apply

    return await apply(connection, manifest, dry_run=dry_run, prune=prune, force=force)
