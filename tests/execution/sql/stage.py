"""What the tests of SQL jobs have in common: a table to work on, and looks at what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg

from pgcron_runner.execution.sql import SqlRunner
from tests.execution.tasks import SESSION_NAME
from tests.support.databases import Database
from tests.support.proxy import Proxy

MakeRunner = Callable[..., SqlRunner]

WORK = "create table work (n int)"
DONE = "insert into work values (1)"
ALONE: dict[str, Any] = {"transaction": False}


def work(database: Database) -> int:
    """How often DONE was done."""
    return int(database.value("select count(*) from work"))


def add_deferred_trigger(database: Database, body: LiteralString) -> None:
    """Runs at COMMIT of whoever inserts into `work`."""
    database.execute(
        """create function at_commit() returns trigger language plpgsql as $$begin
           """
        + body
        + """; return null; end$$"""
    )
    database.execute(
        """create constraint trigger at_commit after insert on work deferrable initially deferred
           for each row execute function at_commit()"""
    )


async def sleeper(database: Database) -> None:
    """Until a job sleeps on the server."""

    def sleeps() -> bool:
        events = "select count(*) from pg_stat_activity where application_name = %s and wait_event = 'PgSleep'"
        return bool(database.value(events, (SESSION_NAME,)))

    async with asyncio.timeout(10):
        while not sleeps():  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)


def proxy_to(database: Database) -> Proxy:
    """A network that can fail, between a runner and its database."""
    info = psycopg.conninfo.conninfo_to_dict(database.tcp_dsn)
    return Proxy((str(info.get("hostaddr") or info["host"]), int(str(info["port"]))))
