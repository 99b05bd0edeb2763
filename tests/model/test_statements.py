"""The model's statements answer as Postgres does: the same calls, in an order of chance, to both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Connection, Purpose
from pgcron_runner.statements import query
from tests.model.server import T0, Server, Session
from tests.model.truth import Truth
from tests.model.world import World
from tests.statements.builders import OTHER_WORKER, WORKER, add_planned_job
from tests.support.databases import Database

_OVERLAPS: tuple[tuple[str, int | None], ...] = (("skip", None), ("queue_all", None), ("allow", 2), ("allow", None))
_LEASE = timedelta(seconds=30)
_REGISTERED: dict[str, Any] = {
    "name": "w",
    "host": "h",
    "pid": 1,
    "version": "1",
    "zone_data": "",
    "queues": None,
    "kinds": ["sql"],
}
# What of a row both must say; the rest is what the model leaves out, or a time of the server's own clock.
_TOLD: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "claim_runs": lambda row: (row[0], row[1], row[6], row[7], row[8], row[-1]) if row[0] else (row[1], row[-1]),
    "list_beats": lambda row: (row[0], row[1] is None, row[2]),
    "beat_worker": lambda row: True,
    "lock_lost_runs": lambda row: row[:4],
    "next_due": lambda row: row,
}


class Pair:
    """A worker's control session on Postgres, and the model's."""

    def __init__(self, worker_id: UUID, real: Connection, model: Session) -> None:
        self.worker_id, self.real, self.model = worker_id, real, model

    async def ask(self, name: str, params: dict[str, Any]) -> list[Any]:
        """Both, which must say the same; what they have said."""
        if name in ("claim_runs", "finish_runs", "next_due", "insert_planned_runs"):
            params |= {"now": self.model.server.clock()}
        cursor = await self.real.execute(query(name), params)
        rows = await cursor.fetchall() if cursor.description else []
        answers: list[Any] = []
        self.model.receive([(name, params)], answers.append)
        told = _TOLD.get(name, lambda row: row)
        wanted, found = sorted(map(repr, map(told, rows))), sorted(map(repr, map(told, answers[0])))
        assert found == wanted, (name, params)
        return rows


@pytest.fixture
async def pairs(database: Database) -> AsyncIterator[list[Pair]]:
    world = World(0)
    server = Server(world, Truth(lambda: world.now, _LEASE.total_seconds()))
    for number, (overlap, most) in enumerate(_OVERLAPS):
        name = f"job-{number}"
        job_id = add_planned_job(database, name, next_run_at=None, overlap=overlap, max_running=most, max_attempts=3)
        job = {"id": job_id, "name": name, "kind": "sql", "command": "select 1", "args": {}, "queue": "default"}
        job |= {"priority": 0, "overlap": overlap, "max_running": most, "next_run_at": None, "max_attempts": 3}
        job |= dict.fromkeys(("timeout", "kill_grace", "retry_delay", "retry_backoff", "retry_max_delay"))
        server.tables.store("jobs", job_id, job)
    async with AsyncExitStack() as opened:
        made = []
        for worker_id in (WORKER, OTHER_WORKER):
            name = f"pgcron {worker_id}"
            real = await sessions.Database(database.dsn, application_name=name).connect(Purpose.CONTROL)
            opened.push_async_callback(real.close)
            made.append(Pair(worker_id, real, server.connect(name, None)))
        yield made


@pytest.mark.parametrize("seed", range(4))
async def test_the_models_statements_answer_as_postgres_does(seed: int, pairs: list[Pair]) -> None:
    rng, world = Random(seed), pairs[0].model.server.world
    for pair in pairs:
        await pair.ask("register_worker", _REGISTERED | {"id": pair.worker_id, "slots": 5, "lease": _LEASE})
    said: set[str] = set()
    for step in range(120):
        world.now += rng.random()
        name, params = _something(rng, rng.choice(pairs), step)
        said |= {name for row in await rng.choice(pairs).ask(name, params) if row}
    assert said >= {"claim_runs", "finish_runs", "read_own_runs", "list_own_locks", "list_beats", "next_due"}


def _something(rng: Random, of: Pair, step: int) -> tuple[str, dict[str, Any]]:
    runs, jobs = of.model.server.tables.rows["runs"], list(of.model.server.tables.rows["jobs"])
    ids = sorted(rng.sample(sorted(runs), min(len(runs), rng.randint(1, 4))))
    whose = {"worker_id": of.worker_id}
    endings: dict[str, Any] = {
        "statuses": [rng.choice(["failed", "succeeded"]) for _ in ids],
        "reasons": [None] * len(ids),
    }
    nothing = dict.fromkeys(("exit_codes", "errors", "results", "progress", "states", "next_runs"), [None] * len(ids))
    retries = {"retry_in": [1.0 if status == "failed" else None for status in endings["statuses"]]}
    locks = {"job_ids": [rng.choice(jobs)], "exclusive": [rng.random() < 0.5]}
    due = {"job_ids": jobs, "scheduled_for": [T0 + timedelta(seconds=step)] * len(jobs)}
    due |= {"run_at": due["scheduled_for"], "statuses": [rng.choice(["queued", "queued", "skipped"]) for _ in jobs]}
    due |= {"reasons": [None if status == "queued" else "why" for status in due["statuses"]]}
    due |= dict.fromkeys(("missed_counts", "missed_until"), [None] * len(jobs))
    lane = {"queue": "default", "priority": 0, "kinds": ["sql"], "limit": rng.randint(1, 5), "refused": []}
    choices: list[tuple[str, dict[str, Any]]] = [
        ("insert_planned_runs", due),
        *[("claim_runs", whose | lane)] * 3,
        *[("finish_runs", whose | {"run_ids": ids} | endings | nothing | retries)] * 3,
        ("read_ended_so", whose | {"run_ids": ids} | endings),
        ("read_own_runs", whose | {"run_ids": ids}),
        ("give_back_runs", whose | {"run_ids": ids}),
        ("lock_lost_runs", whose | {"limit": 100, "run_ids": rng.choice([None, ids])}),
        ("request_replacement", {"run_ids": ids}),
        ("take_job_locks", locks),
        ("release_job_locks", locks),
        ("list_own_locks", {}),
        ("list_beats", {}),
        ("next_due", {"zone_data": ""}),
        ("beat_worker", {"id": of.worker_id, "stopping": False}),
        ("lock_silent_worker", {"id": of.worker_id, "beat": 0}),
    ]
    if step == 100:
        return "end_worker", {"id": of.worker_id, "reason": "lost"}
    return rng.choice(choices)
