"""Statements for the review of jobs: what their history tells, and what holds for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgcron_runner.check import Figures, Installation, Route
from pgcron_runner.statements import query

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


async def list_figures(connection: Connection) -> dict[str, Figures]:
    """The figures of all jobs, by name."""
    cursor = await connection.execute(query("list_check_figures"))
    columns = [column.name for column in cursor.description or ()][1:]
    return {row[0]: Figures(**dict(zip(columns, row[1:], strict=True))) for row in await cursor.fetchall()}


async def read_installation(connection: Connection) -> Installation:
    """The facts about the whole installation."""
    cursor = await connection.execute(query("read_installation"))
    row = await cursor.fetchone()
    assert row is not None
    keep_for, channels, routes = row
    made = (Route(**route | {"tags": tuple(route["tags"]), "events": tuple(route["events"])}) for route in routes)
    return Installation(channels=tuple(channels), routes=tuple(made), keep_for=keep_for)
