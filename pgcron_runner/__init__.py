"""pgcron-runner: cron for a team that already has Postgres.

`from pgcron_runner import run` is what the code of a job uses; `pretend_run` is for trying it without a worker.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own takes 5 ms to import, and jobs pay for what they import
if TYPE_CHECKING:
    from pgcron_runner.pretending import pretend_run
    from pgcron_runner.running import run

__version__ = "0.1.0"
__all__ = ["__version__", "pretend_run", "run"]


def __getattr__(name: str) -> object:
    if name == "run":
        from pgcron_runner.running import run

        return run
    if name == "pretend_run":
        from pgcron_runner.pretending import pretend_run

        return pretend_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
