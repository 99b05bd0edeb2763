"""`pgcron-runner check`: what is wrong with jobs, before three in the morning says so."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgcron_runner.check import Figures, Installation, Job, Review, review, select
from pgcron_runner.check.rules import RULES, find
from pgcron_runner.cli import check_formats
from pgcron_runner.cli.options import AsJson, Dsn, Quiet, examples, option, parse_names
from pgcron_runner.cli.output import clean, note
from pgcron_runner.cli.session import with_database

if TYPE_CHECKING:
    from pgcron_runner.database import Connection
    from pgcron_runner.manifest.document import Manifest

EXAMPLES = examples(
    "pgcron-runner check",
    "pgcron-runner check jobs.toml",
    "pgcron-runner check --select PGC5,no-alert-route --ignore PGC202",
    "pgcron-runner check jobs.toml --format github",
    "pgcron-runner check --explain PGC101",
    "pgcron-runner check --explain all",
    "",
    "Left out for one job, with the reason, in a file:",
    '  check_ignore = { PGC202 = "the partner counts its days in UTC" }',
    "Or in SQL:",
    """  update pgcron.jobs set check_ignore = '{"PGC202": "why"}' where name = 'export'""",
)


class Format(StrEnum):
    """Who is to read it."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


_PRINT: Final = {
    Format.TEXT: check_formats.print_findings,
    Format.JSON: check_formats.print_as_json,
    Format.SARIF: check_formats.print_as_sarif,
    Format.GITHUB: check_formats.print_for_github,
}


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file of jobs; else the database.", show_default=False)
    ] = None,
    chosen: Annotated[
        list[str] | None, option("--select", "RULES", "Only these: codes, their beginnings, or names; comma-separated.")
    ] = None,
    ignored: Annotated[list[str] | None, option("--ignore", "RULES", "Without these.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="Who is to read it.")] = Format.TEXT,
    explain: Annotated[str | None, option("--explain", "RULE", "Say what a rule means; all: list them.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Review jobs: overlap, zones, timeouts, alerts, secrets, and what their history tells.

    Of a file, history and alerts are looked at only with --dsn. Exit code 1 where something was found.
    """
    if explain is not None:
        _explain(explain)
        return
    rules = select(_words(chosen), _words(ignored))
    manifest = None if file is None else _read(file)
    if manifest is not None and dsn is None:
        jobs, figures, installation, now = _jobs_of(manifest), None, None, datetime.now(UTC)
    else:
        found, figures, installation, now = with_database(dsn, _look)
        jobs = found if manifest is None else _jobs_of(manifest)
    result = review([job for job in jobs if job.enabled], rules, now, figures, installation)
    format_ = Format.JSON if as_json else format_
    if manifest is not None and dsn is None and format_ is Format.TEXT and not quiet:
        note("Without --dsn, their history and alerts are not looked at.")
    if not quiet or result.findings or format_ is not Format.TEXT:
        _print(result, format_, manifest)
    if result.findings:
        raise typer.Exit(1)


def _print(result: Review, format_: Format, manifest: Manifest | None) -> None:
    def place(name: str) -> tuple[str, int] | None:
        if manifest is None or not name:
            return None
        path, _, line = manifest.where(name, None)[0].rpartition(":")
        return (path, int(line)) if path and line.isdigit() else None

    _PRINT[format_](result, place)


def _explain(word: str) -> None:
    if word == "all":
        check_formats.print_list(RULES[code] for code in sorted(RULES))
        return
    for rule in find(word, field="explain"):
        check_formats.print_page(rule)


def _words(given: list[str] | None) -> list[str]:
    return [word for text in given or [] for word in parse_names(text)]


def _read(file: Path) -> Manifest:
    from pgcron_runner.manifest.document import read_file
    from pgcron_runner.manifest.problems import InvalidManifest

    try:
        return read_file(file, os.environ)
    except InvalidManifest as error:
        for problem in error.problems:
            note(clean(str(problem)))
        raise typer.Exit(2) from None


def _jobs_of(manifest: Manifest) -> list[Job]:
    return [Job.of({"name": definition.name, **definition.columns}) for definition in manifest.definitions]


async def _look(connection: Connection) -> tuple[list[Job], dict[str, Figures], Installation, datetime]:
    from pgcron_runner.store import catalog, definitions
    from pgcron_runner.store.review import list_figures, read_installation

    stored = await definitions.list_definitions(connection)
    figures, installation = await list_figures(connection), await read_installation(connection)
    return [Job.of(job.columns) for job in stored], figures, installation, await catalog.read_clock(connection)
