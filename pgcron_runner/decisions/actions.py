"""What a decision asks for. Values alone: who performs them is `tenure`, or a model of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pgcron_runner.model import StopReason


@dataclass(frozen=True, slots=True)
class Feed:
    """Let the guard's commands live until then (boot-time clock)."""

    deadline: float


@dataclass(frozen=True, slots=True)
class StopRuns:
    """Ask runs to end; `run_ids` None: all that run. `now`: without their grace."""

    reason: StopReason
    run_ids: frozenset[int] | None = None
    now: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """Send a heartbeat at once."""


@dataclass(frozen=True, slots=True)
class Look:
    """Look at once for what is due."""


@dataclass(frozen=True, slots=True)
class End:
    """This tenure is over."""


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the log; a warning tells its consequence."""

    event: str
    facts: dict[str, Any] = field(default_factory=dict)
    warning: bool = True


Action: TypeAlias = Feed | StopRuns | Beat | Look | End | Say
