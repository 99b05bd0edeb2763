"""Two small programs in C, compiled where a compiler is there: a clock that can be stepped, and a job that tells."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
# What the job is where there is no compiler: coarser, and dearer.
_SCRIPT = """\
#!/bin/sh
say() { read -r now rest < /proc/uptime; echo "$1 $PGCRON_RUN_ID $now $2 $PGCRON_JOB" >> "$TRUTH"; }
[ -n "$3" ] || say begin 0
rounds=$(printf %.0f "$(echo "$1" | awk '{print $1 * 10}')")
while [ "$rounds" -gt 0 ]; do sleep 0.1; rounds=$((rounds - 1)); say alive 0; done
[ -n "$3" ] || say end "$2"
exit "$2"
"""


def build_mark(folder: Path) -> Path:
    """The job's program: `mark SECONDS EXIT_CODE [alive]`, with $TRUTH as the file to write to."""
    program = folder / "mark"
    if not _compile("mark.c", program):
        program.write_text(_SCRIPT)
        program.chmod(0o755)
    return program


class SteppedClock:
    """A wall clock that can be stepped, for all processes that are started with `env`."""

    def __init__(self, shim: Path, file: Path) -> None:
        file.write_bytes(struct.pack("d", 0.0))
        file.chmod(0o644)
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 8)
        self.env = {"LD_PRELOAD": str(shim), "FAULTS_CLOCK": str(file)}
        self.offset = 0.0

    def step(self, seconds: float) -> None:
        """From now on it is so much later than it would have been."""
        self.offset += seconds
        self._memory[:8] = struct.pack("d", self.offset)


def build_clock_shim(folder: Path) -> Path | None:
    """The library that steps clocks; None where there is no compiler."""
    library = folder / "clock_shim.so"
    return library if _compile("clock_shim.c", library, "-shared", "-fPIC", "-ldl") else None


def _compile(source: str, target: Path, *options: str) -> bool:
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    subprocess.run([compiler, "-O2", "-o", target, _HERE / source, *options], check=True, stdin=subprocess.DEVNULL)
    return True
