"""The jobs of the programme: all kinds, overlap rules, schedules, retries, catch-up rules; each tells what it does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg

SCHEMA: LiteralString = """
create schema truth;
create table truth.effects (run_id bigint, nominal timestamptz, at timestamptz, exactly_once boolean);
create table truth.edits (
    id bigint generated always as identity, job text, action text, at timestamptz,
    old_planned boolean, old_next timestamptz, old_fired timestamptz,
    schedule text, timezone text, enabled boolean, paused_until timestamptz, anchored_at timestamptz,
    max_attempts int, max_running int, fenced boolean, prompt boolean);
create table truth.asked (run_id bigint, job text);
create table truth.holds (job text, began timestamptz, ended timestamptz, since float8, until float8);
create role worker login password 'worker';
grant usage on schema pgcron, truth to worker;
grant select, insert, update, delete on all tables in schema pgcron, truth to worker;
grant usage on all sequences in schema pgcron to worker;
grant execute on all functions in schema pgcron to worker;
"""
_EFFECT = (
    "insert into truth.effects select current_setting('pgcron.run_id')::bigint,"
    " current_setting('pgcron.scheduled_for')::timestamptz, clock_timestamp(), {exactly_once}"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """One job as it is made. `fenced`, `prompt`: what the checker may expect of it."""

    name: str
    kind: str
    command: str
    schedule: str
    columns: dict[str, Any]
    fenced: bool = True
    prompt: bool = True
    timezone: str = "UTC"


def all_jobs(mark: Path, url: str) -> list[Spec]:
    """The usual ones, about ten occurrences a second."""
    return [*_shell(mark), *_sql(), *_python(), *_http(url)]


def shell(
    name: str, mark: Path, schedule: str, seconds: float, *, code: int = 0, before: str = "", **columns: Any
) -> Spec:
    """A command that lives so long, and ends so."""
    prompt = bool(columns.pop("prompt", True))
    columns.setdefault("max_attempts", 2)
    command = f"{before}exec {mark} {seconds} {code}"
    return Spec(name, "shell", command, schedule, {"env_from": ["TRUTH"], **columns}, prompt=prompt)


def _shell(mark: Path) -> list[Spec]:
    tree = f"(setsid {mark} 3 0 alive &) ; {mark} 4 0 alive & "
    return [
        shell("tick", mark, "@every 1s", 0.2),
        shell("short", mark, "@every 1s", 0.6, max_attempts=3, retry_delay=timedelta(0)),
        shell("long", mark, "@every 2s", 5, max_attempts=2, retry_delay=timedelta(0)),
        shell("marathon", mark, "@every 3s", 14, max_attempts=2, retry_delay=timedelta(0)),
        shell("once", mark, "@every 2s", 1.5, max_attempts=1),
        shell("tree", mark, "@every 5s", 4, before=tree, retry_delay=timedelta(0)),
        shell("queued", mark, "@every 3s", 2, overlap="queue_one", prompt=False),
        shell("backlog", mark, "@every 2s", 0.8, overlap="queue_all", catch_up="all", catch_up_limit=20, prompt=False),
        shell("replaced", mark, "@every 4s", 6, overlap="replace", kill_grace=timedelta(0), prompt=False),
        shell("pair", mark, "@every 1s", 1.7, overlap="allow", max_running=2, prompt=False),
        shell("crowd", mark, "@every 2s", 3, overlap="allow", prompt=False, max_attempts=3),
        shell("failing", mark, "@every 3s", 0.1, code=3, max_attempts=3, retry_delay=timedelta(milliseconds=300)),
        shell("overtime", mark, "@every 5s", 30, timeout=timedelta(seconds=1.5), kill_grace=timedelta(0)),
        shell("strict", mark, "@every 2s", 0.5, catch_up="skip", catch_up_window=timedelta(seconds=8), prompt=False),
        shell("minutely", mark, "* * * * *", 2),
        shell("cron", mark, "*/2 * * * * *", 0.3),
        shell("after", mark, "@every 2s after finish", 1, prompt=False),
        shell("manual", mark, "@manual", 0.4, overlap="queue_all", prompt=False),
        shell("byhand", mark, "@manual", 1, overlap="skip", prompt=False),
    ]


def _sql() -> list[Spec]:
    once, loose = _EFFECT.format(exactly_once="true"), _EFFECT.format(exactly_once="false")
    quick = {"max_attempts": 5, "retry_delay": timedelta(milliseconds=200)}
    return [
        Spec("report", "sql", once, "@every 1s", quick),
        Spec("summary", "sql", f"{once}; select pg_sleep(0.3)", "@every 1s", quick),
        Spec("slow-report", "sql", f"select pg_sleep(1); {once}; select pg_sleep(2)", "@every 2s", quick),
        Spec(
            "side-by-side",
            "sql",
            f"{once}; select pg_sleep(1)",
            "@every 1s",
            {**quick, "overlap": "allow"},
            prompt=False,
        ),
        Spec("vacuum", "sql", loose, "@every 4s", {"args": json.dumps({"transaction": False}), "max_attempts": 2}),
    ]


def _python() -> list[Spec]:
    work = "tests.faults.programme.work"
    thread = json.dumps({"isolation": "thread", "seconds": 0.3})
    return [
        Spec("child", "python", f"{work}:child", "@every 4s", {"args": '{"seconds": 1}', "env_from": ["TRUTH"]}),
        Spec("thread", "python", f"{work}:inside", "@every 2s", {"args": thread, "env_from": ["TRUTH"]}, fenced=False),
    ]


def _http(url: str) -> list[Spec]:
    return [Spec("hook", "http", url, "@every 2s", {"max_attempts": 2, "timeout": timedelta(seconds=5)}, fenced=False)]


def insert(connection: psycopg.Connection, spec: Spec) -> None:
    """Makes a job, and writes down the truth of it in the same transaction."""
    columns = {"timeout": timedelta(minutes=1), "kill_grace": timedelta(seconds=1), **spec.columns}
    columns |= {"name": spec.name, "kind": spec.kind, "command": spec.command, "schedule": spec.schedule}
    columns["timezone"] = spec.timezone
    names = list(columns)
    statement = (
        f"with made as (insert into pgcron.jobs ({', '.join(names)}) values ({', '.join(f'%({n})s' for n in names)})"
        " returning *) insert into truth.edits (job, action, at, old_planned, old_next, schedule, timezone, enabled,"
        " paused_until, anchored_at, max_attempts, max_running, fenced, prompt)"
        " select name, 'made', clock_timestamp(), true, null, schedule, timezone, enabled, paused_until, anchored_at,"
        " max_attempts, case when overlap = 'allow' then max_running else 1 end, %(fenced)s, %(prompt)s from made"
    )
    connection.execute(statement, {**columns, "fenced": spec.fenced, "prompt": spec.prompt})
