"""What a worker is told to do, checked. It reads no environment and no file."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import Kind

# One UPDATE for 500 runs costs a twentieth of 500 of them; beyond that nothing is gained.
BATCH = 500
_SHORTEST_LEASE = timedelta(seconds=2)


def _default_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one worker works. `queues` None: all of them; `drain_timeout` None: as long as the runs take.

    `preload`: modules that Python runs find imported already (execution/zygote.py). `connections`: the other databases
    that SQL jobs may name, as connection strings, which are never shown.
    """

    name: str = field(default_factory=_default_name)
    queues: tuple[str, ...] | None = None
    kinds: tuple[Kind, ...] = tuple(Kind)
    slots: int = 10
    lease: timedelta = timedelta(seconds=20)
    poll: timedelta = timedelta(seconds=5)
    drain_timeout: timedelta | None = None
    once: bool = False
    preload: tuple[str, ...] = ()
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= 10_000:
            raise InvalidInput("slots", self.slots, "is not between 1 and 10000", example="--slots 10")
        if self.lease < _SHORTEST_LEASE:
            raise InvalidInput("lease", str(self.lease), "is shorter than 2 seconds", example="--lease 30s")
        if self.poll <= timedelta(0):
            raise InvalidInput("poll", str(self.poll), "is not longer than zero", example="--poll 5s")
        if not self.name or len(self.name) > 100:
            raise InvalidInput("name", self.name, "is not 1 to 100 characters long", example="--name web-1")
        for module in self.preload:
            if not all(part.isidentifier() for part in module.split(".")):
                problem = "is not the name of a module"
                raise InvalidInput("preload", module, problem, example="--preload pandas,myapp.models")
