"""`pgcron-runner channel add|list|test|remove`: where alerts go. What is secret in a target is never printed."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, NamesOnly, Quiet, WrongUse, examples, option, parse_queue
from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    clean,
    note,
    plural,
    print_done,
    print_json,
    print_names,
    print_table,
    relative,
    say,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.schedule import check_timezone
from pgcron_runner.store import catalog, channels
from pgcron_runner.store.channels import ListedChannel, Message, NewChannel

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_COLUMNS = (
    Column("NAME", flexible=True),
    Column("TARGET", flexible=True),
    Column("ROUTES", right=True, optional=1),
    Column("WAITING", right=True),
    Column("LAST TOLD"),
    Column("QUIET", optional=3),
    Column("DIGEST", optional=4),
    Column("STATE", flexible=True),
)
_HOURS = re.compile(r"(\d\d?:\d\d)-(\d\d?:\d\d)", re.ASCII)
_PATIENCE = 90.0
_PAUSE = 0.2

Name = Annotated[str, typer.Argument(metavar="NAME", help="The channel's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner channel`."""
    made = examples(
        "pgcron-runner channel add ops env:OPS_URL     # the worker's own variable, such as slack://...",
        "pgcron-runner channel add mail 'mailto://smtp.example.org?from=cron@example.org&to=ops@example.org' \\",
        "    --quiet-hours 22:00-07:00 --timezone Europe/Berlin --digest 1h",
        "pgcron-runner channel add pager file:/run/secrets/pagerduty",
    )
    app.command(epilog=made)(add)
    app.command(name="list", epilog=examples("pgcron-runner channel list", "pgcron-runner channel list --json"))(list_)
    app.command(name="test", epilog=examples("pgcron-runner channel test ops"))(send_test)
    app.command(epilog=examples("pgcron-runner channel remove ops"))(remove)


