"""`pgcron-runner job edit`: changes to a job's definition, checked as a new one is, and told as old and new."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgcron_runner.cli import job_definition as d
from pgcron_runner.cli.clock_changes import clock_changes
from pgcron_runner.cli.jobs import Name, find_job, show_value
from pgcron_runner.cli.options import (
    AsJson,
    Dsn,
    Quiet,
    Unchanged,
    WrongUse,
    examples,
    option,
    parse_object,
    parse_queue,
)
from pgcron_runner.cli.output import (
    Cell,
    clean,
    note,
    print_facts,
    print_heading,
    print_json,
    print_text,
    say,
    to_json,
    zone_of,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import Slot, parse_rule, print_slots, rule_of, slots_of
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import CatchUp, DstGap, DstRepeat, Overlap
from pgcron_runner.schedule import parse_schedule, zone_note
from pgcron_runner.store import catalog, inquiry
from pgcron_runner.store.catalog import Job, NewJob

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

EXAMPLES = examples(
    "pgcron-runner job edit nightly-report --schedule '0 4 * * *'",
    "pgcron-runner job edit backup --timeout 3h --attempts 5",
    "pgcron-runner job edit backup --exclude holidays --clear keep-for",
)

# What an option without a value would mean: the column as a new job has it.
_CLEARED: dict[str, tuple[str, Any]] = {
    "args": ("args", {}),
    "starts-at": ("starts_at", None),
    "ends-at": ("ends_at", None),
    "exclude": ("exclude", []),
    "max-running": ("max_running", None),
    "catch-up-window": ("catch_up_window", None),
    "memory-limit": ("memory_limit_mb", None),
    "keep-for": ("keep_for", None),
    "late-after": ("late_after", None),
    "long-after": ("long_after", None),
    "pause-after": ("pause_after", None),
    "redact": ("redact", []),
    "heartbeat-url": ("heartbeat_url", None),
    "env": ("env", {}),
    "env-from": ("env_from", []),
    "working-dir": ("working_dir", None),
    "tag": ("tags", []),
}
_COLUMNS = {
    "attempts": "max_attempts",
    "memory_limit": "memory_limit_mb",
    "output_limit": "output_limit_kb",
    "tag": "tags",
}
# What decides when it is due: a change of these starts the schedule anew.
_WHEN = ("schedule", "timezone", "enabled", "dst_gap", "dst_repeat", "starts_at", "ends_at")
_SHOWN = 3

_Clear = Annotated[
    list[str] | None, option("--clear", "OPTION", "Forget what was said with this option; may be repeated.")
]


def register(app: typer.Typer) -> None:
    """Adds this command to `pgcron-runner job`."""
    app.command(epilog=EXAMPLES)(edit)


def edit(
    name: Name,
    *,
    shell: Annotated[str | None, d.SHELL] = None,
    sql: Annotated[str | None, d.SQL] = None,
    python: Annotated[str | None, d.PYTHON] = None,
    http: Annotated[str | None, d.HTTP] = None,
    args: Annotated[str | None, d.ARGS] = None,
    schedule: Annotated[str | None, d.SCHEDULE] = None,
    timezone: Annotated[str | None, d.TIMEZONE] = None,
    starts_at: Annotated[str | None, d.STARTS_AT] = None,
    ends_at: Annotated[str | None, d.ENDS_AT] = None,
    exclude: Annotated[list[str] | None, d.EXCLUDE] = None,
    jitter: Annotated[timedelta | None, d.JITTER] = None,
    dst_gap: Annotated[DstGap | None, d.DST_GAP] = None,
    dst_repeat: Annotated[DstRepeat | None, d.DST_REPEAT] = None,
    disabled: Annotated[bool, d.DISABLED] = False,
    overlap: Annotated[Overlap | None, d.OVERLAP] = None,
    max_running: Annotated[int | None, d.MAX_RUNNING] = None,
    catch_up: Annotated[CatchUp | None, d.CATCH_UP] = None,
    catch_up_window: Annotated[timedelta | None, d.CATCH_UP_WINDOW] = None,
    catch_up_limit: Annotated[int | None, d.CATCH_UP_LIMIT] = None,
    attempts: Annotated[int | None, d.ATTEMPTS] = None,
    retry_delay: Annotated[timedelta | None, d.RETRY_DELAY] = None,
    retry_backoff: Annotated[float | None, d.RETRY_BACKOFF] = None,
    retry_max_delay: Annotated[timedelta | None, d.RETRY_MAX_DELAY] = None,
    timeout: Annotated[timedelta | None, d.TIMEOUT] = None,
    kill_grace: Annotated[timedelta | None, d.KILL_GRACE] = None,
    memory_limit: Annotated[int | None, d.MEMORY_LIMIT] = None,
    output_limit: Annotated[int | None, d.OUTPUT_LIMIT] = None,
    keep_for: Annotated[timedelta | None, d.KEEP_FOR] = None,
    late_after: Annotated[timedelta | None, d.LATE_AFTER] = None,
    long_after: Annotated[timedelta | None, d.LONG_AFTER] = None,
    pause_after: Annotated[int | None, d.PAUSE_AFTER] = None,
    redact: Annotated[list[str] | None, d.REDACT] = None,
    heartbeat_url: Annotated[str | None, d.HEARTBEAT_URL] = None,
    queue: Annotated[str | None, d.QUEUE] = None,
    priority: Annotated[int | None, d.PRIORITY] = None,
    env: Annotated[list[str] | None, d.ENV] = None,
    env_from: Annotated[list[str] | None, d.ENV_FROM] = None,
    working_dir: Annotated[str | None, d.WORKING_DIR] = None,
    tag: Annotated[list[str] | None, d.TAG] = None,
    clear: _Clear = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Change a job. Only what is given changes; all is checked before anything is written.

    A list such as --tag, --env or --exclude replaces the whole list. A change of when it is due counts from now.
    """
    given = {key: value for key, value in locals().items() if key not in ("name", "clear", "quiet", "as_json", "dsn")}
    changes, bounds = _changes({key: value for key, value in given.items() if value is not None and value is not False})
    cleared = _cleared(clear or [], changes | bounds)
    if not changes and not bounds and not cleared:
        raise WrongUse("Say what is to change. For example: --schedule '0 4 * * *'")

    async def change(connection: Connection) -> _Edit:
        before = await find_job(connection, name)
        around = await inquiry.read_circumstances(connection, before.id)
        after = _edited(before, changes | cleared, bounds)
        if after == before:
            raise Unchanged(f"Job {name} is so already; nothing was changed.")
        if await catalog.update_job(connection, before.id, _definition(after), read_at=before.updated_at) is None:
            raise Unchanged(f"Somebody else changed job {name} at the same time; nothing was changed. Try again.")
        after, now = await find_job(connection, name), await catalog.read_clock(connection)
        slots_before = slots_of(before, now, _SHOWN, around.excluded)
        around = await inquiry.read_circumstances(connection, before.id)
        return _Edit(before, after, now, slots_before, slots_of(after, now, _SHOWN, around.excluded))

    edit = with_database(dsn, change)
    if as_json or not quiet:
        _tell(edit, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A job before and after, with its next times."""

    before: Job
    after: Job
    now: datetime
    slots_before: list[Slot]
    slots_after: list[Slot]


def _changes(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Columns and their new values, checked as far as that needs no job; and apart the bounds, which need its zone."""
    bounds: dict[str, str] = {key: given.pop(key) for key in ("starts_at", "ends_at") if key in given}
    changes: dict[str, Any] = {}
    command = {key: given.pop(key, None) for key in ("shell", "sql", "python", "http")}
    if any(text is not None for text in command.values()):
        kind, text = d.what_to_run(**command)
        changes |= {"kind": kind.value, "command": text}
    if given.pop("disabled", False):
        changes["enabled"] = False
    for key, value in given.items():
        changes[_COLUMNS.get(key, key)] = _CHECKS[key](value) if key in _CHECKS else value
    if "schedule" in changes or "timezone" in changes:
        # The job's name, which H draws from, and its zone make no difference to what is wrong here.
        parse_schedule(changes.get("schedule", "@daily"), changes.get("timezone", "UTC"), name="job")
    if "max_running" in changes and "overlap" in changes:
        d.check_max_running(changes["max_running"], Overlap(changes["overlap"]))
    # UTC has every local time; which zone is meant is known only with the job.
    d.bounds(bounds.get("starts_at"), bounds.get("ends_at"), zone_of("UTC"))
    return changes, bounds


def _tags(texts: list[str]) -> list[str]:
    return [d.tag_of(text) for text in texts]


def _names(texts: list[str]) -> list[str]:
    return [d.variable("env-from", text) for text in texts]


def _patterns(texts: list[str]) -> list[str]:
    return [d.pattern(text) for text in texts]


def _args(text: str) -> dict[str, Any]:
    return parse_object(text, field="args")


def _word(member: CatchUp | DstGap | DstRepeat | Overlap) -> str:
    return member.value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "args": _args,
    "queue": parse_queue,
    "env": d.variables,
    "env_from": _names,
    "tag": _tags,
    "exclude": d.calendars,
    "redact": _patterns,
    "heartbeat_url": d.check_heartbeat_url,
    "overlap": _word,
    "catch_up": _word,
    "dst_gap": _word,
    "dst_repeat": _word,
}


