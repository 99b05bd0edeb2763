"""Faults of one host: its worker, guard, clock and network. Each applies, holds and heals; None: not possible now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from tests.faults.processes import descendants
from tests.faults.programme.hosts import Host
from tests.faults.programme.scene import Scene

HostFault = Callable[[Scene, Host], str | None]


def kill_worker(scene: Scene, host: Host) -> str | None:
    """SIGKILL."""
    if not host.running:
        return None
    host.signal(signal.SIGKILL)
    return ""


def drain_worker(scene: Scene, host: Host) -> str | None:
    """SIGTERM, and again where it takes long."""
    if not host.running:
        return None
    host.signal(signal.SIGTERM)
    for _ in range(3):
        until = time.monotonic() + scene.chance.uniform(0.5, 2 * scene.lease)
        while host.running and time.monotonic() < until:
            time.sleep(0.05)
        if not host.running:
            return "ended in order"
        host.signal(signal.SIGTERM)
    until = time.monotonic() + 30
    while host.running and time.monotonic() < until:
        time.sleep(0.05)
    if host.running:
        host.signal(signal.SIGKILL)
        return "had to be killed 30 s after its third signal"
    return "ended after several signals"


def freeze_shortly(scene: Scene, host: Host) -> str | None:
    """SIGSTOP for less than a lease."""
    return _freeze(scene, host, 0.1, 0.7)


def freeze_long(scene: Scene, host: Host) -> str | None:
    """SIGSTOP for longer than a lease."""
    return _freeze(scene, host, 1.2, 2.5)


def _freeze(scene: Scene, host: Host, least: float, most: float) -> str | None:
    if not host.running:
        return None
    pids = host.freeze()
    began = time.monotonic()
    scene.pause(least * scene.lease, most * scene.lease)
    host.thaw(pids)
    return f"for {time.monotonic() - began:.1f} s"


def freeze_host(scene: Scene, host: Host) -> str | None:
    """Everything on it, commands too, for less than the guard has to spare."""
    if not host.running or host.popen is None:
        return None
    pids = [host.popen.pid, *(process.pid for process in descendants(host.popen.pid))]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    scene.pause(0.05 * scene.lease, 0.5 * scene.lease)
    host.thaw(pids)
    return f"{len(pids)} processes"


def kill_guard(scene: Scene, host: Host) -> str | None:
    """SIGKILL to the guard: its worker ends itself."""
    return "" if host.kill_guard() else None


def step_host_clock(scene: Scene, host: Host) -> str | None:
    """By seconds or by an hour, forwards or backwards, for good."""
    if host.clock is None:
        return None
    seconds = scene.chance.choice([-1, 1]) * scene.chance.choice([0.5, 5, 60, 3600])
    host.clock.step(seconds)
    return f"by {seconds:+g} s"


def cut_line(scene: Scene, host: Host) -> str | None:
    """Both ways, and nobody is told."""
    if host.cable is not None:
        host.cable.cut("both ways")
    else:
        _each(host, "stall")
    return _hold_line(scene, host, 0.2, 2.2)


def deafen_host(scene: Scene, host: Host) -> str | None:
    """The servers hear it, it does not hear them."""
    if host.cable is not None:
        host.cable.cut("to the host")
    else:
        for proxy in host.proxies:
            proxy.stall("to the client")
    return _hold_line(scene, host, 0.2, 2.0)


def mute_host(scene: Scene, host: Host) -> str | None:
    """It hears the servers, they do not hear it."""
    if host.cable is not None:
        host.cable.cut("to the server")
    else:
        for proxy in host.proxies:
            proxy.stall("to the server")
    return _hold_line(scene, host, 0.2, 2.0)


def reset_line(scene: Scene, host: Host) -> str | None:
    """Connections end with a word (proxies), or the cable is out (namespaces)."""
    if host.cable is not None:
        host.cable.pull()
    else:
        _each(host, "cut")
    return _hold_line(scene, host, 0.0, 1.8)


def half_open_line(scene: Scene, host: Host) -> str | None:
    """One side is told that it is over, the other believes in it."""
    if host.cable is not None:
        return None
    way = scene.chance.choice(["abandon", "orphan"])
    _each(host, way)
    return f"{way}, {_hold_line(scene, host, 0.2, 1.5)}"


def slow_line(scene: Scene, host: Host) -> str | None:
    """Each packet takes its time."""
    if host.cable is not None:
        return None
    seconds = scene.chance.uniform(0.02, 0.12 * scene.lease)
    for proxy in host.proxies:
        proxy.slow_down(seconds)
    return f"{seconds:.2f} s each, {_hold_line(scene, host, 0.5, 2.5)}"


def late_answer(scene: Scene, host: Host) -> str | None:
    """A worker hears the answer to its heartbeat late, and is cut off then: who counts from the answer errs."""
    if host.cable is not None or not host.running:
        return None
    # Long enough to stop the worker while the answer is on its way, and short beside a lease.
    for proxy in host.proxies:
        proxy.slow_down(0.015 * scene.lease)
    try:
        if not _wait_for_beat(scene, host):
            return None
        pids = host.freeze()
        # Not as long as the deadline that it knew before.
        scene.pause(0.42 * scene.lease, 0.5 * scene.lease)
        host.thaw(pids)
        # For what a heartbeat says after its first answer; too short for another one.
        time.sleep(0.08 * scene.lease)
        _each(host, "stall")
        return _hold_line(scene, host, 1.6, 2.2)
    finally:
        _each(host, "resume")


def _wait_for_beat(scene: Scene, host: Host) -> bool:
    """Until the server has the next heartbeat of this host's worker."""
    beat = "select id, beat from pgcron.workers where name = %s and ended_at is null order by started_at desc limit 1"
    until = time.monotonic() + scene.lease / 2
    with scene.cluster.primary.connect() as connection:
        first = connection.execute(beat, [host.name]).fetchone()
        while time.monotonic() < until and not scene.ended.is_set():
            if connection.execute(beat, [host.name]).fetchone() != first:
                return True
            time.sleep(0.003)
    return False


def _hold_line(scene: Scene, host: Host, least: float, most: float) -> str:
    began = time.monotonic()
    scene.pause(least * scene.lease, most * scene.lease)
    if host.cable is not None:
        host.cable.heal()
    else:
        _each(host, "resume")
    return f"for {time.monotonic() - began:.1f} s"


def _each(host: Host, action: str) -> None:
    for proxy in host.proxies:
        getattr(proxy, action)()


HOST_FAULTS: dict[str, tuple[HostFault, int]] = {
    "worker killed": (kill_worker, 4),
    "worker drained": (drain_worker, 3),
    "worker frozen for less than its lease": (freeze_shortly, 3),
    "worker frozen for longer than its lease": (freeze_long, 3),
    "host frozen for a moment": (freeze_host, 1),
    "guard killed": (kill_guard, 2),
    "host's clock stepped": (step_host_clock, 3),
    "line cut silently": (cut_line, 3),
    "line cut towards the host": (deafen_host, 2),
    "line cut towards the server": (mute_host, 2),
    "line reset": (reset_line, 3),
    "line half open": (half_open_line, 3),
    "line slow": (slow_line, 2),
    "answers late": (late_answer, 1),
}
