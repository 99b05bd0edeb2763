"""One Postgres server: started, ended, asked for its address. All state is in its data folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pgcron_runner.embedded import pidfile
from pgcron_runner.embedded.host import as_owner_of, environment, last_lines, run
from pgcron_runner.errors import EmbeddedPostgresError

StopMode = Literal["smart", "fast", "immediate"]

_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_PATIENCE = 60.0
_POLL = 0.01


@dataclass(frozen=True, slots=True)
class Server:
    """A server on this machine, running or not.

    It answers on a Unix socket, without a password, to its own OS user and root only. With a `password` it
    also listens on 127.0.0.1, where roles need it: the superuser has it, give it to others yourself.
    """

    data: Path
    socket_dir: Path
    port: int
    bin_dir: Path
    log: Path
    superuser: str = "postgres"
    password: str | None = field(default=None, repr=False)

    def dsn(self, database: str = "postgres", user: str | None = None, *, tcp: bool = False) -> str:
        """A libpq URI: over the Unix socket, or with `tcp` over 127.0.0.1 with the password in it."""
        who, where = quote(user or self.superuser, safe=""), quote(database, safe="")
        if not tcp:
            return f"postgresql://{who}@/{where}?host={quote(str(self.socket_dir))}&port={self.port}"
        if self.password is None:
            raise EmbeddedPostgresError("This Postgres server listens on its Unix socket only.")
        return f"postgresql://{who}:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{where}"

    @property
    def version(self) -> int:
        """The major version of the data."""
        return int((self.data / "PG_VERSION").read_text())

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster; None when it does not run."""
        return pidfile.running_pid(self.data)

    def start(self) -> None:
        """Start it unless it runs; return when it takes connections, after recovery where that is due."""
        deadline = time.monotonic() + _PATIENCE
        pidfile.remove_foreign(self.data)
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"Postgres is not ready after {_PATIENCE:.0f} seconds. Its log ends:\n{self._said()}"
                )
            if self.pid is None:
                self._launch(deadline)
            else:
                time.sleep(_POLL)

    def stop(self, mode: StopMode = "fast") -> None:
        """End it and wait until its process is gone. Nothing happens when it does not run."""
        self._end(_SIGNALS[mode])

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop, then start; port and socket stay the same."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL the postmaster, as a crash would; its sessions notice and end themselves."""
        self._end(signal.SIGKILL)

    def reload(self) -> None:
        """Have it read its configuration again (SIGHUP)."""
        if pid := self.pid:
            os.kill(pid, signal.SIGHUP)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program that lies beside the server's, as the server's OS user; its output, or an error."""
        return run(self.bin_dir / program, arguments, as_user=as_owner_of(self.data))

    def _is_ready(self) -> bool:
        return self.pid is not None and pidfile.status(self.data) in ("ready", "standby")

    def _launch(self, deadline: float) -> None:
        """Return when it is ready, when the time is up, or when another try may help."""
        said_before = self.log.stat().st_size if self.log.exists() else 0
        process = self._spawn()
        try:
            while process.poll() is None and not self._is_ready() and time.monotonic() < deadline:
                time.sleep(_POLL)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.poll() is None:
            # It may outlive this object and is reaped by its number. Popen shall not warn of a running child.
            process.returncode = 0
            return
        said = self._said(said_before)
        # Sessions of a killed postmaster may live on for a moment and hold its shared memory.
        if "shared memory block" not in said:
            raise EmbeddedPostgresError(f"Postgres did not start in {self.data}. Its log ends:\n{said}")
        time.sleep(10 * _POLL)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self.bin_dir / "postgres", "-D", self.data, *self._addresses()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment(),
                start_new_session=True,  # a Ctrl-C in the terminal is for us, not for the server
                **as_owner_of(self.data),
            )

    def _addresses(self) -> list[str]:
        socket_dir = str(self.socket_dir).replace('"', '""')
        return [
            *("-c", f'unix_socket_directories="{socket_dir}"'),
            *("-c", "unix_socket_permissions=0700"),
            *("-c", f"listen_addresses={'127.0.0.1' if self.password else ''}"),
            *("-c", f"port={self.port}"),
        ]

    def _end(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _PATIENCE
        while pidfile.is_alive(pid):
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"Postgres (process {pid}) does not end. See {self.log}")
            time.sleep(_POLL)

    def _said(self, after: int = 0) -> str:
        with self.log.open("rb") as log:
            log.seek(max(after, log.seek(0, os.SEEK_END) - 20_000))
            return last_lines(log.read().decode(errors="replace"))
