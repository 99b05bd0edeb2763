"""What a run that is still going has said so far, for its row. It must not know who says it or who writes it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgcron_runner.clock import boottime
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.model import Output, Said

# The whole output is written each time, so a run that has long been printing is written more seldom: in seconds.
_LONGEST_PAUSE = 5.0
_SHARE_OF_AGE = 1 / 30


class Live:
    """One run's output, progress and saved state while it goes on. The last two are JSON values.

    An executor sets `output` to the buffer that it fills, and `progress` and `state` whenever there is news; or
    `refresh`, which is called before somebody looks.
    """

    __slots__ = ("_began_at", "_output_told_at", "_told", "output", "progress", "refresh", "state")

    def __init__(self) -> None:
        self.output: OutputBuffer | None = None
        self.progress: Any = None
        self.state: Any = None
        self.refresh: Callable[[], None] | None = None
        self._began_at = boottime()
        self._output_told_at = 0.0
        self._told: tuple[int, Any, Any] = (0, None, None)

    def news(self) -> Said | None:
        """What has changed since the last call; None where nothing has. Of the output now and then the whole."""
        if self.refresh is not None:
            self.refresh()
        bytes_told, progress, state = self._told
        output = self._output_now(bytes_told)
        if output is not None:
            bytes_told = output.total_bytes
        before, self._told = self._told, (bytes_told, self.progress, self.state)
        if before == self._told:
            return None
        return Said(
            output,
            self.progress if self.progress != progress else None,
            self.state if self.state != state else None,
        )

    def say_again(self) -> None:
        """The last news were not written down: the next are told from the start."""
        self._told = (0, None, None)
        self._output_told_at = 0.0

    def _output_now(self, bytes_told: int) -> Output | None:
        if self.output is None or self.output.total_bytes == bytes_told:
            return None
        now = boottime()
        if now - self._output_told_at < min((now - self._began_at) * _SHARE_OF_AGE, _LONGEST_PAUSE):
            return None
        self._output_told_at = now
        return self.output.render()
