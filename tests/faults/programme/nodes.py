"""The servers: a primary and its standby, on volumes of their own; stopped, killed, promoted, filled, slowed down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from pgcron_runner.embedded import Server
from pgcron_runner.embedded.datafolder import add_settings, create_data
from pgcron_runner.embedded.host import as_owner_of, environment, give_to_server_user
from pgcron_runner.embedded.programs import find_programs
from tests.faults.programme.namespaces import inside
from tests.faults.programme.tools import SteppedClock
from tests.support.folders import quick_folder

VOLUME_MB = 700
_SETTINGS = {
    "fsync": "on",
    "shared_buffers": "32MB",
    "max_connections": "80",
    "superuser_reserved_connections": "10",
    "max_wal_size": "96MB",
    "min_wal_size": "32MB",
    "wal_keep_size": "64MB",
    "hot_standby": "on",
    "wal_receiver_timeout": "5s",
    "wal_sender_timeout": "5s",
    "wal_retrieve_retry_interval": "200ms",
    "track_commit_timestamp": "on",
    "log_line_prefix": "%m [%p] %a ",
    "log_checkpoints": "off",
}
_SYNC = "first 1 (standby)"


@dataclass(frozen=True, slots=True)
class Node(Server):
    """One server in a namespace, with a clock that can be stepped."""

    namespace: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with inside(self.namespace), self.log.open("ab") as log:
            return subprocess.Popen(
                [self.bin_dir / "postgres", "-D", self.data, *self._addresses()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment() | dict(self.env),
                start_new_session=True,
                **as_owner_of(self.data),
            )

    def _addresses(self) -> list[str]:
        listen = "*" if self.namespace else ""
        return [
            "-c",
            f"unix_socket_directories={self.socket_dir}",
            "-c",
            f"listen_addresses={listen}",
            "-c",
            f"port={self.port}",
        ]

    def connect(self, database: str = "app") -> psycopg.Connection:
        """A session of the superuser over the Unix socket."""
        return psycopg.connect(self.dsn(database), autocommit=True, application_name="faults", connect_timeout=3)

    def is_up(self) -> bool:
        with suppress(psycopg.Error), self.connect("postgres") as connection:
            connection.execute("select 1")
            return True
        return False

    def backends(self) -> list[tuple[int, str, str]]:
        """The sessions of workers: pid, name, last statement."""
        with self.connect("postgres") as connection:
            rows = connection.execute(
                "select pid, application_name, query from pg_stat_activity where application_name like 'pgcron %'"
                " and backend_type = 'client backend' order by pid"
            )
            return [(row[0], row[1], row[2]) for row in rows]


class Cluster:
    """A primary, a standby, and how they change places. Methods are called by one thread at a time."""

    def __init__(
        self, home: Path, *, bin_dir: Path | None, namespace: str | None, clock: SteppedClock | None, synchronous: bool
    ) -> None:
        self._home = home
        self._programs = find_programs(bin_dir)
        self._namespace = namespace
        self.clock = clock
        self.synchronous = synchronous
        self.primary: Node
        self.standby: Node | None = None
        self.failovers = 0

    @property
    def version(self) -> int:
        return self._programs.version

    def create(self) -> None:
        """The first primary, with a standby that follows."""
        node = self._node("a", 5501)
        create_data(node.data, self._programs, password=None, sync=False)
        add_settings(node.data, _SETTINGS)
        with (node.data / "pg_hba.conf").open("a") as hba:
            hba.write("host all all 10.97.0.0/16 trust\nlocal replication all trust\n")
        self.primary = node
        node.start()
        self.add_standby()

    def add_standby(self) -> None:
        """A new standby, copied from the primary, and waited for until it follows; synchronous where so ordered."""
        name, port = ("b", 5502) if self.primary.port == 5501 else ("a", 5501)
        node = self._node(name, port)
        shutil.rmtree(node.data, ignore_errors=True)
        primary = self.primary
        source = f"host={primary.socket_dir} port={primary.port} user=postgres"
        primary.run("pg_basebackup", "-D", str(node.data), "-d", source, "-c", "fast", "-X", "stream", "--no-sync")
        add_settings(
            node.data, {"primary_conninfo": f"{source} application_name=standby", "synchronous_standby_names": ""}
        )
        (node.data / "standby.signal").touch()
        give_to_server_user(node.data / "standby.signal")
        node.start()
        self.standby = node
        self.wait_for_standby()
        self.require_standby(self.synchronous)

    def wait_for_standby(self, patience: float = 30.0) -> bool:
        """Until the standby receives what the primary writes."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            with suppress(psycopg.Error), self.primary.connect("postgres") as connection:
                if connection.execute("select 1 from pg_stat_replication where state = 'streaming'").fetchone():
                    return True
            time.sleep(0.1)
        return False

    def require_standby(self, required: bool) -> None:
        """Whether a commit waits until the standby has it."""
        names = _SYNC if required else ""
        with self.primary.connect("postgres") as connection:
            connection.execute(f"alter system set synchronous_standby_names = '{names}'")
            connection.execute("select pg_reload_conf()")

    def promote(self) -> Node:
        """The standby becomes the primary; returns the old one, which is left as it is."""
        old, new = self.primary, self.standby
        assert new is not None
        new.run("pg_ctl", "promote", "-D", str(new.data), "-w")
        self.primary, self.standby = new, None
        self.failovers += 1
        return old

    def stop(self) -> None:
        """Ends both at once, for good."""
        for node in (self.standby, getattr(self, "primary", None)):
            if node is not None:
                for pid in stopped_children(node):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                node.stop("immediate")

    def _node(self, name: str, port: int) -> Node:
        volume = self._home / name
        return Node(
            volume / "data",
            self._home,
            port,
            self._programs.bin_dir,
            self._home / f"server-{name}.log",
            namespace=self._namespace,
            env=self.clock.env if self.clock else {},
        )


def children(node: Node) -> list[int]:
    """The processes of a server but the postmaster."""
    pid = node.pid
    if pid is None:
        return []
    with suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(number) for number in text.split()]
    return []


def stopped_children(node: Node) -> list[int]:
    """Those that are frozen."""
    found = []
    for pid in children(node):
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                found.append(pid)
    return found


@contextmanager
def home_for_servers() -> Iterator[tuple[Path, bool]]:
    """A folder with a volume for each server, and whether these are volumes that can be filled (as root)."""
    with ExitStack() as stack:
        base = quick_folder() or Path(tempfile.gettempdir())
        home = Path(tempfile.mkdtemp(prefix="pgcron-faults-", dir=base))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        give_to_server_user(home)
        home.chmod(0o755)
        limited = True
        for name in ("a", "b"):
            volume = home / name
            volume.mkdir()
            limited = _mount(volume, stack) and limited
            give_to_server_user(volume)
        yield home, limited


def _mount(volume: Path, stack: ExitStack) -> bool:
    if os.geteuid() != 0:
        return False
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME_MB}m", "pgcron-faults", volume], check=False)
    if done.returncode == 0:
        stack.callback(lambda: subprocess.run(["umount", "-l", volume], check=False))
    return done.returncode == 0


def fill(volume: Path) -> Path:
    """Takes all the room that a volume has left; the file to be removed again."""
    ballast = volume / "ballast"
    free = shutil.disk_usage(volume).free
    with suppress(OSError), ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free)
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast
