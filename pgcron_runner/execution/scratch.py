"""A worker's folder for what its runs keep on disk; its guard removes it when both have ended, whoever was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class Scratch:
    """A folder among the host's temporary ones, which each run has a folder of its own in."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="pgcron-"))
        self._hold = self._open()

    def new_folder(self, name: str) -> Path:
        """An empty folder that is its owner's alone. Raises OSError."""
        try:
            return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.path))
        except FileNotFoundError:
            # Somebody has tidied up while nothing ran.
            self.path.mkdir(0o700)
            os.close(self._hold)
            self._hold = self._open()
            return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.path))

    def remove(self) -> None:
        """The end of all that is in it."""
        os.close(self._hold)
        shutil.rmtree(self.path, ignore_errors=True)

    def _open(self) -> int:
        # A run under another user finds its own folder in it, and nobody sees which there are.
        self.path.chmod(0o711)
        hold = os.open(self.path, os.O_RDONLY)
        # systemd-tmpfiles leaves alone what is locked, however old it is.
        fcntl.flock(hold, fcntl.LOCK_SH)
        return hold
