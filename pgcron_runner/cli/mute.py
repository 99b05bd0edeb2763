"""`pgcron-runner mute` and `unmute`: no alerts about a job, to a channel, or at all, for a while."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, Quiet, WrongUse, examples, option, parse_instant
from pgcron_runner.cli.output import clean, print_done, utc
from pgcron_runner.cli.session import with_database
from pgcron_runner.durations import parse_duration
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.store import catalog, channels, incidents

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

MUTE_EXAMPLES = examples(
    "pgcron-runner mute backup --for 2h",
    "pgcron-runner mute --channel pager --until 2027-01-02T09:00Z",
    "pgcron-runner mute --everything --for 30m",
)
UNMUTE_EXAMPLES = examples("pgcron-runner unmute backup", "pgcron-runner unmute --everything")

Job = Annotated[str | None, typer.Argument(metavar="[JOB]", help="The job.", show_default=False)]
ToChannel = Annotated[str | None, option("--channel", "NAME", "All that goes to this channel.")]
Everything = Annotated[bool, typer.Option("--everything", help="All alerts of this installation.")]


def mute(
    job: Job = None,
    channel: ToChannel = None,
    everything: Everything = False,
    length: Annotated[str | None, option("--for", "DURATION", "For so long, such as 2h.")] = None,
    until: Annotated[str | None, option("--until", "INSTANT", "Until then, such as 2027-01-02T09:00Z.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Tell nobody, for a while. What is still wrong when it ends is told then."""
    if (length is None) == (until is None):
        raise WrongUse("Say how long: either --for 2h or --until 2027-01-02T09:00Z.")
    lasting = None if length is None else parse_duration(length, field="for")
    instant = None if until is None else parse_instant(until, field="until")

    async def change(connection: Connection) -> datetime:
        now = await catalog.read_clock(connection)
        end = instant if lasting is None else now + lasting
        assert end is not None
        if end <= now:
            raise InvalidInput("until", until, "has passed already", example="2030-01-31T09:00Z")
        await _set(connection, job, channel, everything, until=end)
        return end

    what = _what(job, channel, everything)
    end = with_database(dsn, change)
    print_done(f"No alerts {what} before {utc(end)}.", {"muted": what, "until": end}, as_json=as_json, quiet=quiet)


def unmute(
    job: Job = None,
    channel: ToChannel = None,
    everything: Everything = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Tell again. What is wrong now and was not told is told within seconds."""
    what = _what(job, channel, everything)

    async def change(connection: Connection) -> None:
        await _set(connection, job, channel, everything, until=None)

    with_database(dsn, change)
    print_done(f"Alerts {what} go out again.", {"unmuted": what}, as_json=as_json, quiet=quiet)


def _what(job: str | None, channel: str | None, everything: bool) -> str:
    if [job is not None, channel is not None, everything].count(True) != 1:
        raise WrongUse("Say what: a job, or --channel NAME, or --everything.")
    if everything:
        return "about anything"
    return f"about job {clean(job)}" if job is not None else f"to channel {clean(channel or '')}"


async def _set(
    connection: Connection, job: str | None, channel: str | None, everything: bool, *, until: datetime | None
) -> None:
    if everything:
        await incidents.mute_everything(connection, until=until)
    elif channel is not None:
        if not await channels.mute_channel(connection, channel, until=until):
            raise NotFound(f"There is no channel named {channel!r}. See: pgcron-runner channel list")
    elif job is not None and not await incidents.mute_job(connection, job, until=until):
        raise NotFound(f"There is no job named {job!r}. See: pgcron-runner job list")