def _cleared(options: Sequence[str], changes: dict[str, Any]) -> dict[str, Any]:
    cleared = {}
    for name in options:
        word = name.removeprefix("--")
        if word not in _CLEARED:
            raise InvalidInput("clear", name, f"cannot be cleared, only: {', '.join(_CLEARED)}", example="ends-at")
        column, value = _CLEARED[word]
        if column in changes:
            raise InvalidInput("clear", name, f"is given a value as well, with --{word}", example=f"--clear {word}")
        cleared[column] = value
    return cleared


def _edited(before: Job, changes: dict[str, Any], bounds: dict[str, str]) -> Job:
    """The job as it will be. Raises InvalidInput where its parts do not fit together."""
    after = replace(before, **changes)
    parse_rule(rule_of(after))
    if changes.keys() & {"kind", "command", "args"}:
        d.check_args(after.kind, after.command, after.args)
    zone = zone_of(after.timezone)
    starts, ends = d.bounds(bounds.get("starts_at"), bounds.get("ends_at"), zone)
    after = replace(after, starts_at=starts or after.starts_at, ends_at=ends or after.ends_at)
    if after.starts_at and after.ends_at and after.starts_at >= after.ends_at:
        problem = "would not be after starts_at"
        raise InvalidInput("ends-at", after.ends_at.isoformat(), problem, example="--clear ends-at")
    if after.max_running is not None and after.overlap != Overlap.ALLOW and "max_running" not in changes:
        problem = f"goes with overlap allow only; {after.overlap} needs it cleared"
        raise InvalidInput("max-running", after.max_running, problem, example="--clear max-running")
    d.check_max_running(after.max_running, Overlap(after.overlap))
    return after


