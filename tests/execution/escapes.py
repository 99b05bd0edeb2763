"""Ways to hide from whoever kills, and who is still alive. The standard library is all it needs, wherever it runs."""

from __future__ import annotations

import os
from pathlib import Path

ENV = {"PATH": os.environ["PATH"]}
# Each leaves a process with the marker as an argument, in a way that hides it from the one before.
ESCAPES = {
    "child": "sleep 300 {0} & wait",
    "ignores TERM": "trap '' TERM; sleep 300 {0}; sleep 300 {0}; sleep 300 {0}",
    "orphan": "(sleep 300 {0} &) ; sleep 300",
    "session": "setsid sleep 300 {0} & wait",
    "daemon": "(setsid sh -c '(sleep 300 {0} &)' &) ; sleep 300",
    "daemon without environment": "(env -i setsid /bin/sh -c '(/bin/sleep 300 {0} &)' &) ; sleep 300",
    "stopped": "sleep 300 {0} & sleep 0.1; kill -STOP $! $$",
}
# Forks and ends every four milliseconds, each time in a new session; ten of them stay. It lasts for a minute at most: a
# host on which nobody reaps runs out of process numbers only after that.
STORM = """
import os, sys, time
until = time.monotonic() + 60
for born in range(1 << 30):
    time.sleep(0.004)
    if os.fork():
        time.sleep(60 if born < 10 else 0)
        os._exit(0)
    if time.monotonic() > until:
        os._exit(0)
    os.setsid()
"""


def living(marker: str) -> list[int]:
    """The processes with this among their arguments, but for those that have ended and wait to be reaped."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _has(entry, marker)]


def _has(entry: Path, marker: str) -> bool:
    try:
        return marker.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def exists(pid: int) -> bool:
    """Whether this process is there and has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
