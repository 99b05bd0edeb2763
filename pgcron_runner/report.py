"""Report: writes down what running runs say of themselves: output, progress, saved state. It ends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from pgcron_runner.database import DataError
from pgcron_runner.execution.live import Live
from pgcron_runner.logs import get_logger
from pgcron_runner.model import Said
from pgcron_runner.session import Session
from pgcron_runner.store import runs

log = get_logger(__name__)

# So many outputs of the default limit make a statement of some 3 MB.
_MOST_RUNS = 50


class Report:
    """The duty, on the record session. `running` tells what the runs in hand have said so far.

    Where nobody says anything it asks the database nothing.
    """

    def __init__(self, session: Session, worker_id: UUID, running: Callable[[], Mapping[int, Live]]) -> None:
        self._session = session
        self._worker_id = worker_id
        self._running = running

    async def step(self) -> int:
        """One round over all running runs; returns how many rows were written. What it raises, try again."""
        running = self._running()
        news = {run_id: said for run_id, live in running.items() if (said := live.news()) is not None}
        written: set[int] = set()
        try:
            for start in range(0, len(news), _MOST_RUNS):
                written |= await self._write(dict(list(news.items())[start : start + _MOST_RUNS]))
        finally:
            for run_id in news.keys() - written:
                running[run_id].say_again()
        return len(written)

    async def _write(self, news: Mapping[int, Said]) -> set[int]:
        async with self._session.use() as connection:
            try:
                return await runs.report_runs(connection, self._worker_id, news)
            except (DataError, UnicodeError) as error:
                log.debug("news_not_stored", runs=len(news), error=str(error))
                # Finishing will try each by itself and say so.
                return set(news)