def _definition(job: Job) -> NewJob:
    columns = {field.name: getattr(job, field.name) for field in fields(NewJob)}
    return NewJob(**columns | {"args": json.dumps(job.args), "env": json.dumps(job.env)})


def _tell(edit: _Edit, *, as_json: bool) -> None:
    changed = [field.name for field in fields(NewJob) if _of(edit.before, field.name) != _of(edit.after, field.name)]
    if as_json:
        told = {column: {"old": _of(edit.before, column), "new": _of(edit.after, column)} for column in changed}
        times = {"next_times_before": _times(edit.slots_before), "next_times": _times(edit.slots_after)}
        print_json({"id": edit.after.id, "name": edit.after.name, "changed": to_json(told)} | times)
    else:
        print_text(f"Changed job {edit.after.name} (id {edit.after.id}).")
        facts: list[tuple[str, Cell]] = []
        zones = zone_of(edit.before.timezone), zone_of(edit.after.timezone)
        for column in changed:
            old, new = (_shown(job, column, zone) for job, zone in zip((edit.before, edit.after), zones, strict=True))
            facts.append((column, f"{old} → {new}"))
        print_facts(facts)
        if set(changed) & {*_WHEN, "exclude"}:
            _print_times("Next times before", edit.slots_before, edit.before, edit.now)
            _print_times("Next times now", edit.slots_after, edit.after, edit.now)
    if "command" in changed and (remark := d.remark_on(edit.after.kind, edit.after.command)):
        note(f"Note: {remark}.")
    if set(changed) & set(_WHEN):
        for remark in (zone_note(edit.after.timezone), *clock_changes(rule_of(edit.after), edit.now)):
            if remark:
                note(f"Note: {remark}.")


def _of(job: Job, column: str) -> Any:
    return getattr(job, column)


def _shown(job: Job, column: str, zone: Any) -> str:
    value = _of(job, column)
    return "-" if value is None or value == [] else clean(show_value(value, zone))


def _times(slots: Sequence[Slot]) -> list[datetime]:
    return [slot.at for slot in slots]


def _print_times(title: str, slots: Sequence[Slot], job: Job, now: datetime) -> None:
    print_heading(title)
    if slots:
        print_slots(slots, zone_of(job.timezone), now)
    else:
        say("It is not due by itself.")
