"""`python -m tests.faults.reap_times [--trials 100]`: how long after a worker's SIGKILL its runs are closed.

The promise: within its lease, one heartbeat and a second. Counted from the kill.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pgcron_runner.embedded import start_temporary
from pgcron_runner.migrate import migrate_database
from tests.faults.stage import Stage, Worker, boottime
from tests.support.databases import create_worker_role, new_database
from tests.support.folders import quick_folder
from tests.support.waiting import eventually

_AT_ONCE = 10
_MEASURE = "select extract(epoch from finished_at - %s)::float8 from pgcron.runs where id = %s"


@dataclass(frozen=True, slots=True)
class Trial:
    """Seconds from the kill of a worker to the end of its run's row."""

    lease: float
    seconds: float

    @property
    def allowed(self) -> float:
        return self.lease + self.lease / 6 + 1


def main() -> int:
    """Prints a table; exit code 1 where a trial took longer than promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.reap_times", description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=100, help="with a lease of 3 seconds; and a tenth as many with the default, 20"
    )
    parser.add_argument("--server", type=Path, help="the bin folder of another Postgres")
    given = parser.parse_args()
    settings = {"fsync": "off", "max_connections": "200"}
    trials: list[Trial] = []
    with start_temporary(settings=settings, listen=True, bin_dir=given.server, folder=quick_folder()) as server:
        create_worker_role(server)
        for lease, count in ((3.0, given.trials), (20.0, max(given.trials // 10, 1))):
            for begun in range(0, count, _AT_ONCE):
                with new_database(server) as database, tempfile.TemporaryDirectory() as folder:
                    migrate_database(database.dsn)
                    with Stage(database, Path(folder)) as stage:
                        trials += _round(stage, lease, min(count - begun, _AT_ONCE))
            print(_line([trial for trial in trials if trial.lease == lease]), flush=True)
    return 0 if all(trial.seconds <= trial.allowed for trial in trials) else 1


def _round(stage: Stage, lease: float, count: int) -> Iterator[Trial]:
    """So many workers with one run each, killed one after the other; two more watch over them."""
    with ExitStack():
        victims = [_busy(stage, lease, number) for number in range(count)]
        for _ in range(2):
            stage.ready("--queues", "nothing", lease=f"{lease:g}s")
        # What they watch over they have to have seen once.
        time.sleep(lease / 3)
        killed = []
        for worker, run_id in victims:
            worker.kill()
            killed.append((run_id, stage.database.value("select clock_timestamp()"), boottime()))
            time.sleep(lease / 60)
        for run_id, at, _ in killed:
            stage.wait_status(run_id, "lost", timeout=3 * lease + 10)
            yield Trial(lease, stage.database.value(_MEASURE, [at, run_id]))


def _busy(stage: Stage, lease: float, number: int) -> tuple[Worker, int]:
    queue = f"queue-{number}"
    stage.add_shell(queue, queue=queue, max_attempts=1)
    worker = stage.ready("--queues", queue, lease=f"{lease:g}s")
    run_id = stage.run_now(queue)
    eventually(lambda: run_id in stage.begun(queue), 60, message="it begins")
    return worker, run_id


def _line(trials: list[Trial]) -> str:
    seconds = sorted(trial.seconds for trial in trials)
    kept = sum(trial.seconds <= trial.allowed for trial in trials)
    return (
        f"lease {trials[0].lease:4.0f} s: {kept} of {len(trials)} within {trials[0].allowed:.1f} s;"
        f" least {seconds[0]:.2f}, median {median(seconds):.2f}, most {seconds[-1]:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
