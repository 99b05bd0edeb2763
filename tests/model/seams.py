"""Where the product meets the simulation: its clock, ids, executors and log. Nothing else of it is replaced."""

from __future__ import annotations

import random
from asyncio import events
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch
from uuid import UUID

import structlog

from pgcron_runner import clock, tenure, worker
from tests.model.machine import Runners
from tests.model.world import World

# Duties that change nothing of a run's story: tidying, pruning, live output, alerts.
_LOOPS = {"heartbeat", "schedule", "finish", "watchdog", "listen", "reap"}


class _Tenure(tenure.Tenure):
    def _build_loops(self) -> None:
        super()._build_loops()
        loops: Any = tuple(loop for loop in self._loops if loop.name in _LOOPS)
        self._loops = loops


def _here() -> Any:
    return events._get_running_loop()


@contextmanager
def simulated(world: World, complaints: list[str], *, seed: int) -> Iterator[None]:
    """Within it the product runs on the world. What it logs becomes part of the story."""

    def told(logger: Any, method: str, event: MutableMapping[str, Any]) -> NoReturn:
        facts = {name: value for name, value in event.items() if name not in ("part", "consequence", "exc_info")}
        line = f"{_here().name}: {facts.pop('event')} {' '.join(f'{name}={value}' for name, value in facts.items())}"
        world.say(line)
        if event.get("exc_info"):
            complaints.append(line)
        raise structlog.DropEvent

    ids = (UUID(int=number) for number in count(1))
    time = SimpleNamespace(clock_gettime=lambda _: _here().host.boottime(), monotonic=lambda: _here().time())
    before, chance = structlog.get_config(), random.getstate()
    structlog.configure(processors=[told], wrapper_class=structlog.make_filtering_bound_logger(20))
    random.seed(seed)
    try:
        with ExitStack() as stack:
            for target, name, stand_in in (
                (clock, "time", time),
                (tenure, "uuid4", lambda: next(ids)),
                (tenure, "Runners", Runners),
                (worker, "Tenure", _Tenure),
            ):
                stack.enter_context(patch.object(target, name, stand_in))
            yield
    finally:
        random.setstate(chance)
        structlog.configure(**before)
