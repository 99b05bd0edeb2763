"""`pgcron-runner next`: when a schedule is due. It needs no database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from pgcron_runner.cli.options import (
    AsJson,
    TimesOnly,
    WrongUse,
    examples,
    option,
    parse_instant,
    required_timezone,
    timezone_option,
)
from pgcron_runner.cli.output import instant, note, print_json, print_names, say, zone_of
from pgcron_runner.cli.upcoming import Rule, in_words, next_slots, print_slots
from pgcron_runner.durations import format_duration
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import Schedule, parse_schedule, zone_note

EXAMPLES = examples(
    "pgcron-runner next '0 3 * * *' --timezone Europe/Berlin",
    "pgcron-runner next '@every 90s' --timezone UTC --count 3 --json",
    "pgcron-runner next '30 2 * * *' --timezone Europe/Berlin \\",
    "    --from 2027-03-27T12:00",
)


def next_times(
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPR",
            help="Five cron fields, six with seconds first, or @daily, @every 15m, @at …",
            show_default=False,
        ),
    ],
    timezone: Annotated[str | None, timezone_option()] = None,
    after: Annotated[
        str | None,
        option("--from", "INSTANT", "Times after this one instead of now; in the zone, if it has no offset."),
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=10_000, help="How many.")] = 5,
    name: Annotated[
        str | None,
        option("--name", "JOB", "The job's name, from which H draws."),
    ] = None,
    dst_gap: Annotated[
        DstGap, typer.Option("--dst-gap", help="A fixed time that the clock jumps over.")
    ] = DstGap.RUN_AFTER,
    dst_repeat: Annotated[
        DstRepeat, typer.Option("--dst-repeat", help="A fixed time that the clock shows twice.")
    ] = DstRepeat.FIRST,
    times_only: TimesOnly = False,
    as_json: AsJson = False,
) -> None:
    """Show when a schedule is due next. Needs no database."""
    zone_name = required_timezone(timezone)
    rule = Rule(expression, zone_name, name or "", dst_gap, dst_repeat)
    schedule = _parse(rule, named=name is not None)
    zone = zone_of(zone_name)
    now = datetime.now(UTC)
    slots = next_slots(rule, now if after is None else parse_instant(after, field="from", zone=zone), count)
    if as_json:
        print_json([instant(slot.at) for slot in slots])
    elif times_only:
        print_names(instant(slot.at) for slot in slots)
        return
    elif slots:
        if words := in_words(rule):
            say(f"{words}.")
        print_slots(slots, zone, now)
    for remark in (zone_note(zone_name), _why_fewer(schedule, len(slots), count)):
        if remark:
            note(f"Note: {remark}.")


def _parse(rule: Rule, *, named: bool) -> Schedule:
    schedule = parse_schedule(
        rule.schedule, rule.timezone, name=rule.name, dst_gap=rule.dst_gap, dst_repeat=rule.dst_repeat
    )
    # Equal texts share one schedule, unless the name matters.
    other = parse_schedule(
        rule.schedule, rule.timezone, name=f"{rule.name}-", dst_gap=rule.dst_gap, dst_repeat=rule.dst_repeat
    )
    if not named and other is not schedule:
        raise WrongUse(
            "name: the schedule has an H, which draws from the job's name. For example: --name nightly-report"
        )
    return schedule


def _why_fewer(schedule: Schedule, found: int, wanted: int) -> str | None:
    if schedule.is_manual:
        return "a manual job is due only when somebody runs it"
    if schedule.after_finish is not None:
        return f"due {format_duration(schedule.after_finish)} after the end of each run, so there is nothing to list"
    return None if found == wanted else "it is never due after that" if found else "it is never due again"
