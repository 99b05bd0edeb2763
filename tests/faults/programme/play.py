"""One run of the programme from the first server to the verdict."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import psycopg

from pgcron_runner.migrate import migrate_database
from tests.faults.checker import Breach, History, breaches
from tests.faults.processes import marked
from tests.faults.programme import collect
from tests.faults.programme.driver import Driver, Stranger
from tests.faults.programme.hosts import Host, Life, Resurrection
from tests.faults.programme.jobs import SCHEMA, all_jobs, insert
from tests.faults.programme.namespaces import Network, are_possible
from tests.faults.programme.nodes import Cluster, home_for_servers
from tests.faults.programme.peer import Peer
from tests.faults.programme.scene import Done, Scene
from tests.faults.programme.storm import Storm
from tests.faults.programme.tools import SteppedClock, build_clock_shim, build_mark


@dataclass(frozen=True, slots=True)
class Order:
    """What to play."""

    seed: int
    minutes: float
    workers: int = 3
    bin_dir: Path | None = None
    only: tuple[str, ...] = ()
    mutant: str | None = None
    rate: float = 28.0
    lease: float = 4.0
    calm: float = 25.0
    cables: bool = True


@dataclass
class Played:
    """What came of it."""

    order: Order
    version: int
    synchronous: bool
    history: History
    breaches: list[Breach]
    done: list[Done]
    mishaps: list[str]
    events: list[collect.Event]
    notes: list[str] = field(default_factory=list)
    acts: int = 0
    seconds: float = 0.0


def tidy_up_on_term() -> None:
    """SIGTERM to this program leaves no server, worker, namespace or volume behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def play(order: Order, *, say: bool = True) -> Played:
    """Storm, calm, verdict."""
    began = time.monotonic()
    with _stage(order) as (scene, driver, mark):
        storm = Storm(scene, only=order.only, rate=order.rate)
        monitor = _Monitor(scene)
        resurrection = Resurrection(scene.hosts, random.Random(scene.chance.random()))
        stranger = Stranger(scene.cluster, order.lease)
        threads: list[threading.Thread] = [driver, stranger, monitor, resurrection]
        for thread in threads:
            thread.start()
        _tell(say, f"storm of {order.minutes:g} minutes on PostgreSQL {scene.cluster.version}")
        storm.blow(order.minutes * 60)
        _heal(scene)
        driver.end()
        stranger.end()
        _tell(say, f"calm after {len(scene.done)} faults")
        calm_from = _calm(scene, driver, order.calm)
        complaints = (_unplanned(scene) if calm_from else []) + _close(scene)
        resurrection.end()
        complaints += _end_workers(scene)
        monitor.end()
        history = _history(scene, mark, calm_from, [*complaints, *monitor.changes])
        _tell(say, f"{len(history.runs)} rows, {len(history.marks)} marks; judging")
        events = collect.read_events(scene.hosts)
        return Played(
            order,
            scene.cluster.version,
            scene.cluster.synchronous,
            history,
            breaches(history),
            scene.done,
            storm.mishaps,
            events,
            list(scene.skipped.values()),
            driver.acts,
            time.monotonic() - began,
        )


def _tell(say: bool, text: str) -> None:
    if say:
        print(f"{datetime.now():%H:%M:%S} {text}", flush=True)  # noqa: DTZ005 - for whoever watches


@contextmanager
def _stage(order: Order) -> Iterator[tuple[Scene, Driver, Path]]:
    chance = random.Random(order.seed)
    synchronous = chance.random() < 0.5
    with ExitStack() as stack:
        home, volumes = stack.enter_context(home_for_servers())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgcron-faults-")))
        folder.chmod(0o755)
        network = stack.enter_context(Network()) if order.cables and are_possible() else None
        shim, mark = build_clock_shim(folder), build_mark(folder)
        clock = SteppedClock(shim, folder / "server.clock") if shim else None
        namespace = network.servers if network else None
        cluster = Cluster(home, bin_dir=order.bin_dir, namespace=namespace, clock=clock, synchronous=synchronous)
        stack.callback(cluster.stop)
        cluster.create()
        peer = Peer(folder / "peer.truth", namespace)
        stack.callback(peer.stop)
        hosts = [_host(stack, order, number, folder, home, network, shim) for number in range(1, order.workers + 1)]
        url = f"http://{hosts[0].cable.server if hosts[0].cable else '127.0.0.1'}:{peer.port}/"
        scene = Scene(cluster, hosts, order.lease, chance, volumes)
        _skips(scene, network)
        driver = Driver(cluster, mark, random.Random(chance.random()), scene.still)
        _prepare(cluster, order, mark, url, driver)
        stack.callback(scene.ended.set)
        for host in hosts:
            host.start()
            stack.callback(host.stop)
        # Whoever starts while a clock is wrong has no other to compare it with.
        time.sleep(3)
        yield scene, driver, mark


