"""A run in memory, for the tests of jobs. It must not know workers and processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pgcron_runner.declaring import DECLARED, Declaration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.running import CONTEXT
from pgcron_runner.schedule import parse_schedule


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


def run_once(
    function: Callable[..., Any], *, args: dict[str, Any] | None = None, slices: int = 1, **facts: Any
) -> PretendedRun:
    """Runs a job's function as a worker would, here and now, and tells what became of it; what it raises goes on.

        done = run_once(send_daily, scheduled_for=datetime(2027, 1, 31, 9, tzinfo=UTC))
        assert done.returned == 3

    `args` None: those of its `@job`. A coroutine function is awaited in a loop of its own. `slices`: so many runs at
    most, while each asks for the next with `run.run_after()`; the state goes from one to the next. `facts` are fields
    of PretendedRun: `scheduled_for` is the time that it is for. Raises TypeError for what JSON cannot hold.
    """
    declaration = getattr(function, DECLARED, None)
    said = declaration.fields if isinstance(declaration, Declaration) else {}
    keywords = said.get("args", {}) if args is None else args
    name = getattr(declaration, "name", None) or function.__name__.replace("_", "-")
    facts = {"job": name, "args": keywords} | facts
    for _ in range(slices):
        with pretend_run(**facts) as pretended:
            returned = function(**json.loads(json.dumps(keywords)))
            if hasattr(returned, "__await__"):
                returned = asyncio.run(_awaited(returned))
        if returned is not None:
            pretended.returned = json.loads(json.dumps(returned, allow_nan=False))
        if not any(following.get("job") is None for following in pretended.next_runs):
            break
        facts |= {"state": pretended.state, "id": pretended.id + 1}
    return pretended


def next_times(function: Callable[..., Any], *, after: datetime, count: int = 1) -> list[datetime]:
    """When a function with `@job` is due after an instant, in UTC, by its schedule and zone. Raises InvalidInput."""
    declaration = getattr(function, DECLARED, None)
    if not isinstance(declaration, Declaration):
        raise InvalidInput("function", function.__qualname__, "is no job", example='@job(schedule=..., timezone="UTC")')
    lines = declaration.fields["schedule"]
    schedule = parse_schedule(
        lines if isinstance(lines, str) else "\n".join(lines),
        declaration.fields["timezone"],
        name=declaration.name or function.__name__.replace("_", "-"),
        dst_gap=DstGap(declaration.fields.get("dst_gap", DstGap.RUN_AFTER)),
        dst_repeat=DstRepeat(declaration.fields.get("dst_repeat", DstRepeat.FIRST)),
    )
    found: list[datetime] = []
    while len(found) < count and (following := schedule.next_after(after)) is not None:
        found.append(following)
        after = following
    return found


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
