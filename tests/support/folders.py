"""Where the tests' servers keep their data."""

from __future__ import annotations

import shutil
from pathlib import Path

_NEEDED = 2 * 1024**3


def quick_folder() -> Path | None:
    """A folder in memory, if there is room; None means that the disk must do.

    A database is 300 files: copying one takes 10 ms in memory and 100 ms on a disk.
    """
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > _NEEDED else None