def _host(
    stack: ExitStack, order: Order, number: int, folder: Path, home: Path, network: Network | None, shim: Path | None
) -> Host:
    # The last host of three is on loopback behind proxies, which know faults that cables do not; without root all are.
    cable = network.add_host(number) if network and (number % 3 or order.workers == 1) else None
    ports = (5501, 5502)
    host = Host(
        number,
        folder,
        cable=cable,
        sockets={port: f"{home}/.s.PGSQL.{port}" for port in ports},
        clock=SteppedClock(shim, folder / f"host-{number}.clock") if shim else None,
        mutant=order.mutant,
        options=("--lease", f"{order.lease:g}s", "--poll", "1s", "--slots", "14"),
    )
    for proxy in host.proxies:
        stack.enter_context(proxy)
    return host


def _skips(scene: Scene, network: Network | None) -> None:
    if network is None:
        scene.skipped["cables"] = "no network namespaces here (root only): all hosts are behind proxies"
    if not scene.volumes:
        scene.skipped["disk full"] = "no volumes of our own here (root only): no full disk"
    if scene.cluster.clock is None:
        scene.skipped["clocks"] = "no C compiler here: no clock is stepped"


def _prepare(cluster: Cluster, order: Order, mark: Path, url: str, driver: Driver) -> None:
    with cluster.primary.connect("postgres") as connection:
        connection.execute("create database app")
    migrate_database(cluster.primary.dsn("app"))
    with cluster.primary.connect() as connection:
        connection.execute(SCHEMA)
        for spec in all_jobs(mark, url):
            # A host on loopback cannot reach a peer in the namespace.
            insert(connection, spec)
        driver.prepare(connection)


