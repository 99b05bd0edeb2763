"""`python -m tests.bench.sending`: what a message costs, from the first one to many through one warm sender process."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

from pgcron_runner.model import Alert, Channel
from pgcron_runner.notify import Notifier
from tests.support.listeners import hook

_MESSAGES = 200
_FACTS = {"job": "backup", "host": "db-1", "run": 4711, "error": "exited with code 2", "output": "line\n" * 400}


def main() -> None:
    for scheme in ("webhook+http", "pagerduty", "json"):
        asyncio.run(measure(scheme))


async def measure(scheme: str) -> None:
    notifier = Notifier()
    with hook() as server:
        path = f"key?url=http://{server.address}/" if scheme == "pagerduty" else f"{server.address}/"
        channel = Channel(1, "ops", f"{scheme}://{path}")
        first = await send(notifier, channel, 1)
        began, cpu = time.perf_counter(), used_by(notifier)
        for _ in range(_MESSAGES):
            await send(notifier, channel, 1)
        each = (time.perf_counter() - began) / _MESSAGES
        cpu = (used_by(notifier) - cpu) / _MESSAGES
        digest = await send(notifier, channel, 500)
        print(
            f"{scheme:13} first {first * 1000:6.0f} ms, then {1 / each:5.0f} a second ({cpu * 1000:.1f} ms CPU each),"
            f" 500 alerts {digest * 1000:6.0f} ms, {memory_of(notifier):4.0f} MB",
            flush=True,
        )
    await notifier.close()


async def send(notifier: Notifier, channel: Channel, count: int) -> float:
    """Seconds until it was taken."""
    alerts = [
        Alert(n, "failed", "backup", f"pgcron/here/{n}", dict(_FACTS), datetime.now(UTC), 1) for n in range(count)
    ]
    began = time.perf_counter()
    delivery = await notifier.send(channel, alerts)
    assert delivery.sent or delivery.taken, delivery
    return time.perf_counter() - began


def used_by(notifier: Notifier) -> float:
    """Seconds of the processor that the sender has had."""
    [sender] = notifier._idle
    fields = Path(f"/proc/{sender.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_of(notifier: Notifier) -> float:
    [sender] = notifier._idle
    for line in Path(f"/proc/{sender.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
