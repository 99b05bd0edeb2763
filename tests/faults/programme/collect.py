"""Reads what there is at the end into a history: rows, the truth of edits, marks of commands, logs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.faults.checker import Clock, Edition, Effect, Hold, Job, Mark, Run
from tests.faults.programme.hosts import Host

# What Python writes where nobody has caught an exception, be it a worker's or its guard's.
_LAST_OF_A_TRACE = re.compile(r"[\w.]+(Error|Exception|Exit|Interrupt|Warning)\b")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a worker's log. `at` is by the wall clock of its host."""

    host: str
    name: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        left_out = ("event", "level", "timestamp", "part", "exception")
        rest = " ".join(f"{key}={value}" for key, value in self.fields.items() if key not in left_out)
        return f"{self.host} {self.fields.get('timestamp', '')[11:23]} {self.name} {rest}"


def read_runs(connection: psycopg.Connection) -> list[Run]:
    rows = connection.execute(
        "select id, job_name, kind, trigger, scheduled_for, run_at, attempt, status, worker_id::text, started_at,"
        " finished_at, reason, missed_count, missed_until, backfill, exit_code, error from pgcron.runs order by id"
    )
    return [Run(*row) for row in rows]


def read_finals(connection: psycopg.Connection) -> dict[int, tuple[str, datetime, str | None]]:
    """How the runs that are over ended: these may never change."""
    rows = connection.execute(
        "select id, status, finished_at, worker_id::text from pgcron.runs where finished_at is not null"
    )
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def read_jobs(connection: psycopg.Connection) -> list[Job]:
    """Every job that ever was, with its editions, by the truth of the edits."""
    with connection.cursor(row_factory=dict_row) as cursor:
        edits = cursor.execute("select * from truth.edits order by id").fetchall()
        now = cursor.execute("select name, planned, next_run_at from pgcron.jobs").fetchall()
    by_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for edit in edits:
        by_job[edit["job"]].append(edit)
    state = {row["name"]: row for row in now}
    return [_job(name, found, state.get(name)) for name, found in by_job.items()]


def _job(name: str, edits: list[dict[str, Any]], state: dict[str, Any] | None) -> Job:
    # An edit that does not anchor the schedule anew makes no edition.
    edits = [edit for before, edit in zip([None, *edits], edits, strict=False) if _is_new(before, edit)]
    ends = [(edit["old_planned"], edit["old_next"]) for edit in edits[1:]]
    if state is not None:
        ends.append((state["planned"], state["next_run_at"]))
    editions = [
        _edition(edit, planned, following)
        for edit, (planned, following) in zip(edits, ends, strict=False)
        if edit["schedule"] is not None
    ]
    first = edits[0]
    return Job(
        name,
        tuple(edition for edition in editions if edition is not None),
        first["max_attempts"],
        first["max_running"],
        tuple(_halts(edits)),
        first["fenced"],
        first["prompt"],
    )


def _is_new(before: dict[str, Any] | None, edit: dict[str, Any]) -> bool:
    return before is None or any(before[name] != edit[name] for name in ("anchored_at", "enabled", "paused_until"))


def _edition(edit: dict[str, Any], planned: bool, following: datetime | None) -> Edition:
    schedule = edit["schedule"] if edit["enabled"] and planned else None
    # Where the database's clock has gone back, what was accounted for before lies ahead, and stays.
    after = max(edit["anchored_at"], edit["old_fired"] or edit["anchored_at"])
    return Edition(schedule, edit["timezone"], after, following, not_before=edit["paused_until"])


def _halts(edits: list[dict[str, Any]]) -> Iterable[tuple[datetime, datetime | None]]:
    """From each edit that stops a job until the next; a moment more, since nobody sees an edit before its commit."""
    for edit, following in zip(edits, [*edits[1:], None], strict=True):
        until = following["at"] if following else None
        if edit["action"] == "deleted" or not edit["enabled"]:
            yield edit["at"], until
        elif edit["paused_until"] is not None:
            yield edit["at"], min(filter(None, [until, edit["paused_until"]]))
        elif edit["action"] != "made":
            # A retry that is queued already is withdrawn, and one at this very moment may see either.
            yield edit["at"], edit["at"]


def read_effects(connection: psycopg.Connection) -> list[Effect]:
    rows = connection.execute("select run_id, nominal, at, exactly_once from truth.effects")
    return [Effect(*row) for row in rows]


def read_holds(connection: psycopg.Connection) -> list[Hold]:
    return [Hold(*row) for row in connection.execute("select job, began, ended, since, until from truth.holds")]


def read_asked(connection: psycopg.Connection) -> list[tuple[int, str]]:
    """Runs that people have been told of, and whose row is not there."""
    rows = connection.execute(
        "select run_id, job from truth.asked a where not exists (select from pgcron.runs r where r.id = a.run_id)"
    )
    return [(row[0], row[1]) for row in rows]


def read_marks(files: Iterable[Path]) -> list[Mark]:
    marks = []
    for path in files:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            word, run_id, at, code, job = line.split(" ", 4)
            marks.append(Mark(job, int(run_id), word, float(at), int(code)))
    return marks


def read_events(hosts: Iterable[Host]) -> list[Event]:
    found = []
    for host in hosts:
        for line in host.log.read_text(errors="replace").splitlines() if host.log.exists() else ():
            if line.startswith("{"):
                fields = json.loads(line)
                found.append(Event(host.name, fields["event"], fields))
            else:
                found.append(Event(host.name, "text", {"text": line}))
    return found


def is_short_of_processes(text: str) -> bool:
    """Whether the machine itself is full, of other programs: no fault of the storm's, nor of the program's."""
    return "Resource temporarily unavailable" in text or "start new thread" in text


def complaints(events: Iterable[Event]) -> list[str]:
    """What no worker should ever have to say: an exception that nobody caught in words."""
    found: dict[str, int] = defaultdict(int)
    for event in events:
        text = event.fields.get("exception")
        if is_short_of_processes(str(event.fields)):
            continue
        if text is not None:
            last = [line for line in str(text).strip().splitlines() if line.strip()][-1]
            found[f"{event.name} {event.fields.get('loop', '')}: {re.sub(r'[0-9]{3,}', 'N', last)}"] += 1
        elif event.name == "text" and _LAST_OF_A_TRACE.match(event.fields["text"]):
            found[f"on stderr: {event.fields['text']}"] += 1
    return [f"{count} times in the logs: {text}" for text, count in found.items()]


def locks_left(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute(
        "select mode, classid, objid, pid from pg_locks where locktype = 'advisory'"
        " and database = (select oid from pg_database where datname = current_database())"
    )
    return [f"{mode} on ({space}, {key}) of backend {pid}" for mode, space, key, pid in rows]


def clock(steps: Iterable[tuple[float, datetime, bool]]) -> Clock:
    return Clock(tuple(steps))
