"""A run in memory, for the tests of jobs. It must not know workers and processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pgcron_runner.running import CONTEXT


@dataclass
class PretendedRun:
    """What a test sets up and looks at. JSON values are copies, as in a real run; `state` None: nothing was saved.

    `line` is the last progress, such as `40 copied`; `next_runs` have `job`, `after` (seconds) and `args`, where given.
    """

    id: int = 1
    job: str = "pretended"
    attempt: int = 1
    scheduled_for: datetime = datetime(2027, 1, 31, 9, tzinfo=UTC)
    args: dict[str, Any] = field(default_factory=dict)
    state: Any = None
    cancelled: bool = False
    line: str | None = None
    next_runs: list[dict[str, Any]] = field(default_factory=list)
    returned: Any = None

    def is_cancelled(self) -> bool:
        """For `run.cancelled`, and so are the others for theirs."""
        return self.cancelled

    def merging(self) -> AbstractContextManager[object]:
        """Nobody else is there."""
        return nullcontext()

    def progress(self, line: str) -> None:
        """Keeps the last."""
        self.line = line

    def save(self, text: str) -> None:
        """Keeps the last."""
        self.state = json.loads(text)

    def run_after(self, text: str) -> None:
        """Keeps all."""
        self.next_runs.append(json.loads(text))

    def result(self, text: str) -> None:
        """Keeps the last."""
        self.returned = json.loads(text)


@contextmanager
def pretend_run(**facts: Any) -> Iterator[PretendedRun]:
    """Within it there is a run, for code that is tried without a worker; `facts` are fields of PretendedRun.

        with pretend_run(state={"cursor": 4711}) as pretended:
            copy_table()
        assert pretended.state == {"cursor": 9000}

    Threads that the code starts do not see it.
    """
    pretended = PretendedRun(**facts)
    token = CONTEXT.set(pretended)
    try:
        yield pretended
    finally:
        CONTEXT.reset(token)
