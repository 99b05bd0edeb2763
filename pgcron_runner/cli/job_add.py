"""`pgcron-runner job add`: a definition, checked here before a database is asked."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli.options import (
    YEAR,
    Dsn,
    WrongUse,
    duration,
    examples,
    option,
    parse_instant,
    parse_object,
    parse_queue,
    required_timezone,
    timezone_option,
)
from pgcron_runner.cli.output import clean, note, say, zone_of
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import Rule, next_slots, print_slots
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import CatchUp, DstGap, DstRepeat, Kind, Overlap
from pgcron_runner.schedule import parse_schedule, zone_note
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import NewJob

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_ZERO = timedelta(0)
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_EXAMPLES = examples(
    "pgcron-runner job add clean-up \\",
    "    --schedule '0 3 * * *' --timezone Europe/Berlin \\",
    "    --sql 'delete from sessions where expires_at < now()'",
    "pgcron-runner job add backup --schedule @daily --timezone UTC \\",
    "    --shell /usr/local/bin/backup --timeout 2h --attempts 3",
    "pgcron-runner job add report --schedule '@every 15m' --timezone UTC \\",
    """    --python myapp.reports:send --args '{"kind": "short"}'""",
)


def _option(flag: str, metavar: str | None, panel: str, text: str, **more: Any) -> Any:
    return option(flag, metavar, text, rich_help_panel=panel, **more)


def _duration(flag: str, panel: str, text: str, **more: Any) -> Any:
    bounds = {name: more.pop(name) for name in ("minimum", "maximum") if name in more}
    return _option(flag, "DURATION", panel, text, parser=duration(flag.removeprefix("--"), **bounds), **more)


def register(app: typer.Typer) -> None:
    """Adds the command to `pgcron-runner job`."""
    app.command(name="add", epilog=_EXAMPLES)(add)


_WHAT, _WHEN, _WHERE = "What (one of the first three)", "When", "Where and how"
_CLASH, _RETRY, _LIMITS = "When runs meet, or nobody was there", "When it fails", "Limits"
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Unique name of the job.", show_default=False)],
    *,
    shell: Annotated[str | None, _option("--shell", "CMD", _WHAT, "A line for /bin/sh.")] = None,
    sql: Annotated[str | None, _option("--sql", "SQL", _WHAT, "Statements: one transaction, exactly once.")] = None,
    python: Annotated[str | None, _option("--python", "MODULE:FUNCTION", _WHAT, "A function of yours.")] = None,
    args: Annotated[
        str, _option("--args", "JSON", _WHAT, "A JSON object: keywords of a function, settings of the other kinds.")
    ] = "{}",
    schedule: Annotated[
        str, _option("--schedule", "SCHEDULE", _WHEN, "Five cron fields, @daily, @every 15m, @manual; see README.")
    ],
    timezone: Annotated[str | None, timezone_option(rich_help_panel=_WHEN)] = None,
    starts_at: Annotated[
        str | None, _option("--starts-at", "INSTANT", _WHEN, "Never before; in the zone, if it has no offset.")
    ] = None,
    ends_at: Annotated[str | None, _option("--ends-at", "INSTANT", _WHEN, "Never after.")] = None,
    jitter: Annotated[
        timedelta,
        _duration("--jitter", _WHEN, "Start up to so much later, always the same.", minimum=_ZERO, maximum=_DAY),
    ] = _ZERO,
    dst_gap: Annotated[
        DstGap, _option("--dst-gap", None, _WHEN, "A fixed time that the clock jumps over.", show_default=True)
    ] = DstGap.RUN_AFTER,
    dst_repeat: Annotated[
        DstRepeat, _option("--dst-repeat", None, _WHEN, "A fixed time that the clock shows twice.", show_default=True)
    ] = DstRepeat.FIRST,
    disabled: Annotated[bool, _option("--disabled", None, _WHEN, "Start nothing before job resume.")] = False,
    overlap: Annotated[
        Overlap, _option("--overlap", None, _CLASH, "What a due time does while a run is live.", show_default=True)
    ] = Overlap.SKIP,
    max_running: Annotated[
        int | None, _option("--max-running", "N", _CLASH, "With overlap allow: so many at a time.", min=1)
    ] = None,
    catch_up: Annotated[
        CatchUp, _option("--catch-up", None, _CLASH, "Which of the missed times are run.", show_default=True)
    ] = CatchUp.LATEST,
    catch_up_window: Annotated[
        timedelta | None, _duration("--catch-up-window", _CLASH, "None that is older than this.")
    ] = None,
    catch_up_limit: Annotated[
        int,
        _option("--catch-up-limit", "N", _CLASH, "With catch-up all: so many.", min=1, max=10_000, show_default=True),
    ] = 100,
    attempts: Annotated[
        int, _option("--attempts", "N", _RETRY, "The first one included.", min=1, max=100_000, show_default=True)
    ] = 1,
    retry_delay: Annotated[
        timedelta, _duration("--retry-delay", _RETRY, "Before the second attempt (30s).", minimum=_ZERO, maximum=YEAR)
    ] = timedelta(seconds=30),
    retry_backoff: Annotated[
        float, _option("--retry-backoff", "X", _RETRY, "How each pause grows.", min=1, max=100, show_default=True)
    ] = 2.0,
    retry_max_delay: Annotated[
        timedelta, _duration("--retry-max-delay", _RETRY, "No pause is longer (1h).", minimum=_ZERO, maximum=YEAR)
    ] = _HOUR,
    timeout: Annotated[
        timedelta, _duration("--timeout", _LIMITS, "How long an attempt may take (1h).", maximum=YEAR)
    ] = _HOUR,
    kill_grace: Annotated[
        timedelta, _duration("--kill-grace", _LIMITS, "From TERM to KILL (10s).", minimum=_ZERO, maximum=_HOUR)
    ] = timedelta(seconds=10),
    memory_limit: Annotated[
        int | None, _option("--memory-limit", "MB", _LIMITS, "Of the whole process tree; not enforced yet.", min=1)
    ] = None,
    output_limit: Annotated[
        int, _option("--output-limit", "kB", _LIMITS, "How much output is kept.", min=1, max=10_240, show_default=True)
    ] = 64,
    keep_for: Annotated[timedelta | None, _duration("--keep-for", _LIMITS, "How long history is kept (30d).")] = None,
    queue: Annotated[
        str, _option("--queue", "NAME", _WHERE, "Which workers may run it.", show_default=True)
    ] = "default",
    priority: Annotated[
        int, _option("--priority", "N", _WHERE, "Higher goes first.", min=-32_768, max=32_767, show_default=True)
    ] = 0,
    env: Annotated[list[str] | None, _option("--env", "NAME=VALUE", _WHERE, "A variable; may be repeated.")] = None,
    env_from: Annotated[
        list[str] | None, _option("--env-from", "NAME", _WHERE, "A worker's variable to pass on; may be repeated.")
    ] = None,
    working_dir: Annotated[str | None, _option("--working-dir", "FOLDER", _WHERE, "Where the command starts.")] = None,
    tag: Annotated[list[str] | None, _option("--tag", "WORD", _WHERE, "For searching; may be repeated.")] = None,
    dsn: Dsn = None,
) -> None:
    """Add a job. It is checked before anything is written, and its next times are shown.

    Durations are written as 90s, 15m, 1h30m or 7 days.
    """
    kind, command = _what(shell, sql, python)
    zone_name = required_timezone(timezone)
    _check_name(name)
    parse_schedule(schedule, zone_name, name=name, dst_gap=dst_gap, dst_repeat=dst_repeat)
    zone = zone_of(zone_name)
    starts, ends = _bounds(starts_at, ends_at, zone)
    if max_running is not None and overlap is not Overlap.ALLOW:
        raise InvalidInput(
            "max-running", max_running, "needs overlap allow", example=f"--overlap allow --max-running {max_running}"
        )
    job = NewJob(
        name=name,
        kind=kind.value,
        command=command,
        args=json.dumps(parse_object(args, field="args")),
        schedule=schedule,
        timezone=zone_name,
        enabled=not disabled,
        queue=parse_queue(queue),
        priority=priority,
        starts_at=starts,
        ends_at=ends,
        jitter=jitter,
        timeout=timeout,
        kill_grace=kill_grace,
        overlap=overlap.value,
        max_running=max_running,
        catch_up=catch_up.value,
        catch_up_window=catch_up_window,
        catch_up_limit=catch_up_limit,
        max_attempts=attempts,
        retry_delay=retry_delay,
        retry_backoff=retry_backoff,
        retry_max_delay=retry_max_delay,
        memory_limit_mb=memory_limit,
        output_limit_kb=output_limit,
        env=json.dumps(_variables(env or [])),
        env_from=[_variable("env-from", text) for text in env_from or []],
        working_dir=working_dir,
        keep_for=keep_for,
        tags=[_tag(text) for text in tag or []],
        source="cli",
        dst_gap=dst_gap.value,
        dst_repeat=dst_repeat.value,
    )
    _insert(job, dsn, zone)


def _insert(job: NewJob, dsn: str | None, zone: ZoneInfo) -> None:
    async def insert(connection: Connection) -> tuple[int, datetime]:
        inserted = await catalog.insert_job(connection, job)
        if inserted is None:
            raise WrongUse(f"name: {job.name!r} is taken. See: pgcron-runner job show {shlex.quote(job.name)}")
        return inserted

    job_id, anchored_at = with_database(dsn, insert)
    say(f"Added job {clean(job.name)} (id {job_id}).")
    after = anchored_at if job.starts_at is None else max(anchored_at, job.starts_at - timedelta(microseconds=1))
    rule = Rule(job.schedule, job.timezone, job.name, DstGap(job.dst_gap), DstRepeat(job.dst_repeat), job.ends_at)
    slots = next_slots(rule, after, 3)
    if slots:
        print_slots(slots, zone, anchored_at)
    for remark in (zone_note(job.timezone), _remark(job, has_times=bool(slots))):
        if remark:
            note(f"Note: {remark}.")


def _remark(job: NewJob, *, has_times: bool) -> str | None:
    by_hand = f"pgcron-runner job run {shlex.quote(job.name)}"
    if not job.enabled:
        return f"it is disabled; start it with: pgcron-runner job resume {shlex.quote(job.name)}"
    schedule = parse_schedule(job.schedule, job.timezone, name=job.name)
    if schedule.is_manual:
        return f"it runs when somebody says so: {by_hand}"
    if has_times or schedule.after_finish is not None:
        return None
    return f"it is never due from now on; run it by hand: {by_hand}"


def _what(shell: str | None, sql: str | None, python: str | None) -> tuple[Kind, str]:
    given = [
        (kind, text) for kind, text in ((Kind.SHELL, shell), (Kind.SQL, sql), (Kind.PYTHON, python)) if text is not None
    ]
    if len(given) != 1:
        how_many = "say what to run" if not given else "say only one thing to run"
        raise WrongUse(f"kind: {how_many}: --shell, --sql or --python. For example: --sql 'analyze'")
    kind, text = given[0]
    if not text.strip():
        raise InvalidInput(kind.value, text, "is empty", example="--shell /usr/local/bin/backup")
    if kind is Kind.PYTHON and not _FUNCTION.fullmatch(text.strip()):
        raise InvalidInput("python", text, "does not name a function", example="myapp.reports:send_daily")
    return kind, text


def _check_name(name: str) -> None:
    if name != name.strip() or not 1 <= len(name) <= 100 or _UNSTORABLE.search(name):
        problem = "is not 1 to 100 characters without blanks at the ends"
        raise InvalidInput("name", name, problem, example="nightly-report")


def _bounds(starts_at: str | None, ends_at: str | None, zone: ZoneInfo) -> tuple[datetime | None, datetime | None]:
    starts = None if starts_at is None else parse_instant(starts_at, field="starts-at", zone=zone)
    ends = None if ends_at is None else parse_instant(ends_at, field="ends-at", zone=zone)
    if starts and ends and starts >= ends:
        raise InvalidInput(
            "ends-at", ends_at, "is not after starts-at", example=(starts + timedelta(days=1)).isoformat()
        )
    return starts, ends


def _variables(texts: list[str]) -> dict[str, str]:
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            # The text may be a secret that stands where it should not: only its name is repeated.
            raise InvalidInput("env", name[:20], "has no value", example="LEVEL=info")
        variables[_variable("env", name)] = value
    return variables


def _variable(field: str, name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(
            field, name, "is not the name of a variable", example="LEVEL=info" if field == "env" else "API_TOKEN"
        )
    return name


def _tag(text: str) -> str:
    if not text.strip() or _UNSTORABLE.search(text):
        raise InvalidInput("tag", text, "is not a word", example="reports")
    return text.strip()
