"""Http jobs, from a claimed run to its outcome.

A request cannot be unsent. With `max_attempts` 1 it is sent at most once; with more, a run that was stopped, lost or
broken off may have reached its server already, and the next attempt carries the same Idempotency-Key, by which a
server can tell. A lost lease stops the run like everything else that this worker has in hand.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping
from types import ModuleType

from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.execution.http.definition import Definition, read_definition
from pgcron_runner.execution.http.lookups import Lookups
from pgcron_runner.execution.http.redaction import Secrets
from pgcron_runner.execution.http.report import Report
from pgcron_runner.execution.http.request import Request, first_request, proxy_url, secrets_of
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer, storable
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Status, Task

_KB = 1024


class HttpRunner:
    """Runs http jobs for one worker. `environ` is the worker's environment, the source of `env:` references."""

    def __init__(self, environ: Mapping[str, str] = os.environ, lookups: Lookups | None = None) -> None:
        self._environ = environ
        self._lookups = lookups or Lookups()
        self._client: ModuleType | None = None

    async def run(self, task: Task, stop: Stop, live: Live) -> Outcome:
        """Sends the job's request; the status of the last answer decides.

        A stop ends it at once, whatever the server does; the outcome is then FAILED, with how far it had come, for
        the caller to put its own status in place. One whose answer had come by then is told as it ended.
        """
        try:
            definition = read_definition(task.command, task.args)
            request = first_request(definition, task, self._environ)
            proxy = proxy_url(definition, self._environ)
        except InvalidInput as error:
            return _launch_failed(error)
        secrets = Secrets(secrets_of(request, definition, proxy))
        live.output = OutputBuffer(task.output_limit_kb * _KB)
        report = Report(live.output, secrets.stream())
        most_bytes = max(definition.most_body_kb, task.output_limit_kb) * _KB
        try:
            with stop.cancels_this_task():
                await self._exchange(definition, request, report, proxy=proxy, most_bytes=most_bytes)
        except InvalidInput as error:
            return _launch_failed(error)
        except Exception as error:
            raise PgcronError(secrets.hide(repr(error))).with_traceback(error.__traceback__) from None
        return report.outcome(definition, secrets)

    async def _exchange(
        self, definition: Definition, request: Request, report: Report, *, proxy: str | None, most_bytes: int
    ) -> None:
        if self._client is None:
            # aiohttp takes 25 MB and a fifth of a second, which workers without http jobs never spend.
            self._client = await asyncio.to_thread(importlib.import_module, "pgcron_runner.execution.http.client")
        client = self._client.Client(definition, report, self._lookups)
        await client.run(request, proxy=proxy, most_bytes=most_bytes)


def _launch_failed(error: InvalidInput) -> Outcome:
    return Outcome(Status.FAILED, error=storable(f"launch failed: {error}"))
