"""The storm: faults by a seeded choice, one every few seconds, several at a time."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.faults.programme.host_faults import HOST_FAULTS
from tests.faults.programme.hosts import Host, boottime
from tests.faults.programme.scene import Done, Scene
from tests.faults.programme.server_faults import LIGHT, SERVER_FAULTS

KINDS = (*HOST_FAULTS, *SERVER_FAULTS)
_AT_A_TIME = 6


class Storm:
    """Begins faults until its time is over, then waits until all are healed. What goes wrong in itself it tells."""

    def __init__(self, scene: Scene, *, only: tuple[str, ...], rate: float) -> None:
        self._scene = scene
        self._pause = 60 / rate
        self._chance = random.Random(scene.chance.random())
        self._kinds = [kind for kind in KINDS if not only or any(word in kind for word in only)]
        weights = {kind: weight for kind, (_, weight) in (*HOST_FAULTS.items(), *SERVER_FAULTS.items())}
        self._weights = [weights[kind] for kind in self._kinds]
        self._places = threading.Semaphore(_AT_A_TIME)
        self.mishaps: list[str] = []

    def blow(self, seconds: float) -> None:
        until = boottime() + seconds
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            while (left := until - boottime()) > 0:
                self._scene.ended.wait(min(left, self._chance.expovariate(1 / self._pause)))
                if boottime() < until and self._places.acquire(timeout=max(until - boottime(), 0.01)):
                    pool.submit(self._one, *self._choose())
            self._scene.ended.set()

    def _choose(self) -> tuple[str, Host]:
        kind = self._chance.choices(self._kinds, self._weights)[0]
        return kind, self._chance.choice(self._scene.hosts)

    def _one(self, kind: str, host: Host) -> None:
        try:
            if kind in HOST_FAULTS:
                fault = HOST_FAULTS[kind][0]
                self._do(kind, host.name, host.busy, lambda: fault(self._scene, host))
            else:
                lock = threading.Lock() if kind in LIGHT else self._scene.server_busy
                self._do(kind, "the server", lock, lambda: SERVER_FAULTS[kind][0](self._scene))
        finally:
            self._places.release()

    def _do(self, kind: str, target: str, busy: threading.Lock, fault: Callable[[], str | None]) -> None:
        if not busy.acquire(blocking=False):
            return
        began = boottime()
        try:
            what = fault()
        except Exception as error:  # the server that it acts on may be away for another's sake
            what = None
            self.mishaps.append(f"{kind}: {error!r}\n{traceback.format_exc(limit=-3)}")
        finally:
            busy.release()
        if what is not None:
            self._scene.done.append(Done(kind, target, began, boottime(), what))
