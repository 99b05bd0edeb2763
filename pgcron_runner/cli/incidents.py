"""`pgcron-runner incident list|show|ack`: what is wrong now, since when, and who was told."""

from __future__ import annotations

import getpass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, IdsOnly, Quiet, Unchanged, examples, option
from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    clean,
    note,
    print_done,
    print_facts,
    print_heading,
    print_json,
    print_names,
    print_table,
    relative,
    say,
    span,
    to_json,
    utc,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.errors import NotFound
from pgcron_runner.store import catalog, incidents
from pgcron_runner.store.incidents import Incident, ListedAlert

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_COLUMNS = (
    Column("ID", right=True),
    Column("JOB", flexible=True),
    Column("WHAT"),
    Column("TIMES", right=True),
    Column("SINCE"),
    Column("LASTED", optional=2),
    Column("TAKEN BY", flexible=True, optional=1),
    Column("TOLD", flexible=True, optional=3),
)
_ALERT_COLUMNS = (
    Column("CHANNEL", flexible=True),
    Column("EVENT"),
    Column("WRITTEN"),
    Column("SENT"),
    Column("TRIES", right=True, optional=1),
    Column("ERROR", flexible=True, optional=2),
)

IncidentId = Annotated[
    int, typer.Argument(metavar="ID", help="The incident's id.", min=1, max=2**63 - 1, show_default=False)
]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner incident`."""
    listed = examples("pgcron-runner incident list", "pgcron-runner incident list --all --job backup")
    app.command(name="list", epilog=listed)(list_)
    app.command(epilog=examples("pgcron-runner incident show 12"))(show)
    app.command(epilog=examples("pgcron-runner incident ack 12", "pgcron-runner incident ack 12 --by ann"))(ack)


def list_(
    job: Annotated[str | None, option("--job", "JOB", "Only of this job.")] = None,
    closed: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="At most so many.")] = 50,
    quiet: IdsOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List what is wrong now, the newest first."""

    async def read(connection: Connection) -> tuple[list[Incident], datetime]:
        found = await incidents.list_incidents(connection, limit=limit, job=job, closed=closed)
        return found, await catalog.read_clock(connection)

    found, now = with_database(dsn, read)
    if as_json:
        print_json(found)
    elif quiet:
        print_names([str(incident.id) for incident in found])
    elif found:
        print_table(_COLUMNS, [_row(incident, now) for incident in found])
    else:
        note("There was no incident." if closed else "Nothing is wrong now.")


def show(incident_id: IncidentId, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Show an incident: what was seen, and what was said to whom."""

    async def read(connection: Connection) -> tuple[Incident, list[ListedAlert], datetime]:
        incident = await incidents.read_incident(connection, incident_id)
        if incident is None:
            raise NotFound(_no_incident(incident_id))
        alerts = await incidents.list_incident_alerts(connection, incident_id)
        return incident, alerts, await catalog.read_clock(connection)

    incident, alerts, now = with_database(dsn, read)
    if as_json:
        print_json(to_json(incident) | {"alerts": to_json(alerts)})
        return
    print_facts(_facts(incident, now))
    say()
    print_heading("Messages")
    if alerts:
        print_table(_ALERT_COLUMNS, [_alert_row(alert, now) for alert in alerts])
    else:
        say("Nobody was told: no channel hears of it, or it is muted.")


def ack(
    incident_id: IncidentId,
    by: Annotated[str | None, option("--by", "WHO", "Who takes it on. Else your user name.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Take an incident on: it is not repeated, and a pager that was called stops."""
    who = by or getpass.getuser()

    async def change(connection: Connection) -> bool:
        before = await incidents.acknowledge_incident(connection, incident_id, who=who)
        if before is None:
            if await incidents.read_incident(connection, incident_id) is None:
                raise NotFound(_no_incident(incident_id))
            raise Unchanged(f"Incident {incident_id} is over. Nothing was changed.")
        return before

    before = with_database(dsn, change)
    done = f"Incident {incident_id} is {'now ' if before else ''}taken on by {clean(who)}."
    print_done(done, {"id": incident_id, "acknowledged_by": who}, as_json=as_json, quiet=quiet)


def _no_incident(incident_id: int) -> str:
    return f"There is no incident {incident_id}. See: pgcron-runner incident list --all"


def _row(incident: Incident, now: datetime) -> list[Cell]:
    return [
        str(incident.id),
        incident.job_name,
        _what(incident),
        str(incident.failures),
        relative(incident.opened_at, now),
        "-" if incident.closed_at is None else span(incident.closed_at - incident.opened_at),
        incident.acknowledged_by or "-",
        ", ".join(incident.told) or "nobody",
    ]


def what_is_wrong(incident: Incident, now: datetime) -> str:
    """An open incident in one sentence, without its stop."""
    times = f", {incident.failures} times in a row" if incident.kind == "failing" and incident.failures > 1 else ""
    taken = f", taken on by {clean(incident.acknowledged_by)}" if incident.acknowledged_by else ""
    words = incident.event.replace("_", " ")
    return f"Open incident {incident.id}: {words}{times}, since {relative(incident.opened_at, now)}{taken}"


def _what(incident: Incident) -> Cell:
    words = incident.event.replace("_", " ")
    return Styled(words, "red") if incident.closed_at is None else words


def _facts(incident: Incident, now: datetime) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [
        ("job", Styled(incident.job_name, "bold")),
        ("what", _what(incident)),
        ("times", f"{incident.failures} in a row" if incident.kind == "failing" else str(incident.failures)),
        ("since", f"{utc(incident.opened_at)}  ({relative(incident.opened_at, now)})"),
    ]
    if incident.closed_at is not None:
        lasted = span(incident.closed_at - incident.opened_at)
        facts.append(("over", f"{utc(incident.closed_at)}  (it lasted {lasted})"))
    if incident.reopened:
        facts.append(("came back", f"{incident.reopened} times"))
    if incident.acknowledged_at is not None:
        facts.append(("taken on by", f"{incident.acknowledged_by}, {relative(incident.acknowledged_at, now)}"))
    if incident.last_run_id is not None:
        facts.append(("last run", f"{incident.last_run_id}  (pgcron-runner runs show {incident.last_run_id})"))
    return facts


def _alert_row(alert: ListedAlert, now: datetime) -> list[Cell]:
    if alert.sent_at is not None:
        sent: Cell = relative(alert.sent_at, now)
    elif alert.given_up_at is not None:
        sent = Styled("given up", "red")
    else:
        sent = Styled(f"again {relative(max(alert.send_at, now), now)}" if alert.error else "waits", "yellow")
    again = f" (again, {alert.repeat})" if alert.repeat else ""
    error = "" if alert.sent_at is not None else alert.error or ""
    return [alert.channel, alert.event + again, relative(alert.created_at, now), sent, str(alert.tries), error]
