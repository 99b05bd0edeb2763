"""Python jobs that cannot be reasoned with. Called by jobs of the tests."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.execution.escapes import ESCAPES


def holds_the_lock_of_the_interpreter(path: str) -> None:
    """No Python code, and so no handler of signals, runs until it returns, which it never does."""
    mutex = ctypes.create_string_buffer(128)
    Path(path).touch()
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def allocates(megabytes: int, path: str = "/dev/null") -> int:
    kept = []
    for _ in range(megabytes):
        kept.append(bytearray(1 << 20))
        time.sleep(0.002)
    Path(path).touch()
    return len(kept)


def allocates_in_children(megabytes: int) -> None:
    code = f"kept = bytearray({megabytes // 2} << 20); import time; time.sleep(600)"
    children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) for _ in range(2)]
    for child in children:
        child.wait()


def exits_in_a_thread() -> str:
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()
    return "returned"


def hides(way: str, marker: str) -> None:
    subprocess.run(["/bin/sh", "-c", ESCAPES[way].format(marker)], check=False)


def leaves_behind(marker: str) -> str:
    subprocess.run(["/bin/sh", "-c", f"setsid sleep 300 {marker} & echo started"], check=True)
    return "returned"
