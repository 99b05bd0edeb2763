"""Hosts whose clocks are wrong: only the database's clock decides what is due."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.stage import Stage

_SHIM = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(_SHIM is None, reason="needs libfaketime (Debian: apt install faketime)"),
]


def test_workers_an_hour_ahead_and_an_hour_behind_start_nothing_early_and_lose_nothing(stage: Stage) -> None:
    end = stage.database.value("select clock_timestamp() + '6 seconds'")
    for number in range(10):
        stage.add_sql(f"report-{number}", schedule="@every 1s", ends_at=end)
    stage.add_shell("backup", schedule="@every 2s", seconds=0.5, ends_at=end)
    workers = {
        offset: stage.ready(LD_PRELOAD=str(_SHIM), FAKETIME=offset, FAKETIME_DONT_FAKE_MONOTONIC="1")
        for offset in ("+1h", "-1h")
    }
    stage.wait_quiet()
    history = stage.check()
    assert {run.status for run in history.runs if run.started_at} == {"succeeded"}
    used = {run.worker_id for run in history.runs}
    assert used >= {worker.ids[0] for worker in workers.values()}, "both have worked"
    shown = {worker.events()[0]["timestamp"][:13] for worker in workers.values()}
    assert len(shown) == 2, "their clocks really differ"
    for worker in workers.values():
        assert [event for event in worker.events() if event["level"] != "info"] == []


def test_a_worker_with_another_clock_reaps_and_is_reaped_by_its_beats_alone(stage: Stage) -> None:
    stage.add_shell("backup")
    ahead = stage.ready(lease="2s", LD_PRELOAD=str(_SHIM), FAKETIME="+1h", FAKETIME_DONT_FAKE_MONOTONIC="1")
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)
    behind = stage.ready(lease="2s", LD_PRELOAD=str(_SHIM), FAKETIME="-1h", FAKETIME_DONT_FAKE_MONOTONIC="1")
    beats = "select min(beat) from pgcron.workers"
    before = stage.database.value(beats)
    stage.wait_for(lambda: stage.database.value(beats) > before + 8, "both live on for more than a lease")
    assert stage.run(backup).status == "running"
    ahead.kill()
    stage.wait_status(backup, "lost")
    stage.open_gate("backup")
    assert stage.wait_attempt("backup", 2, "succeeded").worker_id == behind.ids[0]
    stage.check()
