"""The hosts: each with its own network, clock and file of marks, and a worker that is started again when it dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pgcron_runner
from tests.faults.processes import Process, descendants
from tests.faults.programme.namespaces import Cable, inside
from tests.faults.programme.tools import SteppedClock
from tests.support.proxy import Proxy

_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Life:
    """One worker process, from its start to its end on the boot-time clock; `logged`: how long the log was then."""

    pid: int
    began_at: float
    ended_at: float | None
    code: int | None
    killed_by_us: bool
    logged: int


class Host:
    """A host. Its line to the servers is a cable (in a namespace), or one proxy a server (on loopback)."""

    def __init__(
        self,
        number: int,
        folder: Path,
        *,
        cable: Cable | None,
        sockets: Mapping[int, str],
        clock: SteppedClock | None,
        mutant: str | None,
        options: tuple[str, ...],
    ) -> None:
        self.name = f"host-{number}"
        self.cable = cable
        self.clock = clock
        self.truth = folder / f"{self.name}.truth"
        self.log = folder / f"{self.name}.log"
        self.proxies = [] if cable else [Proxy(path) for _, path in sorted(sockets.items())]
        self.lives: list[Life] = []
        self.popen: subprocess.Popen[bytes] | None = None
        self.frozen = False
        self.busy = threading.Lock()
        self._ports = sorted(sockets)
        self._folder = folder
        self._mutant = mutant
        self._options = options
        self._began_at = 0.0
        self._ours = False

    @property
    def dsn(self) -> str:
        """Both servers, and only the one that can write."""
        if self.cable is not None:
            hosts, ports = self.cable.server, [str(port) for port in self._ports]
        else:
            hosts, ports = "127.0.0.1", [str(proxy.port) for proxy in self.proxies]
        return (
            f"host={','.join([hosts] * len(ports))} port={','.join(ports)} user=worker password=worker dbname=app"
            " target_session_attrs=read-write sslmode=disable gssencmode=disable"
        )

    def start(self) -> None:
        """A new worker, unless there is one."""
        if self.popen is not None and self.popen.poll() is None:
            return
        self.settle()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        paths = [str(Path(pgcron_runner.__file__).parents[1]), str(_ROOT)]
        env = kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "TRUTH": str(self.truth)}
        program = ["-m", "pgcron_runner"]
        if self._mutant is not None:
            program = ["-m", "tests.faults.mutants.worker", self._mutant]
        with inside(self.cable.namespace if self.cable else None), self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [
                    sys.executable,
                    *program,
                    "worker",
                    "--dsn",
                    self.dsn,
                    "--log-json",
                    "--name",
                    self.name,
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=env | (self.clock.env if self.clock else {}),
                start_new_session=True,
            )
        self._began_at, self._ours, self.frozen = boottime(), False, False

    def settle(self) -> None:
        """Writes down how the last worker ended, if it has."""
        if self.popen is None or (code := self.popen.poll()) is None:
            return
        self.lives.append(Life(self.popen.pid, self._began_at, boottime(), code, self._ours, self.log.stat().st_size))
        self.popen = None

    @property
    def running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def signal(self, number: int) -> None:
        """To the worker; its end is then ours."""
        if self.popen is not None:
            self._ours = self._ours or number in (signal.SIGKILL, signal.SIGTERM)
            with suppress(ProcessLookupError):
                self.popen.send_signal(number)

    def freeze(self, *, with_guard: bool = False) -> list[int]:
        """Stops the worker, and its guard where asked; the processes to be thawed."""
        pids = [self.popen.pid] if self.popen is not None else []
        if with_guard and (guard := self.guard()) is not None:
            pids.append(guard.pid)
        self.frozen = True
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return pids

    def thaw(self, pids: list[int]) -> None:
        """They go on."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen = False

    def guard(self) -> Process | None:
        """The guard of the worker."""
        if self.popen is None:
            return None
        return next((found for found in descendants(self.popen.pid) if "/guard" in found.command), None)

    def kill_guard(self) -> bool:
        """The worker ends itself then."""
        guard = self.guard()
        if guard is None:
            return False
        self._ours = True
        with suppress(ProcessLookupError):
            os.kill(guard.pid, signal.SIGKILL)
        return True

    def stop(self) -> None:
        """At the end: whatever still runs is killed."""
        if self.popen is not None and self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self.settle()


class Resurrection(threading.Thread):
    """Starts dead workers again after a moment, as a service manager does."""

    def __init__(self, hosts: list[Host], chance: random.Random) -> None:
        super().__init__(name="resurrection", daemon=True)
        self._hosts = hosts
        self._chance = chance
        self._ended = threading.Event()

    def run(self) -> None:
        due: dict[str, float] = {}
        while not self._ended.wait(0.1):
            for host in self._hosts:
                if host.running:
                    due.pop(host.name, None)
                elif host.name not in due:
                    due[host.name] = time.monotonic() + self._chance.choice([0.1, 0.5, 1.0, 2.0, 5.0])
                elif due[host.name] <= time.monotonic() and host.busy.acquire(blocking=False):
                    # Where this machine has no process to give, the next try may do.
                    try:
                        with suppress(OSError, RuntimeError):
                            host.start()
                    finally:
                        host.busy.release()

    def end(self) -> None:
        self._ended.set()
        self.join()


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
