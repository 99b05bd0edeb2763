"""What a run that is still going has said so far, for its row. It must not know who says it or who writes it down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.model import Output


@dataclass(frozen=True, slots=True)
class Said:
    """What was said since it was last asked for; None: nothing new."""

    output: Output | None = None
    progress: Any = None
    state: Any = None


class Live:
    """One run's output, progress and saved state while it goes on. The last two are JSON values.

    An executor sets `output` to the buffer that it fills, and `progress` and `state` whenever there is news; or
    `refresh`, which is called before somebody looks.
    """

    __slots__ = ("_seen", "output", "progress", "refresh", "state")

    def __init__(self) -> None:
        self.output: OutputBuffer | None = None
        self.progress: Any = None
        self.state: Any = None
        self.refresh: Callable[[], None] | None = None
        self._seen: tuple[int, Any, Any] = (0, None, None)

    def news(self) -> Said | None:
        """What has changed since the last call; None where nothing has."""
        if self.refresh is not None:
            self.refresh()
        printed = 0 if self.output is None else self.output.total_bytes
        before, self._seen = self._seen, (printed, self.progress, self.state)
        if before == self._seen:
            return None
        return Said(
            self.output.render() if self.output is not None and printed != before[0] else None,
            self.progress if self.progress != before[1] else None,
            self.state if self.state != before[2] else None,
        )

    def say_again(self) -> None:
        """The last news were not written down: the next are to be told from the start."""
        self._seen = (0, None, None)
