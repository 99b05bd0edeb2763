"""The statements of the protocol on these tables: the same names, parameters and rows as in `sql/queries/`.

What the scenario never has is left out: queues with a limit, chains, calendars, incidents. `test_statements` compares
them with Postgres.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pgcron_runner.statements import query
from tests.model.tables import Blocked, Row, Transaction

Params = dict[str, Any]
Rows = list[tuple[Any, ...]]
_SECOND = timedelta(seconds=1)
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


class DivisionByZero(Exception):
    """What a SQL run's record ends in where the run is no longer its worker's."""


# Workers.


def register_worker(tx: Transaction, p: Params) -> Rows:
    known = tx.get("workers", p["id"])
    tx.put(
        "workers",
        p["id"],
        id=p["id"],
        lease=p["lease"],
        beat=known["beat"] + 1 if known else 0,
        ended=known["ended"] if known else None,
        heartbeat_at=tx.now,
    )
    return []


def beat_worker(tx: Transaction, p: Params) -> Rows:
    worker = tx.lock("workers", p["id"])
    if worker is None or worker["ended"]:
        return []
    tx.flushes = False
    beat = max(worker["beat"] + 1, int(tx.now.timestamp() * 1_000_000))
    tx.put("workers", p["id"], beat=beat, heartbeat_at=tx.now)
    return [(tx.now, "off")]


def end_worker(tx: Transaction, p: Params) -> Rows:
    worker = tx.lock("workers", p["id"])
    if worker is None or worker["ended"]:
        return []
    tx.put("workers", p["id"], ended=p["reason"])
    return [(p["id"],)]


def list_beats(tx: Transaction, p: Params) -> Rows:
    living = [worker for worker in tx.all("workers") if not worker["ended"]]
    known = {worker["id"] for worker in living}
    strays = sorted({run["worker_id"] for run in tx.live_runs("running")} - known)
    return [(w["id"], w["beat"], w["lease"] / _SECOND) for w in living] + [(stray, None, None) for stray in strays]


def lock_silent_worker(tx: Transaction, p: Params) -> Rows:
    worker = tx.get("workers", p["id"])
    if worker is None or tx.skips("workers", p["id"]) or worker["beat"] != p["beat"] or worker["ended"]:
        return []
    return [(p["id"],)]


def note_timeline(tx: Transaction, p: Params) -> Rows:
    known, here = tx.lock("timeline", 1), tx.session.server.history
    assert known is not None
    leases = [worker["lease"] for worker in tx.all("workers") if not worker["ended"]]
    longest = max([p["lease"], *leases]) / _SECOND
    since = (tx.now - known["noticed_at"]) / _SECOND
    held_for = 0.0 if known["server"] is None else longest if since < 0 else max(longest - since, 0.0)
    if known["server"] != here:
        held_for = 0.0 if known["server"] is None else longest
        tx.put("timeline", 1, server=here, noticed_at=_LONG_AGO if known["server"] is None else tx.now)
    return [(here, held_for)]


# What is due.


def next_due(tx: Transaction, p: Params) -> Rows:
    times = [job["next_run_at"] for job in tx.all("jobs") if job["next_run_at"] is not None]
    rows: Rows = [(None, None, None, None, (min(times) - tx.now) / _SECOND if times else None)]
    queued = list(tx.live_runs("queued"))
    for queue, priority in sorted({(run["queue"], run["priority"]) for run in queued}):
        at = [run["run_at"] for run in queued if (run["queue"], run["priority"]) == (queue, priority)]
        later = [(when - tx.now) / _SECOND for when in at if when > tx.now]
        rows.append((queue, priority, None, min(at) <= tx.now, min(later, default=None)))
    return rows


def due_jobs(tx: Transaction, p: Params) -> Rows:
    due = [job for job in tx.all("jobs") if job["next_run_at"] is not None and job["next_run_at"] <= tx.now]
    due.sort(key=lambda job: (job["next_run_at"], job["id"]))
    tx.flushes = False
    return [_due_job(tx, p, job) for job in due if not tx.skips("jobs", job["id"])][: p["limit"]]


def _due_job(tx: Transaction, p: Params, job: Row) -> tuple[Any, ...]:
    running = [run["id"] for run in tx.live_runs("running") if run["job_id"] == job["id"]]
    queued = [run["id"] for run in tx.live_runs("queued") if run["job_id"] == job["id"]]
    if job["overlap"] == "allow":
        running, queued = [], []
    return (
        *(job[name] for name in ("id", "name", "schedule", "timezone", "planned", "anchored_at", "next_run_at")),
        *(job[name] for name in ("overlap", "max_running", "catch_up", "catch_up_window", "catch_up_limit")),
        *("run_after", "first", timedelta(0), None, job["ends_at"], None),
        *(running, min(queued, default=None), len(queued) if job["overlap"] == "queue_all" else 0, None),
        *(job["fired_local"], None, job["fired_until"], False, tx.now, "off"),
    )


def insert_planned_runs(tx: Transaction, p: Params) -> Rows:
    lanes = set()
    names = ("job_ids", "scheduled_for", "run_at", "statuses", "reasons", "missed_counts", "missed_until")
    for job_id, scheduled_for, run_at, status, reason, missed_count, missed_until in zip(
        *(p[name] for name in names), strict=True
    ):
        job = tx.get("jobs", job_id)
        assert job is not None
        if _has_run(tx, job_id, scheduled_for, 1):
            continue
        facts = {"reason": reason, "missed_count": missed_count, "missed_until": missed_until}
        made = insert_run(tx, job, "schedule", scheduled_for, run_at, status=status, **facts)
        if made["status"] == "queued":
            lanes.add((made["queue"], made["priority"], None))
    return sorted(lanes)


def insert_run(tx: Transaction, job: Row, trigger: str, scheduled_for: Any, run_at: Any, **facts: Any) -> Row:
    tx.tables.run_ids += 1
    columns: Row = {"id": tx.tables.run_ids}
    columns |= {"job_id": job["id"], "job_name": job["name"], "kind": job["kind"], "queue": job["queue"]}
    columns |= {"priority": job["priority"], "trigger": trigger, "scheduled_for": scheduled_for, "run_at": run_at}
    columns |= {"attempt": 1, "status": "queued", "reason": None, "lane": None, "worker_id": None, "started_at": None}
    columns |= {"cancel": False, "missed_count": None, "missed_until": None}
    columns |= {"max_running": job["max_running"] if job["overlap"] == "allow" else 1} | facts
    columns["finished_at"] = None if columns["status"] == "queued" else tx.now
    return tx.put("runs", columns["id"], **columns)


def _has_run(tx: Transaction, job_id: int, scheduled_for: Any, attempt: int) -> bool:
    wanted = (job_id, scheduled_for, attempt)
    return any((run["job_id"], run["scheduled_for"], run["attempt"]) == wanted for run in tx.all("runs"))


def request_replacement(tx: Transaction, p: Params) -> Rows:
    for run_id in p["run_ids"]:
        if (tx.lock("runs", run_id) or {}).get("status") == "running":
            tx.put("runs", run_id, cancel=True)
    return []


def move_jobs_on(tx: Transaction, p: Params) -> Rows:
    names = ("job_ids", "next_run_at", "fired_local")
    for job_id, next_run_at, fired_local in zip(*(p[name] for name in names), strict=True):
        job = tx.get("jobs", job_id)
        assert job is not None
        fired = {"fired_until": tx.now, "fired_local": fired_local or job["fired_local"]}
        tx.put("jobs", job_id, next_run_at=next_run_at, planned=True, **fired)
    return []


# Runs.


def claim_runs(tx: Transaction, p: Params) -> Rows:
    busy: dict[int, int] = {}
    lanes: dict[int, set[int]] = {}
    for run in tx.live_runs("running"):
        busy[run["job_id"]] = busy.get(run["job_id"], 0) + 1
        lanes.setdefault(run["job_id"], set()).add(run["lane"])
    queued = sorted(tx.live_runs("queued"), key=lambda run: (run["run_at"], run["id"]))
    candidates = [run for run in queued if _may_be_claimed(tx, p, run, busy) and not tx.skips("runs", run["id"])]
    candidates = candidates[: p["limit"]]
    claimed: Rows = []
    refused: Rows = []
    locked: list[tuple[int, bool]] = []
    turns: dict[int, int] = {}
    for run in candidates:
        job = tx.get("jobs", run["job_id"])
        assert job is not None
        most = job["max_running"] if job["overlap"] == "allow" else 1
        turn = turns[job["id"]] = turns.get(job["id"], 0) + 1
        if most is not None and turn > most:
            continue
        free = [lane for lane in range(1, (most or 0) + 1) if most == 1 or lane not in lanes.get(job["id"], ())]
        lane = None if most is None else free[turn - 1] if turn <= len(free) else None
        if most is not None and lane is None:
            continue
        if not tx.session.try_lock(job["id"], exclusive=most == 1):
            refused.append((None, job["id"], *[None] * 19, len(candidates)))
            continue
        locked.append((job["id"], most == 1))
        facts = {"status": "running", "lane": lane, "worker_id": p["worker_id"], "max_running": most}
        try:
            running = tx.put("runs", run["id"], started_at=tx.now, **facts)
        except Blocked:
            # It waits for who else has chosen this lane. Once it goes on here, it begins anew: with the locks too.
            for lock in locked:
                tx.session.unlock(*lock)
            raise
        claimed.append(_claimed(running, job, len(candidates)))
    return claimed + refused


def _may_be_claimed(tx: Transaction, p: Params, run: Row, busy: dict[int, int]) -> bool:
    job = tx.get("jobs", run["job_id"])
    assert job is not None
    most = job["max_running"] if job["overlap"] == "allow" else 1
    return (
        (run["queue"], run["priority"]) == (p["queue"], p["priority"])
        and run["run_at"] <= tx.now
        and run["kind"] in p["kinds"]
        and run["job_id"] not in p["refused"]
        and (most is None or busy.get(job["id"], 0) < most)
    )


def _claimed(run: Row, job: Row, candidates: int) -> tuple[Any, ...]:
    return (
        *(run["id"], job["id"], job["name"], job["kind"], job["command"], job["args"], run["scheduled_for"]),
        *(run["attempt"], run["max_running"] == 1, job["timeout"], job["kill_grace"]),
        *(job["max_attempts"], job["retry_delay"], job["retry_backoff"], job["retry_max_delay"]),
        *({}, [], None, None, 64, None, candidates),
    )


def read_own_runs(tx: Transaction, p: Params) -> Rows:
    own = [(run["id"], run["cancel"]) for run in tx.live_runs("running") if run["worker_id"] == p["worker_id"]]
    ended = [run for run in (tx.get("runs", run_id) for run_id in p["run_ids"]) if run is not None]
    return own + [(r["id"], False) for r in ended if (r["worker_id"], r["status"]) == (p["worker_id"], "succeeded")]


def give_back_runs(tx: Transaction, p: Params) -> Rows:
    for run in _held(tx, p["worker_id"], p["run_ids"]):
        tx.put("runs", run["id"], status="queued", worker_id=None, lane=None, started_at=None)
    return []


def _held(tx: Transaction, worker_id: Any, run_ids: list[int]) -> Iterator[Row]:
    """The fence: those of them that are running under this worker's id, locked."""
    locked = [tx.lock("runs", run_id) for run_id in sorted(run_ids)]
    return (run for run in locked if run and run["status"] == "running" and run["worker_id"] == worker_id)


