"""People: they run jobs by hand, edit, pause, delete and make them, fill in, cancel, and hold a job's lock from psql.

Each act and the truth of it are one transaction, so that it does not matter whether its answer was heard.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import psycopg

from tests.faults.programme.hosts import boottime
from tests.faults.programme.jobs import insert, shell
from tests.faults.programme.nodes import Cluster

_OLD: LiteralString = "with old as materialized (select * from pgcron.jobs where name = %(job)s for update), "
_CHANGED: LiteralString = (
    _OLD + "new as (update pgcron.jobs j set {change} from old where j.id = old.id returning j.*)"
    " insert into truth.edits (job, action, at, old_planned, old_next, old_fired, schedule, timezone, enabled,"
    " paused_until, anchored_at, max_attempts, max_running)"
    " select old.name, %(action)s, clock_timestamp(), old.planned, old.next_run_at, old.fired_until, new.schedule,"
    " new.timezone, new.enabled, new.paused_until, new.anchored_at, new.max_attempts, 1 from old, new"
)
_DELETED: LiteralString = (
    _OLD + "gone as (delete from pgcron.jobs j using old where j.id = old.id returning j.id)"
    " insert into truth.edits (job, action, at, old_planned, old_next, max_attempts)"
    " select old.name, 'deleted', clock_timestamp(), old.planned, old.next_run_at, old.max_attempts from old, gone"
)
_CHANGES = {
    "slower": "schedule = '@every 3s'",
    "faster": "schedule = '@every 1s'",
    "cron": "schedule = '*/2 * * * * *'",
    "disabled": "enabled = false",
    "enabled": "enabled = true",
    "paused": "paused_until = clock_timestamp() + interval '4 seconds'",
    "resumed": "paused_until = null",
}
_EDITED = ("edited-1", "edited-2", "edited-3")
_LOCKED = ("tick", "short", "long", "once", "cron")
# It runs nearly always; and so long is longer than a command may go on that has lost its lock.
_LONG = "marathon"
_LONG_HOLD = 2.4


class Driver(threading.Thread):
    """Acts until it is ended. `still`: nobody acts while it is held, since the database's clock is wrong."""

    def __init__(self, cluster: Cluster, mark: Path, chance: random.Random, still: threading.Lock) -> None:
        super().__init__(name="driver", daemon=True)
        self._cluster = cluster
        self._mark = mark
        self._chance = chance
        self._still = still
        self._ended = threading.Event()
        self._made = 0
        self.acts = 0
        self.unheard = 0

    def prepare(self, connection: psycopg.Connection) -> None:
        """The jobs that it will edit."""
        for name in _EDITED:
            insert(connection, shell(name, self._mark, "@every 1s", 0.4, prompt=False))

    def run(self) -> None:
        acts = (
            [self._run_by_hand] * 8
            + [self._edit] * 4
            + [self._cancel, self._hold, self._make, self._backfill, self._make_at]
        )
        while not self._ended.wait(self._chance.uniform(0.1, 0.8)):
            with self._still:
                try:
                    with self._cluster.primary.connect() as connection:
                        self._chance.choice(acts)(connection)
                    self.acts += 1
                except (psycopg.Error, OSError):
                    self.unheard += 1

    def end(self) -> None:
        self._ended.set()
        self.join()

    def settle(self, connection: psycopg.Connection) -> None:
        """Everything is enabled again, so that the calm has something to do."""
        for job in _EDITED:
            self._change(connection, job, "enabled")
            self._change(connection, job, "resumed")

    def _run_by_hand(self, connection: psycopg.Connection) -> None:
        job = self._chance.choice(["manual", "manual", "byhand", "report"])
        connection.execute(
            "insert into truth.asked select made.run_id, j.name from pgcron.jobs j cross join lateral"
            " pgcron.enqueue_run(j.id, 'manual', clock_timestamp()) as made where j.name = %s",
            [job],
        )

    def _edit(self, connection: psycopg.Connection) -> None:
        self._change(connection, self._chance.choice(_EDITED), self._chance.choice(list(_CHANGES)))

    @staticmethod
    def _change(connection: psycopg.Connection, job: str, action: str) -> None:
        statement = _CHANGED.replace("{change}", _CHANGES[action])
        connection.execute(statement.encode(), {"job": job, "action": action})

    def _make(self, connection: psycopg.Connection) -> None:
        """A new job now and then; and the one before the last is deleted, be it running or not."""
        self._made += 1
        name = f"made-{self._made}"
        insert(connection, shell(name, self._mark, "@every 2s", self._chance.uniform(0.2, 2.5), prompt=False))
        if self._made > 2:
            connection.execute(_DELETED.encode(), {"job": f"made-{self._made - 2}"})

    def _make_at(self, connection: psycopg.Connection) -> None:
        self._made += 1
        row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        moment = row[0].replace(microsecond=0) + timedelta(seconds=self._chance.randint(2, 8))
        insert(connection, shell(f"at-{self._made}", self._mark, f"@at {moment.isoformat()}", 0.3, prompt=False))

    def _cancel(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "update pgcron.runs set cancel_requested_at = clock_timestamp() where id = (select id from pgcron.runs"
            " where status = 'running' and cancel_requested_at is null order by random() limit 1)"
        )

    def _backfill(self, connection: psycopg.Connection) -> None:
        """One time of the last minute, once more; as the command does it."""
        connection.execute(
            "insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at,"
            " backfill, max_running) select j.id, j.name, j.kind, j.queue, j.priority, 'backfill', r.scheduled_for,"
            " clock_timestamp(), true, 1 from pgcron.jobs j cross join lateral (select scheduled_for from pgcron.runs"
            " where job_id = j.id"
            " and status in ('missed', 'lost', 'skipped') order by id desc limit 1) r where j.name = 'once'"
            " on conflict do nothing"
        )

    def _hold(self, connection: psycopg.Connection) -> None:
        """As anybody may who has work of his own that must not meet the job's."""
        _hold_lock(connection, self._chance.choice(_LOCKED), self._chance.uniform(0.5, 3))


class Stranger(threading.Thread):
    """Tries to get the lock of a job while it runs, and keeps it for longer than two leases where it succeeds."""

    def __init__(self, cluster: Cluster, lease: float) -> None:
        super().__init__(name="stranger", daemon=True)
        self._cluster = cluster
        self._lease = lease
        self._ended = threading.Event()

    def run(self) -> None:
        pause = 1.0
        while not self._ended.wait(pause):
            held = False
            with suppress(psycopg.Error, OSError), self._cluster.primary.connect() as connection:
                held = _hold_lock(connection, _LONG, _LONG_HOLD * self._lease)
            pause = 5 * self._lease if held else 1.0

    def end(self) -> None:
        self._ended.set()
        self.join()


def _hold_lock(connection: psycopg.Connection, job: str, seconds: float) -> bool:
    """Takes the lock of a job for so long and writes down for how long it had it; False where it was not to be had."""
    taken = connection.execute(
        "select pg_try_advisory_lock('pgcron'::regnamespace::oid::int, id), clock_timestamp() from pgcron.jobs"
        " where name = %s",
        [job],
    ).fetchone()
    if taken is None or not taken[0]:
        return False
    since = boottime()
    time.sleep(seconds)
    until = boottime()
    with suppress(psycopg.Error):
        # The lock was there to the end only if this answers.
        ended = connection.execute("select clock_timestamp()").fetchone()
        assert ended is not None
        connection.execute(
            "insert into truth.holds values (%s, %s, %s, %s, %s)", [job, taken[1], ended[0], since, until]
        )
    return True
