"""Waiting for what must become true, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

_POLL = 0.01


def eventually(check: Callable[[], T], timeout: float = 10, *, message: str = "") -> T:
    """The first truthy value of `check`; AssertionError with the last one after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := check()):
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(check, timeout, message, value))
        time.sleep(_POLL)
    return value


async def eventually_async(
    check: Callable[[], Awaitable[T]],
    timeout: float = 10,  # noqa: ASYNC109 - reports the last value, which asyncio.timeout cannot
    *,
    message: str = "",
) -> T:
    """The same for a coroutine function; the event loop runs between two tries."""
    deadline = time.monotonic() + timeout
    while not (value := await check()):
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(check, timeout, message, value))
        await asyncio.sleep(_POLL)
    return value


def blocked_on_lock(connection_or_dsn: psycopg.Connection[Any] | str, pid: int) -> bool:
    """Whether that backend waits for a heavyweight lock (row, table or advisory) at this moment."""
    if isinstance(connection_or_dsn, str):
        with psycopg.connect(connection_or_dsn, autocommit=True) as connection:
            return blocked_on_lock(connection, pid)
    row = connection_or_dsn.execute(
        "select wait_event_type = 'Lock' from pg_catalog.pg_stat_activity where pid = %s", [pid]
    ).fetchone()
    return bool(row and row[0])


def _complaint(check: Callable[[], object], timeout: float, message: str, value: object) -> str:
    what = message or getattr(check, "__qualname__", repr(check))
    return f"not within {timeout:g} s: {what} (last value: {value!r})"
