"""Real worker processes, to be killed, frozen and read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pgcron_runner


class WorkerProcess:
    """`python -m pgcron_runner worker --dsn …` in a process group of its own; its output goes to a file.

    It never inherits PG* variables. Leaving the context kills the process if it still runs; what the worker
    started is its guard's to end.
    """

    def __init__(
        self,
        dsn: str,
        *arguments: str,
        folder: Path,
        name: str = "worker",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.log_path = folder / f"{name}.log"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pgcron_runner", "worker", "--dsn", dsn, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=_environment() | dict(env or {}),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL to the worker alone, and wait until it is dead."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Freeze it (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def cont(self) -> None:
        """Let it go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to drain (SIGTERM)."""
        self._process.terminate()

    def wait(self, timeout: float = 30) -> int:
        """Its exit code; subprocess.TimeoutExpired after `timeout` seconds."""
        return self._process.wait(timeout)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.returncode is None:
            self.kill()  # works on a frozen process too


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    # The very package that the tests have imported, be it the source tree or an installed wheel.
    package = str(Path(pgcron_runner.__file__).parents[1])
    paths = [package, *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
