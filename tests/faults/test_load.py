"""Two hundred jobs due every second on three workers, of which one dies and one is frozen on the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from statistics import quantiles

import pytest

from tests.faults.checker import History, Run, changed
from tests.faults.stage import Stage, Worker, boottime

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = 200
SECONDS = 60
LEASE = 5


def test_every_occurrence_under_load_has_one_trail_whatever_happens_to_the_workers(stage: Stage) -> None:
    log = stage.database.server.log
    logged = log.stat().st_size
    workers = [stage.ready("--slots", "60", lease=f"{LEASE}s") for _ in range(3)]
    dying, sleeper, survivor = workers
    began_at = add_jobs(stage)
    began = boottime()

    def wait_until(second: float) -> None:
        stage.wait_for(lambda: boottime() - began > second, f"second {second}", timeout=SECONDS)

    wait_until(12)
    wait_until_busy(stage, dying)
    dying.kill()
    wait_until(25)
    wait_until_busy(stage, sleeper)
    sleeper.stop()
    stopped_at = boottime()
    stage.wait_for(lambda: boottime() - stopped_at > 2 * LEASE, "two leases are over")
    stage.wait_for(
        lambda: stage.database.value("select end_reason from pgcron.workers where id = %s", [sleeper.ids[0]]),
        "it is reaped",
    )
    before = stage.runs()
    sleeper.cont()
    stage.wait_for(lambda: len(sleeper.ids) == 2, "it begins anew")
    assert changed(before, stage.runs()) == []
    wait_until(SECONDS)
    stage.wait_quiet()

    history = stage.check()
    tell(history, began_at)
    started = [run for run in history.runs if run.started_at is not None]
    assert {run.worker_id for run in started} == {*dying.ids, *sleeper.ids, *survivor.ids}, "all have worked"
    assert {run.status for run in started} <= {"succeeded", "lost"}
    lost = {
        worker: {run.id for run in started if run.status == "lost" and run.worker_id == worker.ids[0]}
        for worker in workers
    }
    assert [len(lost[worker]) > 0 for worker in workers] == [True, True, False], "the faults have hit something"
    assert [run_id for run_id, times in sleeper.dropped.items() if times > 1 or run_id not in lost[sleeper]] == []
    assert survivor.returncode is None
    assert [event for event in survivor.events() if event["event"] not in ("worker_started", "worker_lost")] == []
    assert complaints(log, logged) == []


def wait_until_busy(stage: Stage, worker: Worker) -> None:
    running = "select count(*) >= 10 from pgcron.runs where status = 'running' and worker_id = %s"
    stage.wait_for(lambda: stage.database.value(running, [worker.ids[0]]), "it has work in hand")


def add_jobs(stage: Stage) -> datetime:
    """All of them are there before the first is due."""
    began_at: datetime = stage.database.value("select clock_timestamp()")
    for number in range(JOBS):
        stage.add_sql(f"job-{number}", schedule="@every 1s", ends_at=began_at + timedelta(seconds=SECONDS))
    return began_at


def complaints(log: Path, after: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(after, os.SEEK_SET)
        lines = file.read().decode(errors="replace").splitlines()
    return [
        line for line in lines if any(word in line for word in ("deadlock", "duplicate key", "PANIC", "out of shared"))
    ]


def tell(history: History, began_at: datetime) -> None:
    """The figures, for whoever runs this with -s."""
    scheduled = [run for run in history.runs if run.trigger == "schedule"]
    states = Counter(run.status for run in history.runs)
    missed = sum(run.missed_count or 0 for run in scheduled)
    occurrences = missed + sum(run.missed_count is None for run in scheduled)
    print(f"{occurrences} occurrences: {dict(states)}; {missed} missed in {states['missed']} rows")
    calm = [run for run in scheduled if run.scheduled_for - began_at < timedelta(seconds=11)]
    print(f"lateness in ms: before the faults {lateness(calm)}, in all {lateness(scheduled)}")


def lateness(runs: Iterable[Run]) -> str:
    late = [(run.started_at - run.scheduled_for) / timedelta(milliseconds=1) for run in runs if run.started_at]
    cuts = quantiles(late, n=100)
    return f"p50 {cuts[49]:.1f}, p99 {cuts[98]:.1f}, most {max(late):.0f} (of {len(late)})"
