"""`python -m tests.bench.sync [--jobs 10000]`: a file of so many jobs, synced as new, unchanged, and with some edits.

Each is the whole command, as a person waits for it, on a server of its own; the best of three where it can be repeated.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pgcron_runner.embedded import start_temporary
from pgcron_runner.migrate import migrate_database


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    count = parser.parse_args().jobs
    with start_temporary() as server, tempfile.TemporaryDirectory() as folder:
        migrate_database(server.dsn())
        file = Path(folder) / "jobs.toml"
        file.write_text(text_of(count))
        print(f"{count:,} jobs")
        print(f"all new         {seconds_of(server.dsn(), file):6.2f} s")
        print(f"nothing changes {min(seconds_of(server.dsn(), file) for _ in range(3)):6.2f} s")
        file.write_text(text_of(count, edited=25))
        print(f"1 of 25 changed {seconds_of(server.dsn(), file):6.2f} s")


def text_of(count: int, *, edited: int = 0) -> str:
    """Jobs at any minute of the day; with `edited` each so manieth runs something else."""
    jobs = (
        f'[jobs.job-{n}]\nschedule = "{n % 60} {n // 60 % 24} * * *"\n'
        f'sql = "select {n}{" + 1" if edited and n % edited == 0 else ""}"\n'
        for n in range(count)
    )
    return '[defaults]\ntimezone = "Europe/Berlin"\n\n' + "\n".join(jobs)


def seconds_of(dsn: str, file: Path) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "pgcron_runner", "sync", str(file), "--dsn", dsn]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