def finish_runs(tx: Transaction, p: Params) -> Rows:
    names = ("run_ids", "statuses", "reasons", "retry_in")
    ends = {end[0]: end[1:] for end in zip(*(p[name] for name in names), strict=True)}
    done = list(_held(tx, p["worker_id"], p["run_ids"]))
    for run in done:
        status, reason, retry_in = ends[run["id"]]
        tx.put("runs", run["id"], status=status, reason=reason, finished_at=tx.now)
        if retry_in is not None and not _has_run(tx, run["job_id"], run["scheduled_for"], run["attempt"] + 1):
            job = tx.get("jobs", run["job_id"])
            assert job is not None
            at = tx.now + timedelta(seconds=retry_in)
            insert_run(tx, job, "retry", run["scheduled_for"], at, attempt=run["attempt"] + 1)
    return [(run["id"],) for run in done]


def read_ended_so(tx: Transaction, p: Params) -> Rows:
    found = []
    for run_id, status, reason in zip(p["run_ids"], p["statuses"], p["reasons"], strict=True):
        run = tx.get("runs", run_id)
        if run and (run["worker_id"], run["status"], run["reason"]) == (p["worker_id"], status, reason):
            found.append((run_id,))
    return found


def lock_lost_runs(tx: Transaction, p: Params) -> Rows:
    rows: Rows = []
    for run in list(tx.live_runs("running")):
        wanted = p["run_ids"] is None or run["id"] in p["run_ids"]
        if run["worker_id"] == p["worker_id"] and wanted and not tx.skips("runs", run["id"]):
            job = tx.get("jobs", run["job_id"])
            assert job is not None
            retry = (job[f"retry_{name}"] for name in ("delay", "backoff", "max_delay"))
            rows.append((run["id"], run["job_id"], run["job_name"], run["attempt"], job["max_attempts"], *retry))
    return rows


