"""`pgcron-runner route add|list|remove`: which events of which jobs go to which channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, IdsOnly, Quiet, examples, option, parse_queue
from pgcron_runner.cli.output import Cell, Column, clean, note, plural, print_done, print_json, print_names, print_table
from pgcron_runner.cli.session import with_database
from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.store import channels
from pgcron_runner.store.channels import ListedRoute, NewRoute

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

FAILURES = ("failed", "timed_out", "lost", "launch_failed", "invalid")
EVENTS = (*FAILURES, "late", "missed", "long", "recovered")
_COLUMNS = (
    Column("ID", right=True),
    Column("CHANNEL", flexible=True),
    Column("JOBS", flexible=True),
    Column("MATCH", right=True, optional=1),
    Column("EVENTS", flexible=True),
    Column("FROM", optional=2),
    Column("AGAIN", optional=3),
)


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner route`."""
    made = examples(
        "pgcron-runner route add ops",
        "pgcron-runner route add pager --jobs 'billing-*' --min-failures 3 --repeat-every 1h",
        "pgcron-runner route add ops --tag nightly --events late,missed,long",
    )
    app.command(epilog=made)(add)
    app.command(name="list", epilog=examples("pgcron-runner route list", "pgcron-runner route list ops"))(list_)
    app.command(epilog=examples("pgcron-runner route remove 4"))(remove)


def add(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Where it goes.", show_default=False)],
    jobs: Annotated[str, option("--jobs", "PATTERN", "Names of jobs, with * for any text. All: '*'.")] = "*",
    tag: Annotated[list[str] | None, option("--tag", "TAG", "Only jobs with this tag; with all of them.")] = None,
    queue: Annotated[str | None, option("--queue", "QUEUE", "Only jobs of this queue.")] = None,
    events: Annotated[
        str,
        option("--events", "A,B", f"Of: {', '.join(EVENTS)}. Else: all failures, and recovered."),
    ] = ",".join((*FAILURES, "recovered")),
    min_failures: Annotated[
        int, typer.Option("--min-failures", metavar="N", min=1, max=10_000, help="Only after so many in a row.")
    ] = 1,
    repeat_every: Annotated[
        str | None,
        option("--repeat-every", "DURATION", "Say it again while it lasts: after 1h, then 2h, 4h ... up to a day."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Choose what a channel is told. A channel without any route hears of every job that fails and recovers.

    Escalation is a second route with more --min-failures and a louder channel.
    """
    route = NewRoute(
        channel=channel,
        job_pattern=jobs,
        tags=tag or [],
        queue=None if queue is None else parse_queue(queue),
        events=_parse_events(events),
        min_failures=min_failures,
        repeat_every=None if repeat_every is None else parse_duration(repeat_every, field="repeat-every"),
    )

    async def insert(connection: Connection) -> ListedRoute:
        route_id = await channels.insert_route(connection, route)
        if route_id is None:
            raise NotFound(f"There is no channel named {channel!r}. See: pgcron-runner channel list")
        return next(r for r in await channels.list_routes(connection, channel) if r.id == route_id)

    made = with_database(dsn, insert)
    done = f"Route {made.id}: {clean(channel)} hears of {', '.join(made.events)} of {_whose(made)}."
    print_done(done, made, as_json=as_json, quiet=quiet)
    if not made.jobs and not quiet and not as_json:
        note("Note: no job is such a job now.")


def list_(
    channel: Annotated[
        str | None, typer.Argument(metavar="CHANNEL", help="Only its routes.", show_default=False)
    ] = None,
    quiet: IdsOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List the routes, and how many jobs each matches."""

    async def read(connection: Connection) -> list[ListedRoute]:
        if channel is not None and not await channels.list_channels(connection, channel):
            raise NotFound(f"There is no channel named {channel!r}. See: pgcron-runner channel list")
        return await channels.list_routes(connection, channel)

    found = with_database(dsn, read)
    if as_json:
        print_json(found)
    elif quiet:
        print_names([str(route.id) for route in found])
    elif found:
        print_table(_COLUMNS, [_row(route) for route in found])
    else:
        note("There are no routes: channels without any hear of every job that fails and recovers.")


def remove(
    route_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**31 - 1, show_default=False)],
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Take a route away. A channel that has none left hears of every job that fails and recovers."""

    async def delete(connection: Connection) -> tuple[str, bool]:
        channel = await channels.remove_route(connection, route_id)
        if channel is None:
            raise NotFound(f"There is no route {route_id}. See: pgcron-runner route list")
        return channel, not await channels.list_routes(connection, channel)

    channel, was_last = with_database(dsn, delete)
    removed = {"id": route_id, "channel": channel, "removed": True}
    print_done(f"Removed route {route_id} to {clean(channel)}.", removed, as_json=as_json, quiet=quiet)
    if was_last and not quiet and not as_json:
        note(f"Note: it was the last: {clean(channel)} now hears of every job that fails and recovers.")


def _parse_events(text: str) -> list[str]:
    events = [event.strip() for event in text.split(",") if event.strip()]
    if not events:
        raise InvalidInput("events", text, "is empty", example="--events failed,recovered")
    if wrong := next((event for event in events if event not in EVENTS), None):
        raise InvalidInput("events", wrong, f"is none of {', '.join(EVENTS)}", example="--events failed,recovered")
    return list(dict.fromkeys(events))


def _whose(route: ListedRoute) -> str:
    words = [f"job {clean(route.job_pattern)}" if "*" not in route.job_pattern else f"jobs {clean(route.job_pattern)}"]
    words += [f"with tag {clean(tag)}" for tag in route.tags]
    words += [f"of queue {route.queue}"] if route.queue else []
    words += [f"from {plural(route.min_failures, 'failure')} in a row on"] if route.min_failures > 1 else []
    words += [f"again every {format_duration(route.repeat_every)}"] if route.repeat_every else []
    return ", ".join(words)


def _row(route: ListedRoute) -> list[Cell]:
    whose = [route.job_pattern, *(f"#{tag}" for tag in route.tags), *([f"queue {route.queue}"] if route.queue else [])]
    usual = (*FAILURES, "recovered")
    events = "failures, recovered" if set(route.events) == set(usual) else ", ".join(route.events)
    return [
        str(route.id),
        route.channel,
        " ".join(whose),
        str(route.jobs),
        events,
        plural(route.min_failures, "failure"),
        format_duration(route.repeat_every) if route.repeat_every else "-",
    ]
