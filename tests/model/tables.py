"""Rows, transactions, row locks and a log: as much of Postgres as the protocol leans on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

Row = dict[str, Any]
Key = tuple[str, Any]

# At most so long what was committed stays unflushed: three times wal_writer_delay.
_FLUSHED_AFTER = 0.6


class Blocked(Exception):
    """A statement must wait until that transaction is over."""

    def __init__(self, holder: Transaction) -> None:
        self.holder = holder


class Duplicate(Exception):
    """A unique index refuses the row."""


class Tables:
    """What is committed. Rows are never changed, only replaced.

    `log` tells of each commit when it was (true time), whether it was flushed, and how to take it back.
    """

    def __init__(
        self,
        true_time: Callable[[], float] = lambda: 0.0,
        on_change: Callable[[str, Row | None, Row], None] = lambda *_: None,
    ) -> None:
        self.true_time, self.on_change = true_time, on_change
        self.rows: dict[str, dict[Any, Row]] = {"jobs": {}, "runs": {}, "workers": {}, "effects": {}, "timeline": {}}
        self.live: set[int] = set()
        self.holders: dict[Key, Transaction] = {}
        self.open: list[Transaction] = []
        self.log: list[tuple[float, bool, dict[Key, Row | None]]] = []
        self.run_ids = 0

    def forget(self, commits: int) -> None:
        """Takes back the last commits."""
        for _ in range(min(commits, len(self.log))):
            for (table, key), row in self.log.pop()[2].items():
                self.store(table, key, row)

    def unflushed(self) -> int:
        """How many of the last commits a crash takes back: those after the last one that was flushed, or is old."""
        oldest = self.true_time() - _FLUSHED_AFTER
        commits = enumerate(reversed(self.log))
        return next((back for back, (at, flushed, _) in commits if flushed or at < oldest), len(self.log))

    def store(self, table: str, key: Any, row: Row | None) -> None:
        if row is None:
            del self.rows[table][key]
        else:
            self.rows[table][key] = row
        if table == "runs":
            is_live = row is not None and row["status"] in ("queued", "running")
            (self.live.add if is_live else self.live.discard)(key)


class Transaction:
    """A session's transaction; `now` is the database's clock at its statement. Its writes are its own till COMMIT."""

    def __init__(self, tables: Tables, session: Any, now: datetime) -> None:
        self.tables, self.session, self.now = tables, session, now
        self.flushes = True
        self.writes: dict[Key, Row] = {}
        self.locks: list[Key] = []
        tables.open.append(self)

    def get(self, table: str, key: Any) -> Row | None:
        """The row as this transaction sees it."""
        return self.writes.get((table, key)) or self.tables.rows[table].get(key)

    def all(self, table: str) -> Iterable[Row]:
        if not self.writes:
            return self.tables.rows[table].values()
        mine = {key: row for (of, key), row in self.writes.items() if of == table}
        return (self.tables.rows[table] | mine).values()

    def live_runs(self, status: str) -> Iterator[Row]:
        """Queued or running runs, by id."""
        ids = self.tables.live
        if self.writes:
            ids = ids | {key for table, key in self.writes if table == "runs"}
        for run_id in sorted(ids):
            run = self.get("runs", run_id)
            assert run is not None
            if run["status"] == status:
                yield run

    def lock(self, table: str, key: Any) -> Row | None:
        """The row, held until the end. Raises Blocked."""
        holder = self.tables.holders.setdefault((table, key), self)
        if holder is not self:
            raise Blocked(holder)
        self.locks.append((table, key))
        return self.get(table, key)

    def skips(self, table: str, key: Any) -> bool:
        """Locks the row, unless somebody else has it."""
        if self.tables.holders.get((table, key), self) is not self:
            return True
        self.lock(table, key)
        return False

    def put(self, table: str, key: Any, **changes: Any) -> Row:
        """Inserts or changes a row. Raises Blocked, Duplicate."""
        row = (self.lock(table, key) or {}) | changes
        if row.get("status") == "running" and row["lane"] is not None:
            self._check_lane(row)
        self.writes[table, key] = row
        return row

    def _check_lane(self, row: Row) -> None:
        """At most one running run in a lane of a job."""
        for other in self.tables.open:
            for (table, key), written in other.writes.items():
                if other is not self and table == "runs" and key != row["id"] and _is_same_lane(written, row):
                    raise Blocked(other)
        if any(_is_same_lane(other, row) and other["id"] != row["id"] for other in self.live_runs("running")):
            raise Duplicate

    def commit(self) -> None:
        tables = self.tables
        if self.writes:
            before = {key: tables.rows[key[0]].get(key[1]) for key in self.writes}
            tables.log.append((tables.true_time(), self.flushes, before))
            for (table, key), row in self.writes.items():
                tables.store(table, key, row)
                tables.on_change(table, before[table, key], row)
        self.end()

    def end(self) -> None:
        """Rolls back what is not committed, and lets go of the rows."""
        self.writes.clear()
        for key in self.locks:
            self.tables.holders.pop(key, None)
        self.locks.clear()
        self.tables.open.remove(self)


def _is_same_lane(one: Row, other: Row) -> bool:
    return (one["status"], one["job_id"], one["lane"]) == ("running", other["job_id"], other["lane"])
