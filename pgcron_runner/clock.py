"""The clock that leases are counted on. It must not know wall-clock time."""

from __future__ import annotations

import time

# CLOCK_BOOTTIME goes on while the host is suspended, which a lease must notice; macOS has no such clock.
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds on a clock that never steps, is the same for all processes of this host and counts suspension."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
