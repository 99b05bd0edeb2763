"""Hosts whose clocks are wrong: only the database's clock decides what is due."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pgcron_runner
from tests.faults.stage import Stage, Worker

_SHIM = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
# The guard counts on the boot-time clock alone, and libfaketime 0.9.10 makes its time.sleep() fail: it goes without.
_WORKER_ALONE = "import os; os.environ.pop('LD_PRELOAD', None)\n"

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(_SHIM is None, reason="needs libfaketime (Debian: apt install faketime)"),
]


def ready_with_clock(stage: Stage, offset: str, *, lease: str = "4s") -> Worker:
    (stage.folder / "sitecustomize.py").write_text(_WORKER_ALONE)
    path = os.pathsep.join([str(stage.folder), str(Path(pgcron_runner.__file__).parents[1])])
    clock = {"LD_PRELOAD": str(_SHIM), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return stage.ready(lease=lease, PYTHONPATH=path, **clock)


def test_workers_an_hour_ahead_and_an_hour_behind_start_nothing_early_and_lose_nothing(stage: Stage) -> None:
    workers = [ready_with_clock(stage, "+1h"), ready_with_clock(stage, "-1h")]
    end = stage.database.value("select clock_timestamp() + '5 seconds'")
    for number in range(10):
        stage.add_sql(f"report-{number}", schedule="@every 1s", ends_at=end)
    stage.add_shell("backup", schedule="@every 2s", seconds=0.5, ends_at=end)
    stage.wait_quiet()
    history = stage.check()
    assert {run.status for run in history.runs if run.started_at} == {"succeeded"}
    assert {run.worker_id for run in history.runs} >= {worker.ids[0] for worker in workers}, "both have worked"
    assert len({worker.events()[0]["timestamp"][:13] for worker in workers}) == 2, "their clocks really differ"
    for worker in workers:
        assert [event for event in worker.events() if event["level"] != "info"] == []


def test_a_worker_with_another_clock_reaps_and_is_reaped_by_its_beats_alone(stage: Stage) -> None:
    stage.add_shell("backup")
    ahead = ready_with_clock(stage, "+1h", lease="2s")
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)
    behind = ready_with_clock(stage, "-1h", lease="2s")
    beats = "select min(beat) from pgcron.workers"
    before = stage.database.value(beats)
    stage.wait_for(lambda: stage.database.value(beats) > before + 8, "both live on for more than a lease")
    assert stage.run(backup).status == "running"
    ahead.kill()
    stage.wait_status(backup, "lost")
    stage.open_gate("backup")
    assert stage.wait_attempt("backup", 2, "succeeded").worker_id == behind.ids[0]
    stage.check()
