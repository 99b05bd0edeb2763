"""`pgcron-runner job add`: a definition, checked here before a database is asked."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli import job_definition as d
from pgcron_runner.cli.clock_changes import clock_changes
from pgcron_runner.cli.options import (
    AsJson,
    Dsn,
    Quiet,
    WrongUse,
    examples,
    parse_object,
    parse_queue,
    required_timezone,
    timezone_option,
)
from pgcron_runner.cli.output import clean, note, print_json, say, zone_of
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import Rule, in_words, next_slots, print_slots
from pgcron_runner.model import CatchUp, DstGap, DstRepeat, Overlap
from pgcron_runner.schedule import parse_schedule, zone_note
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import NewJob

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_ZERO, _HOUR = timedelta(0), timedelta(hours=1)

_EXAMPLES = examples(
    "pgcron-runner job add clean-up \\",
    "    --schedule '0 3 * * *' --timezone Europe/Berlin \\",
    "    --sql 'delete from sessions where expires_at < now()'",
    "pgcron-runner job add backup --schedule @daily --timezone UTC \\",
    "    --shell /usr/local/bin/backup --timeout 2h --attempts 3",
    "pgcron-runner job add report --schedule '@every 15m' --timezone UTC \\",
    """    --python myapp.reports:send --args '{"kind": "short"}'""",
    "pgcron-runner job add refresh --schedule '*/5 * * * *' --timezone UTC \\",
    """    --http https://api.example.org/refresh --args '{"method": "POST"}'""",
)


def register(app: typer.Typer) -> None:
    """Adds the command to `pgcron-runner job`."""
    app.command(name="add", epilog=_EXAMPLES)(add)


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Unique name of the job.", show_default=False)],
    *,
    shell: Annotated[str | None, d.SHELL] = None,
    sql: Annotated[str | None, d.SQL] = None,
    python: Annotated[str | None, d.PYTHON] = None,
    http: Annotated[str | None, d.HTTP] = None,
    args: Annotated[str, d.ARGS] = "{}",
    schedule: Annotated[str, d.SCHEDULE],
    timezone: Annotated[str | None, timezone_option(rich_help_panel=d.WHEN)] = None,
    starts_at: Annotated[str | None, d.STARTS_AT] = None,
    ends_at: Annotated[str | None, d.ENDS_AT] = None,
    exclude: Annotated[list[str] | None, d.EXCLUDE] = None,
    jitter: Annotated[timedelta, d.JITTER] = _ZERO,
    dst_gap: Annotated[DstGap, d.DST_GAP] = DstGap.RUN_AFTER,
    dst_repeat: Annotated[DstRepeat, d.DST_REPEAT] = DstRepeat.FIRST,
    disabled: Annotated[bool, d.DISABLED] = False,
    overlap: Annotated[Overlap, d.OVERLAP] = Overlap.SKIP,
    max_running: Annotated[int | None, d.MAX_RUNNING] = None,
    catch_up: Annotated[CatchUp, d.CATCH_UP] = CatchUp.LATEST,
    catch_up_window: Annotated[timedelta | None, d.CATCH_UP_WINDOW] = None,
    catch_up_limit: Annotated[int, d.CATCH_UP_LIMIT] = 100,
    attempts: Annotated[int, d.ATTEMPTS] = 1,
    retry_delay: Annotated[timedelta, d.RETRY_DELAY] = timedelta(seconds=30),
    retry_backoff: Annotated[float, d.RETRY_BACKOFF] = 2.0,
    retry_max_delay: Annotated[timedelta, d.RETRY_MAX_DELAY] = _HOUR,
    timeout: Annotated[timedelta, d.TIMEOUT] = _HOUR,
    kill_grace: Annotated[timedelta, d.KILL_GRACE] = timedelta(seconds=10),
    memory_limit: Annotated[int | None, d.MEMORY_LIMIT] = None,
    output_limit: Annotated[int, d.OUTPUT_LIMIT] = 64,
    keep_for: Annotated[timedelta | None, d.KEEP_FOR] = None,
    late_after: Annotated[timedelta | None, d.LATE_AFTER] = None,
    long_after: Annotated[timedelta | None, d.LONG_AFTER] = None,
    pause_after: Annotated[int | None, d.PAUSE_AFTER] = None,
    redact: Annotated[list[str] | None, d.REDACT] = None,
    heartbeat_url: Annotated[str | None, d.HEARTBEAT_URL] = None,
    queue: Annotated[str, d.QUEUE] = "default",
    priority: Annotated[int, d.PRIORITY] = 0,
    env: Annotated[list[str] | None, d.ENV] = None,
    env_from: Annotated[list[str] | None, d.ENV_FROM] = None,
    working_dir: Annotated[str | None, d.WORKING_DIR] = None,
    tag: Annotated[list[str] | None, d.TAG] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Add a job. It is checked before anything is written, and its next times are shown.

    Durations are written as 90s, 15m, 1h30m or 7 days.
    """
    kind, command = d.what_to_run(shell, sql, python, http)
    keywords = parse_object(args, field="args")
    d.check_args(kind, command, keywords)
    zone_name = required_timezone(timezone)
    d.check_name(name)
    parse_schedule(schedule, zone_name, name=name, dst_gap=dst_gap, dst_repeat=dst_repeat)
    zone = zone_of(zone_name)
    starts, ends = d.bounds(starts_at, ends_at, zone)
    d.check_max_running(max_running, overlap)
    job = NewJob(
        name=name,
        kind=kind.value,
        command=command,
        args=json.dumps(keywords),
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
        env=json.dumps(d.variables(env or [])),
        env_from=[d.variable("env-from", text) for text in env_from or []],
        working_dir=working_dir,
        keep_for=keep_for,
        tags=[d.tag_of(text) for text in tag or []],
        source="cli",
        dst_gap=dst_gap.value,
        dst_repeat=dst_repeat.value,
        exclude=d.calendars(exclude or []),
        late_after=late_after,
        long_after=long_after,
        pause_after=pause_after,
        redact=[d.pattern(text) for text in redact or []],
        heartbeat_url=None if heartbeat_url is None else d.check_heartbeat_url(heartbeat_url),
    )
    _insert(job, dsn, zone, as_json=as_json, quiet=quiet)


def _insert(job: NewJob, dsn: str | None, zone: ZoneInfo, *, as_json: bool, quiet: bool) -> None:
    async def insert(connection: Connection) -> tuple[int, datetime]:
        inserted = await catalog.insert_job(connection, job)
        if inserted is None:
            raise WrongUse(f"name: {job.name!r} is taken. See: pgcron-runner job show {shlex.quote(job.name)}")
        return inserted

    job_id, anchored_at = with_database(dsn, insert)
    if quiet and not as_json:
        return
    after = anchored_at if job.starts_at is None else max(anchored_at, job.starts_at - timedelta(microseconds=1))
    rule = Rule(job.schedule, job.timezone, job.name, DstGap(job.dst_gap), DstRepeat(job.dst_repeat), job.ends_at)
    slots = next_slots(rule, after, 3)
    if as_json:
        print_json({"id": job_id, "name": job.name, "next_times": [slot.at for slot in slots]})
    else:
        words = in_words(rule)
        when = f": {words[0].lower()}{words[1:]}" if words else ""
        say(f"Added job {clean(job.name)} (id {job_id}){when}.")
    if slots and not as_json:
        print_slots(slots, zone, anchored_at)
    remarks = (
        d.remark_on(job.kind, job.command),
        zone_note(job.timezone),
        _remark(job, has_times=bool(slots)),
        *clock_changes(rule, after),
    )
    for remark in remarks:
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
