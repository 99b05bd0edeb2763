"""One job's statements on their way: what they print, return and say of themselves, and the outcome that this makes.

It must not know how the work is committed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pgcron_runner.database import Connection, DatabaseError, Notice, Results, describe, in_transaction, run_alone
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer, storable
from pgcron_runner.execution.result import MOST_BYTES, BadResultError, storable_result
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Status, Task

_MOST_COUNTS = 100
# The SQLSTATE of the INFO that the function pgcron.progress sends.
_PROGRESS = "PGC01"
_MOST_PROGRESS_BYTES = 8192
# The function of Postgres that warns where such a wait is broken off; the words come in any language.
_WAITS_FOR_STANDBY = "SyncRepWaitForLSN"

TAKEN_OVER = Outcome(Status.LOST, reason="the run was taken over by another worker")
ENDED_ITS_TRANSACTION = (
    'the command ended its own transaction (COMMIT or ROLLBACK); say "transaction": false in args if it must'
)


class Work:
    """What the statements of one run have come to so far.

    `begun`: something may have been done. `lost`: the session is of no more use. `on_one_server`: it was stopped while
    the server waited for its standby, which may take over without what was done.
    """

    def __init__(self, task: Task, statements: list[str], stop: Stop, live: Live) -> None:
        self.task = task
        self.stop = stop
        self.begun = self.lost = self.on_one_server = False
        self.output = live.output = OutputBuffer(task.output_limit_kb * 1024)
        self._statements = statements
        self._live = live
        self._counts: list[dict[str, Any]] = []
        self._value: Any = None

    async def execute(self, connection: Connection, *, in_one_transaction: bool) -> bool:
        """Runs the statements one at a time. False where a stop was asked for, or one has ended the one transaction."""
        self.begun = True
        connection.add_notice_handler(self._notice)
        try:
            for statement in self._statements:
                if self.stop.reason is not None:
                    return False
                self._note(await run_alone(connection, statement, most_bytes=MOST_BYTES))
                if in_one_transaction and not in_transaction(connection):
                    return False
        finally:
            connection.remove_notice_handler(self._notice)
        return self.stop.reason is None or not in_one_transaction

    def _note(self, results: Results) -> None:
        self._counts.append({"command": results.command, "rows": results.rows})
        self._print(results.command)
        if self._value is not None:
            return
        unkept = results.unkept
        try:
            self._value = storable_result(results.value)
        except BadResultError as error:
            unkept = str(error)
        if unkept is not None:
            self._print(f"its value was not kept: {unkept}")

    def _notice(self, notice: Notice) -> None:
        self.on_one_server = self.on_one_server or notice.source_function == _WAITS_FOR_STANDBY
        if notice.sqlstate == _PROGRESS and (progress := _progress(notice)) is not None:
            self._live.progress = progress
        else:
            self._print(f"{notice.severity_nonlocalized}: {notice.message_primary}")

    def _print(self, line: str) -> None:
        self.output.append(f"{line}\n".encode(errors="backslashreplace"))

    def success(self, *, recorded: bool = False) -> Outcome:
        """All was done, as far as the session knows."""
        result = {"value": self._value, "statements": self._counts[:_MOST_COUNTS]}
        if len(self._counts) > _MOST_COUNTS:
            result["statements_left_out"] = len(self._counts) - _MOST_COUNTS
        return replace(self._ended(Status.SUCCEEDED), result=result, recorded=recorded)

    def failed(self, *, reason: str | None = None, error: str | None = None) -> Outcome:
        """It has failed, or was stopped."""
        return replace(self._ended(Status.FAILED), reason=reason, error=error)

    def session_lost(self, reason: str, *, error: str | None = None) -> Outcome:
        """The session has ended before its work did."""
        return replace(self._ended(Status.LOST), reason=reason, error=error)

    def refused(self, error: DatabaseError, *, if_lost: str) -> Outcome:
        """The server's error; `if_lost`: what it means that the session is lost with it."""
        text = storable(describe(error))
        return self.session_lost(if_lost, error=text) if self.lost else self.failed(error=text)

    def _ended(self, status: Status) -> Outcome:
        return Outcome(status, output=self.output.render(), progress=self._live.progress)


def _progress(notice: Notice) -> Any:
    """What pgcron.progress has said; None for somebody else's INFO with its code."""
    detail = notice.message_detail or ""
    try:
        said = storable_result(json.loads(detail)) if len(detail) <= _MOST_PROGRESS_BYTES else None
    except (ValueError, RecursionError, BadResultError):
        return None
    return said if isinstance(said, dict) else None
