"""pgcron-runner: cron for a team that already has Postgres.

`from pgcron_runner import run` is what the code of a job uses, `job` says when a function is to run, and `Worker` runs
jobs inside a service. `pretend_run`, `run_once` and `next_times` are for the tests of jobs.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own takes 5 ms to import, and jobs pay for what they import
if TYPE_CHECKING:
    from pgcron_runner.declaring import job
    from pgcron_runner.pretending import next_times, pretend_run, run_once
    from pgcron_runner.running import run
    from pgcron_runner.service import Worker

__version__ = "0.1.0"
__all__ = ["Worker", "__version__", "job", "next_times", "pretend_run", "run", "run_once"]
# Imported when they are asked for: jobs pay for what they import.
_HOMES = {
    "Worker": "service",
    "job": "declaring",
    "next_times": "pretending",
    "pretend_run": "pretending",
    "run": "running",
    "run_once": "pretending",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
