"""Faults of the servers: sessions, processes, restarts, failover, clock, disk. Each applies, holds and heals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime

import psycopg

from tests.faults.checker import SplitBrain
from tests.faults.programme.hosts import boottime
from tests.faults.programme.nodes import Node, children, fill
from tests.faults.programme.scene import Scene, minute_ago, started_runs

ServerFault = Callable[[Scene], str | None]


# Sessions.


def end_control_session(scene: Scene) -> str | None:
    """One that holds job locks."""
    return _terminate(
        scene,
        "select pid from pg_locks where locktype = 'advisory' and objsubid = 2 and pid in"
        " (select pid from pg_stat_activity where application_name like 'pgcron %') order by random() limit 1",
    )


def end_sql_job(scene: Scene) -> str | None:
    """One that is in a job's transaction."""
    return _terminate(
        scene,
        "select pid from pg_stat_activity where application_name like 'pgcron %' and query ~ 'pg_sleep|truth' and"
        " state <> 'idle' order by random() limit 1",
    )


def end_listener(scene: Scene) -> str | None:
    """One that only listens."""
    return _terminate(
        scene,
        "select pid from pg_stat_activity where application_name like 'pgcron %' and query ilike 'listen%'"
        " order by random() limit 1",
    )


def end_any_session(scene: Scene) -> str | None:
    """Whichever."""
    return _terminate(
        scene, "select pid from pg_stat_activity where application_name like 'pgcron %' order by random() limit 1"
    )


def end_all_sessions(scene: Scene) -> str | None:
    """All of them at once."""
    with scene.cluster.primary.connect() as connection:
        rows = connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'pgcron %'"
        ).fetchall()
    return f"{len(rows)} sessions"


def _terminate(scene: Scene, which: str) -> str | None:
    with scene.cluster.primary.connect() as connection:
        found = connection.execute(which.encode()).fetchone()
        if found is None:
            return None
        connection.execute("select pg_terminate_backend(%s)", [found[0]])
    return f"session {found[0]}"


# Processes.


def kill_backend(scene: Scene) -> str | None:
    """SIGKILL to one session: the server ends all and recovers."""
    backends = scene.cluster.primary.backends()
    if not backends:
        return None
    with suppress(ProcessLookupError):
        os.kill(scene.chance.choice(backends)[0], signal.SIGKILL)
    time.sleep(0.3)
    scene.revive()
    return ""


def freeze_backends(scene: Scene) -> str | None:
    """Some sessions stand still for a moment."""
    backends = [pid for pid, _, _ in scene.cluster.primary.backends()]
    chosen = scene.chance.sample(backends, min(len(backends), scene.chance.randint(1, 4)))
    return _freeze(scene, chosen, 0.1, 1.6)


def freeze_server(scene: Scene) -> str | None:
    """All its processes stand still for a moment."""
    return _freeze(scene, children(scene.cluster.primary), 0.1, 0.9)


def freeze_standby(scene: Scene) -> str | None:
    """Where replication is synchronous no commit is answered meanwhile."""
    if scene.cluster.standby is None:
        return None
    return _freeze(scene, children(scene.cluster.standby), 0.2, 1.2)


def _freeze(scene: Scene, pids: list[int], least: float, most: float) -> str:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    scene.pause(least * scene.lease, most * scene.lease)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return f"{len(pids)} processes for {time.monotonic() - began:.1f} s"


# The whole server.


def restart_fast(scene: Scene) -> str | None:
    scene.cluster.primary.stop("fast")
    scene.revive()
    return ""


def restart_immediately(scene: Scene) -> str | None:
    scene.cluster.primary.stop("immediate")
    scene.revive()
    return ""


def kill_postmaster(scene: Scene) -> str | None:
    scene.cluster.primary.kill()
    scene.revive()
    return ""


def take_away(scene: Scene) -> str | None:
    """For a part of a lease, or for more than one."""
    scene.cluster.primary.stop("fast")
    scene.pause(0.2 * scene.lease, 1.8 * scene.lease)
    scene.revive()
    return ""


def fail_over(scene: Scene) -> str | None:
    """The primary dies, and its standby takes its place."""
    return _fail_over(scene, old_lives=False)


def fail_over_beside_the_old(scene: Scene) -> str | None:
    """The standby takes its place while the old primary lives on, until it is fenced."""
    return _fail_over(scene, old_lives=True)


def _fail_over(scene: Scene, *, old_lives: bool) -> str | None:
    cluster = scene.cluster
    if cluster.standby is None or not cluster.wait_for_standby(5):
        return None
    if cluster.synchronous and not _is_synchronous(cluster.primary):
        return None
    forgotten: frozenset[tuple[int, datetime]] = frozenset()
    with scene.still:
        began = boottime()
        if not old_lives:
            cluster.primary.kill()
        old = cluster.promote()
        if old_lives:
            scene.pause(0.3 * scene.lease, 2.0 * scene.lease)
            forgotten = _forgotten(old, cluster.primary)
        old.kill()
        if not cluster.synchronous:
            # What was written in the last moment before may not have reached the standby; and what the old primary has
            # given out in its last moment goes on until the lease of its worker is over.
            scene.splits.append(SplitBrain(began - 2.0, boottime() + scene.lease, forgotten))
        cluster.add_standby()
    how = "synchronous" if cluster.synchronous else f"{len(forgotten)} runs forgotten"
    return f"{how}, the old one {'lived on' if old_lives else 'was dead'}"