def cancel_run(tx: Transaction, p: Params) -> Rows:
    run = tx.lock("runs", p["run_id"])
    if run is None:
        return []
    if run["status"] == "queued":
        tx.put("runs", run["id"], status="cancelled", reason=p["reason"], finished_at=tx.now)
    elif run["status"] == "running":
        tx.put("runs", run["id"], cancel=True)
    return [(run["status"],)]


# Job locks.


def take_job_locks(tx: Transaction, p: Params) -> Rows:
    wanted = zip(p["job_ids"], p["exclusive"], strict=True)
    return sorted({(job_id,) for job_id, exclusive in wanted if not tx.session.try_lock(job_id, exclusive=exclusive)})


def release_job_locks(tx: Transaction, p: Params) -> Rows:
    held = [tx.session.unlock(*lock) for lock in zip(p["job_ids"], p["exclusive"], strict=True)]
    return [(sum(held),)]


def list_own_locks(tx: Transaction, p: Params) -> Rows:
    return sorted(tx.session.locks)


# SQL runs.


def open_sql_run(tx: Transaction, p: Params) -> Rows:
    run = tx.get("runs", p["run_id"])
    locked = not p["exclusive"] or tx.session.try_transaction_lock(p["job_id"])
    return [(locked, bool(run and run["status"] == "running" and run["worker_id"] == p["worker_id"]))]