def add(
    name: Name,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="An Apprise URL, pagerduty://KEY, webhook+https://...; or a place to look: env:NAME, file:PATH.",
            show_default=False,
        ),
    ],
    quiet_hours: Annotated[
        str | None, option("--quiet-hours", "FROM-TO", "Send nothing between, such as 22:00-07:00.")
    ] = None,
    timezone: Annotated[str | None, option("--timezone", "ZONE", "Zone of the quiet hours and of all times.")] = None,
    digest: Annotated[str | None, option("--digest", "DURATION", "At most one message in this time.")] = None,
    template: Annotated[str | None, option("--template", "FILE", "Jinja2 text in place of the built-in one.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Add a place where alerts go. It hears of every job that fails and recovers, until it has a route."""
    from pgcron_runner.notify.targets import check_target, describe_target

    parse_queue(name, field="name")
    if (warning := check_target(target, os.environ)) is not None and not quiet:
        note(f"Note: {warning}")
    channel = NewChannel(
        name=name,
        target=target,
        timezone=None if timezone is None else check_timezone(timezone).key,
        digest_every=None if digest is None else parse_duration(digest, field="digest"),
        template=None if template is None else _read_template(template),
        **_parse_quiet_hours(quiet_hours, timezone),
    )

    async def insert(connection: Connection) -> list[str]:
        same = await channels.insert_channel(connection, channel)
        if same is None:
            raise WrongUse(f"name: {name!r} is taken. See: pgcron-runner channel list")
        return same

    same = with_database(dsn, insert)
    done = f"Added channel {name} ({clean(describe_target(target))}). Try it: pgcron-runner channel test {name}"
    print_done(done, {"name": name, "target": describe_target(target)}, as_json=as_json, quiet=quiet)
    if same and not quiet and not as_json:
        note(f"Note: {', '.join(same)} goes to the same place, so it hears of everything twice.")


def list_(quiet: NamesOnly = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """List the channels, what waits for them, and what went wrong. Secrets are left out."""

    async def read(connection: Connection) -> tuple[list[ListedChannel], datetime]:
        return await channels.list_channels(connection), await catalog.read_clock(connection)

    found, now = with_database(dsn, read)
    if as_json:
        print_json([_as_json(channel) for channel in found])
    elif quiet:
        print_names([channel.name for channel in found])
    elif found:
        print_table(_COLUMNS, [_row(channel, now) for channel in found])
    else:
        note("There are no channels: nobody is told when a job fails. See: pgcron-runner channel add --help")


def send_test(name: Name, quiet: Quiet = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Have a worker send a message to the channel, and wait until it has. Exit code 1 where it could not."""

    async def send(connection: Connection) -> Message:
        alert_id = await channels.insert_test_alert(connection, name)
        if alert_id is None:
            raise NotFound(_no_channel(name))
        health = await catalog.read_health(connection)
        if not health.workers_alive and not quiet:
            note("It waits: no worker is alive that could send it. See: pgcron-runner workers")
        return await _wait(connection, alert_id)

    message = with_database(dsn, send)
    if as_json:
        print_json(message)
    elif message.sent_at is not None:
        if not quiet:
            say(f"{clean(name)} has taken it.")
    elif message.error is not None:
        say(f"{clean(name)} has not taken it: {clean(message.error)}")
    else:
        say(f"Not sent within {_PATIENCE:.0f} s. Is a worker alive, and the channel neither muted nor quiet?")
    raise typer.Exit(0 if message.sent_at is not None else 1)


def remove(name: Name, quiet: Quiet = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Take a channel away, with its routes and what waits for it."""

    async def delete(connection: Connection) -> None:
        if not await channels.remove_channel(connection, name):
            raise NotFound(_no_channel(name))

    with_database(dsn, delete)
    removed = {"name": name, "removed": True}
    print_done(f"Removed channel {clean(name)}.", removed, as_json=as_json, quiet=quiet)


async def _wait(connection: Connection, alert_id: int) -> Message:
    """Until it is sent or was refused once; else how far it is after a while."""
    waited = 0.0
    while True:
        message = await channels.read_alert(connection, alert_id)
        if message is None:
            raise NotFound("The channel is gone: somebody removed it.")
        if message.sent_at is not None or message.error is not None or waited >= _PATIENCE:
            return message
        await asyncio.sleep(_PAUSE)
        waited += _PAUSE


def _no_channel(name: str) -> str:
    return f"There is no channel named {name!r}. See: pgcron-runner channel list"


def _parse_quiet_hours(hours: str | None, timezone: str | None) -> dict[str, time]:
    if hours is None:
        return {}
    example = "--quiet-hours 22:00-07:00"
    found = _HOURS.fullmatch(hours.strip())
    if found is None:
        raise InvalidInput("quiet-hours", hours, "is not a pair of times", example=example)
    if timezone is None:
        raise WrongUse("timezone: quiet hours need a zone. For example: --timezone Europe/Berlin")
    try:
        begin, end = (time.fromisoformat(text.zfill(5)) for text in found.groups())
    except ValueError:
        raise InvalidInput("quiet-hours", hours, "names a time that does not exist", example=example) from None
    return {"quiet_from": begin, "quiet_until": end}


def _read_template(path: str) -> str:
    from pgcron_runner.notify.templates import check_template

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("template", path, f"cannot be read: {error}", example="--template alert.j2") from None
    check_template(text)
    return text


def _as_json(channel: ListedChannel) -> dict[str, object]:
    from dataclasses import asdict

    from pgcron_runner.notify.targets import describe_target

    hours = {
        name: f"{at:%H:%M}" for name in ("quiet_from", "quiet_until") if (at := getattr(channel, name)) is not None
    }
    return asdict(channel) | {"target": describe_target(channel.target)} | hours


def _row(channel: ListedChannel, now: datetime) -> list[Cell]:
    from pgcron_runner.notify.targets import describe_target

    quiet = "-"
    if channel.quiet_from is not None and channel.quiet_until is not None:
        quiet = f"{channel.quiet_from:%H:%M}-{channel.quiet_until:%H:%M} {channel.timezone}"
    return [
        channel.name,
        describe_target(channel.target),
        str(channel.routes) if channel.routes else "default",
        str(channel.waiting),
        relative(channel.told_at, now) if channel.told_at else "never",
        quiet,
        format_duration(channel.digest_every) if channel.digest_every else "-",
        _state(channel, now),
    ]


def _state(channel: ListedChannel, now: datetime) -> Cell:
    if not channel.enabled:
        return Styled("disabled", "yellow")
    if channel.muted_until is not None and channel.muted_until > now:
        return Styled(f"muted, ends {relative(channel.muted_until, now)}", "yellow")
    if channel.error is not None:
        return Styled(channel.error, "red")
    if channel.given_up:
        return Styled(f"{plural(channel.given_up, 'message')} given up", "red")
    return Styled("ok", "green")
