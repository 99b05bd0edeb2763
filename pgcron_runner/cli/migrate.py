"""`pgcron-runner migrate`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from pgcron_runner.cli.options import Dsn, Quiet
from pgcron_runner.cli.output import note, say
from pgcron_runner.statements import migrations


def migrate(
    dsn: Dsn = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the SQL that would be applied, and change nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Install the schema, or bring it to what this version needs.

    One transaction under a lock: several at once are fine, and a failure changes nothing.
    Workers and all other commands refuse a database that lacks something.
    """
    from pgcron_runner.database import Database, resolve_dsn
    from pgcron_runner.migrate import migrate as migrate_schema

    applied = asyncio.run(migrate_schema(Database(resolve_dsn(dsn)), dry_run=dry_run))
    newest = migrations()[-1].version
    if quiet and not dry_run:
        return
    if not applied:
        # A script that reads the SQL of a dry run gets none.
        (note if dry_run else say)(f"schema is up to date (version {newest})")
    for migration in applied:
        name = f"{migration.version:04}_{migration.name}"
        say(f"-- {name}\n{migration.text.rstrip()}\n" if dry_run else f"applied {name}")
    if applied and not dry_run:
        say(f"schema is now at version {newest}")