class _Monitor(threading.Thread):
    """Looks every few seconds whether what was final still is; and keeps the standby alive."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(name="monitor", daemon=True)
        self._scene = scene
        self._ended = threading.Event()
        self._before: dict[int, tuple[str, datetime, str | None]] = {}
        self._failovers = 0
        self.changes: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(5):
            with suppress(psycopg.Error, OSError):
                self.look()
            if self._scene.server_busy.acquire(blocking=False):
                try:
                    standby = self._scene.cluster.standby
                    if standby is not None and standby.pid is None:
                        standby.start()
                finally:
                    self._scene.server_busy.release()

    def look(self) -> None:
        cluster = self._scene.cluster
        failovers = cluster.failovers
        with cluster.primary.connect() as connection:
            now = collect.read_finals(connection)
        if failovers == cluster.failovers:
            if failovers == self._failovers or cluster.synchronous:
                self.changes += [
                    f"run {run_id} was {was[0]} and is {now.get(run_id, ('gone',))[0]}: {was} {now.get(run_id)}"
                    for run_id, was in self._before.items()
                    if now.get(run_id) != was
                ]
            self._before, self._failovers = now, failovers

    def end(self) -> None:
        self._ended.set()
        self.join()
        with suppress(psycopg.Error):
            self.look()


def _heal(scene: Scene) -> None:
    scene.revive()
    for host in scene.hosts:
        if host.cable is not None:
            host.cable.heal()
        for proxy in host.proxies:
            proxy.resume()


def _calm(scene: Scene, driver: Driver, seconds: float) -> datetime | None:
    """Everything works again: from when on it has to be on time. Without a calm only the dead are waited for."""
    with scene.cluster.primary.connect() as connection:
        driver.settle(connection)
    if not seconds:
        time.sleep(2 * scene.lease)
        return None
    # A lease to reap the dead, ten seconds until a stepped clock is believed, and a little more.
    time.sleep(2 * scene.lease + 14)
    with scene.cluster.primary.connect() as connection:
        row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    time.sleep(seconds)
    calm_from: datetime = row[0]
    return calm_from


def _unplanned(scene: Scene) -> list[str]:
    """Jobs whose next time is not what it has to be in a calm."""
    with scene.cluster.primary.connect() as connection:
        rows = connection.execute(
            "select name, next_run_at, clock_timestamp() from pgcron.jobs where enabled and schedule !~ '^@(manual|at)'"
            " and (next_run_at is null or next_run_at not between clock_timestamp() - interval '5 seconds'"
            " and clock_timestamp() + interval '65 seconds')"
        )
        return [f"{name} is not planned on: its next time is {at}, and now is {now}" for name, at, now in rows]


def _close(scene: Scene) -> list[str]:
    """Nothing is due any more, and what there is comes to its end."""
    with scene.cluster.primary.connect() as connection:
        connection.execute(
            "with old as materialized (select * from pgcron.jobs order by id for update),"
            " new as (update pgcron.jobs j set enabled = false from old where j.id = old.id returning j.*)"
            " insert into truth.edits (job, action, at, old_planned, old_next, schedule, timezone, enabled,"
            " anchored_at, max_attempts)"
            " select old.name, 'disabled', clock_timestamp(), old.planned, old.next_run_at, new.schedule, new.timezone,"
            " false, new.anchored_at, new.max_attempts from old join new using (id)"
        )
        live = "select count(*) from pgcron.runs where status in ('queued', 'running')"
        until = time.monotonic() + 60
        while time.monotonic() < until:
            row = connection.execute(live).fetchone()
            if row is not None and row[0] == 0:
                return []
            time.sleep(0.2)
    return ["not all runs had come to their end a minute after the last was due"]


def _end_workers(scene: Scene) -> list[str]:
    for host in scene.hosts:
        host.signal(signal.SIGTERM)
    until = time.monotonic() + 30
    while any(host.running for host in scene.hosts) and time.monotonic() < until:
        time.sleep(0.1)
    found = [f"{host.name} did not end within 30 s of SIGTERM" for host in scene.hosts if host.running]
    for host in scene.hosts:
        host.stop()
        for life in [life for life in host.lives if not life.killed_by_us]:
            words = _last_words(host, life)
            if collect.is_short_of_processes(words):
                scene.skipped["processes"] = "not judged: workers that this machine had no process to start for"
            else:
                found.append(f"the worker of {host.name} ended by itself with code {life.code}; it said: {words}")
    return found


def _last_words(host: Host, life: Life) -> str:
    """What was in the log of a host just before one of its workers ended."""
    text = host.log.read_text(errors="replace")[: life.logged].splitlines()
    return " | ".join(line[:300] for line in text[-4:])


def _history(scene: Scene, mark: Path, calm_from: datetime | None, complaints: list[str]) -> History:
    files = [*(host.truth for host in scene.hosts), mark.parent / "peer.truth"]
    events = collect.read_events(scene.hosts)
    with scene.cluster.primary.connect() as connection:
        row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        changes = [text for text in complaints if text.startswith("run ")]
        return History(
            jobs=collect.read_jobs(connection),
            runs=collect.read_runs(connection),
            now=row[0],
            clock=collect.clock(scene.steps),
            marks=collect.read_marks(files),
            effects=collect.read_effects(connection),
            holds=collect.read_holds(connection),
            locks=collect.locks_left(connection),
            processes=[f"{process.pid} {process.command}" for process in marked(str(mark))],
            splits=scene.splits,
            changes=changes,
            complaints=[
                *(text for text in complaints if text not in changes),
                *collect.complaints(events),
                *(
                    f"run {run_id} of {job} was asked for, and is nowhere"
                    for run_id, job in collect.read_asked(connection)
                ),
            ],
            calm_from=calm_from,
            late_after=timedelta(seconds=5),
            unrecorded=True,
            lease=scene.lease,
        )
