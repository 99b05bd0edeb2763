"""`pgcron-runner status`: is all well, on one screen and as an exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, examples
from pgcron_runner.cli.output import Cell, Styled, clean, plural, print_facts, print_json, relative, to_json, utc
from pgcron_runner.cli.session import with_database
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import Health

EXAMPLES = examples("pgcron-runner status", "pgcron-runner status --quiet || page-somebody")


def status(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing unless something is wrong.")] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Tell whether all is well. The exit code says it too.

    0: healthy. 1: no worker is alive, something is overdue, a job has a problem, or alerts do not go out. That a job
    fails is shown, and no reason for 1: alerts tell of that.
    """
    health = with_database(dsn, catalog.read_health)
    wrong = _what_is_wrong(health)
    if as_json:
        print_json(to_json(health) | {"healthy": not wrong, "wrong": wrong})
    elif wrong or not quiet:
        print_facts([*_facts(health), ("", ""), _verdict(wrong)])
    raise typer.Exit(1 if wrong else 0)


def _what_is_wrong(health: Health) -> list[str]:
    wrong = []
    if not health.workers_alive:
        wrong.append("no worker is alive (pgcron-runner worker)")
    if health.jobs_problem:
        wrong.append(
            f"{plural(health.jobs_problem, 'job has', 'jobs have')} a problem (pgcron-runner job list --problem)"
        )
    if health.overdue:
        wrong.append(f"{plural(health.overdue, 'run is', 'runs are')} overdue")
    if health.alerts_undelivered:
        count = plural(health.alerts_undelivered, "alert is", "alerts are")
        wrong.append(f"{count} not taken by the channel (pgcron-runner channel list)")
    return wrong


def _facts(health: Health) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [
        ("Database", utc(health.now)),
        ("Workers", _workers(health)),
        ("Jobs", _jobs(health)),
        ("Queued", f"{health.queued_due} due, {health.queued_later} later"),
        ("Running", str(health.running)),
        ("Last 24 h", _red(plural(health.failures_last_day, "failure"), health.failures_last_day)),
        ("Overdue", _overdue(health)),
        ("Incidents", _incidents(health)),
    ]
    if health.paused:
        facts.insert(1, ("Paused", Styled("nothing new is started (pgcron.settings)", "yellow")))
    return facts


def _workers(health: Health) -> Cell:
    silent = f", {health.workers_silent} silent" if health.workers_silent else ""
    text = f"{health.workers_alive} alive{silent}, {plural(health.slots, 'slot')}"
    return _red(text, not health.workers_alive)


def _jobs(health: Health) -> Cell:
    problem = f", {health.jobs_problem} with a problem" if health.jobs_problem else ""
    return _red(f"{health.jobs_enabled} enabled, {health.jobs_paused} paused{problem}", health.jobs_problem)


def _overdue(health: Health) -> Cell:
    if health.oldest_overdue_at is None:
        return "nothing"
    since = relative(health.oldest_overdue_at, health.now)
    oldest = f"the oldest was due {since}: {clean(health.oldest_overdue_job or '')}"
    return Styled(f"{health.overdue}, {oldest}", "red")


def _incidents(health: Health) -> Cell:
    told = "" if health.channels else ", and no channel: nobody is told (pgcron-runner channel add)"
    if not health.incidents_open:
        return f"none open{told}"
    return Styled(f"{health.incidents_open} open (pgcron-runner incident list){told}", "red")


def _verdict(wrong: list[str]) -> tuple[str, Cell]:
    return ("Unhealthy", Styled(", ".join(wrong), "red")) if wrong else ("Healthy", Styled("yes", "green"))


def _red(text: str, bad: object) -> Cell:
    return Styled(text, "red") if bad else text
