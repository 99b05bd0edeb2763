"""`pgcron-runner chain add|list|remove`: jobs that run after other jobs."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, NamesOnly, Quiet, examples, job_argument, option
from pgcron_runner.cli.output import Cell, Column, clean, note, print_done, print_json, print_table, say
from pgcron_runner.cli.session import with_database
from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import NotFound
from pgcron_runner.store import catalog, chains
from pgcron_runner.store.chains import Chain

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_COLUMNS = (Column("AFTER", flexible=True), Column("HAS"), Column("RUN", flexible=True), Column("DELAY"))
_WORDS = {"succeeded": "succeeded", "failed": "failed, with no attempts left", "finished": "succeeded or failed"}

Upstream = Annotated[str, job_argument("The job whose end starts the other.", metavar="FIRST")]
Downstream = Annotated[str, job_argument("The job that is started.", metavar="THEN")]


class End(StrEnum):
    """After which end of the first job."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FINISHED = "finished"


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner chain`."""
    made = examples(
        "pgcron-runner chain add import report",
        "pgcron-runner chain add import clean-up --on finished --delay 5m",
        "pgcron-runner job add report --schedule @manual ...   # runs only after others",
    )
    app.command(epilog=made)(add)
    listed = examples("pgcron-runner chain list", "pgcron-runner chain list import --json")
    app.command(name="list", epilog=listed)(list_)
    app.command(epilog=examples("pgcron-runner chain remove import report"))(remove)


def add(
    upstream: Upstream,
    downstream: Downstream,
    on: Annotated[End, typer.Option("--on", help="After which end; failed: with no attempts left.")] = End.SUCCEEDED,
    delay: Annotated[str, option("--delay", "DURATION", "Pause in between, such as 5m.")] = "0s",
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Run one job after another, each time that one ends. The overlap rule of the second job decides as always."""
    chain = Chain(upstream, downstream, on.value, parse_duration(delay, field="delay", minimum=timedelta(0)))

    async def insert(connection: Connection) -> bool:
        is_new = await chains.insert_chain(connection, chain)
        if is_new is None:
            for name in (upstream, downstream):
                if await catalog.read_job(connection, name) is None:
                    raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
        return bool(is_new)

    is_new = with_database(dsn, insert)
    done = f"{'From now on' if is_new else 'Changed:'} {sentence(chain)}."
    print_done(done, _as_json(chain), as_json=as_json, quiet=quiet)


def list_(
    job: Annotated[str | None, job_argument("Only those of this job.")] = None,
    names_only: NamesOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List which job runs after which."""

    async def read(connection: Connection) -> list[Chain]:
        if job is not None and await catalog.read_job(connection, job) is None:
            raise NotFound(f"There is no job named {job!r}. See: pgcron-runner job list")
        return await chains.list_chains(connection, job)

    found = with_database(dsn, read)
    if as_json:
        print_json([_as_json(chain) for chain in found])
    elif names_only:
        for chain in found:
            say(f"{clean(chain.upstream)}\t{clean(chain.downstream)}")
    elif found:
        print_table(_COLUMNS, [_row(chain) for chain in found])
    else:
        note("No job runs after another. See: pgcron-runner chain add --help")


def remove(
    upstream: Upstream, downstream: Downstream, quiet: Quiet = False, as_json: AsJson = False, dsn: Dsn = None
) -> None:
    """Take a chain away. Runs that it has queued stay."""

    async def delete(connection: Connection) -> None:
        if not await chains.remove_chain(connection, upstream, downstream):
            raise NotFound(f"{downstream!r} does not run after {upstream!r}. See: pgcron-runner chain list")

    with_database(dsn, delete)
    done = f"{clean(downstream)} no longer runs after {clean(upstream)}."
    print_done(done, {"after": upstream, "run": downstream, "removed": True}, as_json=as_json, quiet=quiet)


def sentence(chain: Chain) -> str:
    """What it does, in words."""
    pause = f"{format_duration(chain.delay)} after" if chain.delay else "after"
    return f"{clean(chain.downstream)} runs {pause} {clean(chain.upstream)} has {_WORDS[chain.on_status]}"


def _row(chain: Chain) -> list[Cell]:
    delay = format_duration(chain.delay) if chain.delay else "-"
    return [chain.upstream, _WORDS[chain.on_status], chain.downstream, delay]


def _as_json(chain: Chain) -> dict[str, object]:
    return {"after": chain.upstream, "on": chain.on_status, "run": chain.downstream, "delay": chain.delay}
