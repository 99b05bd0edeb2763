"""Real workers of which one has older zone data, with other rules for the job's zone: the newer ones' times stand."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path

import pytest

import pgcron_runner
from pgcron_runner.schedule import check_timezone, parse_schedule, zone_data_version
from tests.faults.stage import Stage

pytestmark = pytest.mark.faults

ZONE = "Europe/Berlin"
TICK = timedelta(microseconds=1)


def older_zone_data(folder: Path) -> str:
    """A tzdata package of 2001, by which Berlin lies twelve hours east of Greenwich; the PYTHONPATH to find it."""
    rules = folder / "tzdata" / "zoneinfo" / ZONE
    rules.parent.mkdir(parents=True)
    rules.write_bytes(resources.files("tzdata").joinpath("zoneinfo", "Etc", "GMT-12").read_bytes())
    (folder / "tzdata" / "__init__.py").write_text('IANA_VERSION = "2001a"\n')
    (folder / "tzdata" / "zones").write_text(f"{ZONE}\n")
    return os.pathsep.join([str(folder), str(Path(pgcron_runner.__file__).parents[1])])


def add_every_second_of_these_hours(stage: Stage) -> str:
    """Due now by the right rules, and in half a day by the others."""
    hour = stage.database.value("select clock_timestamp()").astimezone(check_timezone(ZONE)).hour
    schedule = f"* * {hour},{(hour + 1) % 24} * * *"
    stage.add_sql("often", schedule=schedule, overlap="queue_all")
    stage.database.execute("update pgcron.jobs set timezone = %s, catch_up = 'all'", (ZONE,))
    return schedule


def test_over_due_times_each_runs_once_and_the_next_is_the_newer_datas(stage: Stage, tmp_path: Path) -> None:
    schedule = add_every_second_of_these_hours(stage)
    row = "select zone_data, next_run_at - clock_timestamp() < interval '3 s', fired_until from pgcron.jobs"
    older = stage.ready(lease="20s", PYTHONPATH=older_zone_data(tmp_path / "older"))
    stage.wait_for(lambda: stage.database.value("select planned from pgcron.jobs"), "the older one has planned it")
    [(zone_data, is_soon, since)] = stage.database.rows(row)
    assert (zone_data, is_soon) == ("2001a", False)

    newer = stage.ready(lease="20s")
    stage.wait_for(lambda: finished(stage) > 2, "the newer one has planned it anew")
    newer.stop()
    frozen, before = stage.database.value("select clock_timestamp()"), planned(stage)
    # While the newer one cannot, but is believed to be alive, the older one lets it be.
    stage.wait_for(lambda: stage.database.value("select clock_timestamp() > %s + interval '3 s'", (frozen,)))
    assert planned(stage) == before
    newer.cont()
    seen = finished(stage)
    stage.wait_for(lambda: finished(stage) > seen + 5, "they go on")

    assert stage.database.rows(row)[0][:2] == (zone_data_version(), True)
    stage.database.execute("update pgcron.settings set paused = true")
    live = "select exists (select from pgcron.runs where status in ('queued', 'running'))"
    stage.wait_for(lambda: not stage.database.value(live), "all is done")
    assert_each_time_stands_in_one_row(stage, schedule, since)
    assert [worker.events("step_failed") for worker in (older, newer)] == [[], []]


def finished(stage: Stage) -> int:
    return int(stage.database.value("select count(*) from pgcron.runs where status = 'succeeded'"))


def planned(stage: Stage) -> tuple[datetime, int]:
    """The next time, and how many runs there are."""
    return stage.database.rows("select next_run_at, (select count(*) from pgcron.runs) from pgcron.jobs")[0]


def assert_each_time_stands_in_one_row(stage: Stage, schedule: str, since: datetime) -> None:
    until = stage.database.value("select next_run_at from pgcron.jobs")
    times = parse_schedule(schedule, ZONE)
    found: Counter[datetime] = Counter()
    for run in stage.runs("often"):
        if run.attempt == 1:
            found.update(times.between(run.scheduled_for - TICK, run.missed_until or run.scheduled_for))
    assert found == Counter(times.between(since, until - TICK))