def work(tx: Transaction, p: Params) -> Rows:
    """The text of the scenario's SQL jobs."""
    tx.put("effects", object(), run_id=p["run_id"], nominal=p["nominal"], at=tx.now)
    return []


def succeed_sql_run(tx: Transaction, p: Params) -> Rows:
    done = list(_held(tx, p["worker_id"], [p["run_id"]]))
    if not done:
        raise DivisionByZero
    tx.put("runs", p["run_id"], status="succeeded", finished_at=tx.now)
    return [(1, 0)]


def settle_sql_run(tx: Transaction, p: Params) -> Rows:
    run, skipped = tx.get("runs", p["run_id"]), tx.skips("runs", p["run_id"])
    return [(tx.session.try_transaction_lock(p["job_id"]) and not skipped, run["status"] if run else None)]


Statement = Callable[[Transaction, Params], Rows]
_ALL: tuple[Statement, ...] = (
    *(register_worker, beat_worker, end_worker, list_beats, lock_silent_worker, note_timeline, next_due, due_jobs),
    *(insert_planned_runs, request_replacement, move_jobs_on, claim_runs, read_own_runs, give_back_runs, finish_runs),
    *(read_ended_so, lock_lost_runs, cancel_run, take_job_locks, release_job_locks, list_own_locks),
    *(open_sql_run, succeed_sql_run, settle_sql_run),
)
STATEMENTS: dict[str, Statement] = {statement.__name__: statement for statement in _ALL} | {"work": work}
NAMES = {query(statement.__name__): statement.__name__ for statement in _ALL}
