"""What goes wrong, and when: a random schedule of faults, each of which ends by itself."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING

from tests.faults.checker import Hold
from tests.model.machine import Machine

if TYPE_CHECKING:
    from tests.model.scenario import Scenario


class Faults:
    """The faults of one scenario. After `until` all of them are over."""

    def __init__(self, scenario: Scenario, until: float, only: Collection[str]) -> None:
        self.count: Counter[str] = Counter()
        self.holds: list[Hold] = []
        self._scenario, self._world, self._server = scenario, scenario.world, scenario.server
        self._until = until
        self._rng: Random = scenario.world.rng
        kinds = sorted(only or _KINDS)
        # A few kinds at a time: more stories are told than with a little of everything.
        self._kinds = self._rng.sample(kinds, len(kinds) if only else self._rng.randint(1, len(kinds)))
        pause = 0.5 if only else self._rng.choice([0.5, 1.0, 3.0])
        time = 1.0
        while (time := time + self._rng.expovariate(1 / pause)) < until:
            self._world.at(time, self._strike)

    def _strike(self) -> None:
        kind = self._rng.choice(self._kinds)
        if _KINDS[kind](self, self._rng.choice(self._scenario.machines)) is not False:
            self.count[kind] += 1
            self._world.say(f"fault: {kind}")

    def _lasting(self, most: float) -> float:
        """For how long: mostly shorter than a lease, now and then longer; never into the calm."""
        left = max(self._until - self._world.now, 0.01)
        return min(self._rng.choice([0.1, 0.5, 1.0]) * self._rng.random() * most, left)

    @property
    def _lease(self) -> float:
        return self._scenario.lease

    # Workers.

    def kill(self, machine: Machine) -> None:
        machine.kill()
        self._world.after(self._lasting(2 * self._lease), machine.start)

    def drain(self, machine: Machine) -> bool | None:
        if machine.process is None:
            return False
        for _ in range(self._rng.choice([1, 1, 2, 3])):
            machine.process.signal(signal.SIGTERM)
        return None

    def stop(self, machine: Machine) -> bool | None:
        process = machine.process
        if process is None or process.is_stopped:
            return False
        process.stop()
        self._world.after(self._lasting(3 * self._lease), process.cont)
        return None

    def suspend(self, machine: Machine) -> bool | None:
        if machine.host.is_suspended:
            return False
        machine.host.suspend()
        self._world.after(self._lasting(3 * self._lease), machine.host.resume)
        return None

    # Lines.

    def cut(self, machine: Machine) -> bool | None:
        if not machine.line.is_whole:
            return False
        machine.line.cut(*self._rng.choice([("out",), ("in",), ("out", "in")]))
        self._world.after(self._lasting(3 * self._lease), machine.line.mend)
        return None

    def answer_late(self, machine: Machine) -> bool | None:
        """What it sends arrives; the answers come late, and then nothing of it is heard for a while."""
        line = machine.line
        if not line.is_whole:
            return False
        deaf, mute = (min(self._rng.random() * self._lease, self._until - self._world.now) for _ in range(2))

        def turn() -> None:
            line.mend()
            line.cut("out")
            self._world.after(self._lease / 2 + mute, line.mend)

        line.cut("in")
        self._world.after(deaf, turn)
        return None

    def slow(self, machine: Machine) -> None:
        machine.line.slowness = self._rng.choice([0.05, 0.3, 1.0])
        self._world.after(self._lasting(2 * self._lease), setattr, machine.line, "slowness", 0.0)

    def reset(self, machine: Machine) -> bool | None:
        if not machine.line.connections:
            return False
        connection = self._rng.choice(machine.line.connections)
        if self._rng.random() < 0.5:
            machine.host.when_awake(connection.break_off, "connection reset")
            machine.line.send("out", connection.session.client_is_gone)
        else:
            machine.host.when_awake(connection.lose_track)
        return None

    # The server.

    def terminate(self, machine: Machine) -> bool | None:
        sessions = list(self._server.sessions.values())
        if not sessions:
            return False
        self._rng.choice(sessions).end("terminated by an administrator")
        return None

    def restart(self, machine: Machine) -> bool | None:
        if not self._server.is_up:
            return False
        self._server.go_down(crash=self._rng.random() < 0.5)
        self._world.after(self._lasting(self._rng.choice([0.3, 3.0]) * self._lease), self._server.come_up)
        return None

    def promote(self, machine: Machine) -> bool | None:
        if not self._server.is_up:
            return False
        self._scenario.promote(lag=self._rng.choice([0, 1, 3, 10]))
        return None

    def step_clock(self, machine: Machine) -> bool | None:
        if not self._scenario.shows_a_trusted_time:
            return False
        seconds = self._rng.choice([-6.0, -3.0, -1.0, 1.0, 3.0, 20.0, 60.0])
        lasting = min(self._rng.uniform(0.5, 5.0), self._until - self._world.now)
        # A second more or less may be believed, and who has not heard of one step takes the next for a way back.
        is_passing = abs(seconds) > 1 and len(self._scenario.steps) == 1 and self._rng.random() < 0.5
        self._scenario.step_clock(seconds, lasting=lasting if is_passing else None)
        return None

    def disk_full(self, machine: Machine) -> None:
        self._server.refuses_writes = True
        self._world.after(self._lasting(2 * self._lease), setattr, self._server, "refuses_writes", False)

    # People.

    def cancel(self, machine: Machine) -> bool | None:
        live = sorted(self._server.tables.live)
        if not live or not self._server.is_up:
            return False
        facts = {"run_id": self._rng.choice(live), "reason": "a person"}
        session = self._server.connect("psql", None)
        session.receive([("cancel_run", facts)], lambda outcome: session.end("done"))
        self._server.notify("cancel")
        return None

    def hold_lock(self, machine: Machine) -> bool | None:
        if not self._server.is_up:
            return False
        job = self._rng.choice(list(self._server.tables.rows["jobs"].values()))
        session = self._server.connect("psql", None)
        if not session.try_lock(job["id"], exclusive=True):
            session.end("not granted")
            return False
        begin, since = self._server.clock(), self._world.now

        def let_go() -> None:
            if not session.is_over:
                self.holds.append(Hold(job["name"], begin, self._server.clock(), since, self._world.now))
                session.end("done")

        self._world.after(self._lasting(5 * self._lease), let_go)
        return None


_KINDS: dict[str, Callable[[Faults, Machine], bool | None]] = {
    fault.__name__: fault
    for fault in (
        *(Faults.kill, Faults.drain, Faults.stop, Faults.suspend, Faults.cut, Faults.answer_late),
        *(Faults.slow, Faults.reset),
        *(Faults.terminate, Faults.restart, Faults.promote, Faults.step_clock, Faults.disk_full),
        *(Faults.cancel, Faults.hold_lock),
    )
}