def _is_synchronous(node: Node) -> bool:
    with node.connect("postgres") as connection:
        return connection.execute("select 1 from pg_stat_replication where sync_state = 'sync'").fetchone() is not None


def _forgotten(old: Node, new: Node) -> frozenset[tuple[int, datetime]]:
    with suppress(psycopg.Error), old.connect() as before, new.connect() as after:
        since = minute_ago(before)
        there, here = started_runs(before, since), started_runs(after, since)
        return frozenset(key for key, value in there.items() if here.get(key) != value)
    return frozenset()


# Clock, disk, connections, locks.


def step_clock(scene: Scene) -> str | None:
    """By up to some seconds, for good."""
    if scene.cluster.clock is None:
        return None
    with scene.still:
        seconds = scene.chance.choice([-1, 1]) * scene.chance.uniform(0.2, 5)
        scene.step_clock(seconds, trusted=True)
    return f"by {seconds:+.1f} s"


def step_clock_for_a_moment(scene: Scene) -> str | None:
    """By a minute or an hour, and back again before anybody should have believed it. No worker starts meanwhile."""
    if scene.cluster.clock is None:
        return None
    with scene.still, ExitStack() as held:
        for host in scene.hosts:
            if not host.running or not host.busy.acquire(timeout=0.2):
                return None
            held.callback(host.busy.release)
        seconds = scene.chance.choice([-1, 1]) * scene.chance.choice([30.0, 60.0, 3600.0])
        scene.step_clock(seconds, trusted=False)
        try:
            scene.pause(0.5, 6)
        finally:
            scene.step_clock(-seconds, trusted=True)
        # Whoever has just read the other clock comes to its end.
        time.sleep(0.5)
    return f"by {seconds:+g} s"


def fill_disk(scene: Scene) -> str | None:
    """No room on the data volume."""
    if not scene.volumes:
        return None
    ballast = fill(scene.cluster.primary.data.parent)
    try:
        scene.pause(0.3 * scene.lease, 1.5 * scene.lease)
    finally:
        ballast.unlink()
    scene.revive()
    return ""


def take_connections(scene: Scene) -> str | None:
    """A stranger takes all connections that there are."""
    node = scene.cluster.primary
    with ExitStack() as taken:
        count = 0
        with suppress(psycopg.Error):
            while count < 200:
                taken.enter_context(
                    psycopg.connect(node.dsn("postgres", "worker"), application_name="stranger", connect_timeout=3)
                )
                count += 1
        end_all_sessions(scene)
        with suppress(psycopg.Error):
            while count < 200:
                taken.enter_context(
                    psycopg.connect(node.dsn("postgres", "worker"), application_name="stranger", connect_timeout=3)
                )
                count += 1
        scene.pause(0.3 * scene.lease, 1.5 * scene.lease)
        with suppress(psycopg.Error):
            taken.close()
    return f"{count} of them"


def lock_table(scene: Scene) -> str | None:
    """Somebody locks the runs, as a migration or VACUUM FULL does."""
    table = scene.chance.choice(["runs", "jobs", "workers"])
    with scene.cluster.primary.connect() as connection, connection.transaction():
        connection.execute(f"lock table pgcron.{table} in access exclusive mode".encode())
        scene.pause(0.1 * scene.lease, 1.2 * scene.lease)
    return table


SERVER_FAULTS: dict[str, tuple[ServerFault, int]] = {
    "control session ended": (end_control_session, 4),
    "SQL job's session ended": (end_sql_job, 5),
    "listening session ended": (end_listener, 1),
    "a session ended": (end_any_session, 4),
    "all sessions ended": (end_all_sessions, 2),
    "backend killed": (kill_backend, 2),
    "sessions frozen": (freeze_backends, 3),
    "server frozen": (freeze_server, 1),
    "standby frozen": (freeze_standby, 2),
    "server restarted": (restart_fast, 2),
    "server restarted at once": (restart_immediately, 2),
    "postmaster killed": (kill_postmaster, 2),
    "server away": (take_away, 1),
    "failover": (fail_over, 1),
    "failover beside the old primary": (fail_over_beside_the_old, 1),
    "database's clock stepped": (step_clock, 1),
    "database's clock stepped for a moment": (step_clock_for_a_moment, 1),
    "disk full": (fill_disk, 1),
    "no connection left": (take_connections, 1),
    "table locked": (lock_table, 2),
}
# These leave the server as it is, and may come on top of anything.
LIGHT = frozenset(list(SERVER_FAULTS)[:5]) | {"table locked"}
