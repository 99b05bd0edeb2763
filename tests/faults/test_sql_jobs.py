"""SQL jobs with real workers: what is seen of them while they run, work in slices, and commits that wait."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.faults.stage import WORK, Stage

pytestmark = pytest.mark.faults

SLICE = """do $$
    declare done constant int := coalesce((pgcron.state() ->> 'done')::int, 0);
    begin
        insert into truth.effects select current_setting('pgcron.run_id')::bigint,
            current_setting('pgcron.scheduled_for')::timestamptz, clock_timestamp();
        perform pgcron.progress(25 * (done + 1), 'slice ' || done + 1);
        perform pgcron.save_state(jsonb_build_object('done', done + 1));
        if done < 3 then perform pgcron.run_after('100 milliseconds'); end if;
    end $$"""


def test_progress_is_in_the_row_while_the_transaction_runs(stage: Stage) -> None:
    stage.add_job("report", "sql", f"{WORK}; select pgcron.progress(40, 'copied'); select pg_sleep(300)")
    worker = stage.ready()
    run_id = stage.run_now("report")
    seen = "select progress, status from pgcron.runs where id = %s and progress is not null"
    assert stage.wait_for(lambda: stage.database.rows(seen, [run_id])) == [
        ({"percent": 40, "text": "copied"}, "running")
    ]
    # Nor is the cancel held up by it.
    stage.database.execute("update pgcron.runs set cancel_requested_at = clock_timestamp() where id = %s", [run_id])
    stage.wait_status(run_id, "cancelled")
    assert stage.database.value("select count(*) from truth.effects") == 0
    assert worker.events("step_failed") == []
    stage.check()


@pytest.mark.parametrize("args", ["{}", '{"transaction": false}'])
def test_a_job_works_in_slices_that_find_what_the_last_one_saved(stage: Stage, args: str) -> None:
    stage.add_job("slices", "sql", SLICE, args=args)
    stage.ready()
    stage.run_now("slices")
    last = "select state ->> 'done' = '4' from pgcron.runs where status = 'succeeded' order by id desc limit 1"
    stage.wait_for(lambda: stage.database.value(last), "the fourth slice is done")
    stage.wait_quiet()
    assert stage.database.rows("select trigger, status, state, progress from pgcron.runs order by id") == [
        (trigger, "succeeded", {"done": number}, {"percent": 25 * number, "text": f"slice {number}"})
        for number, trigger in ((1, "manual"), (2, "chain"), (3, "chain"), (4, "chain"))
    ]
    assert stage.database.value("select count(*) from truth.effects") == 4
    stage.check()


@pytest.fixture
def absent_standby(own_stage: Stage) -> Iterator[Stage]:
    """A server that waits for a standby which is not there, with everybody but the jobs told not to."""
    database = own_stage.database
    database.execute(f"alter database {database.name} set synchronous_commit = local")
    database.close()
    database.execute("alter system set synchronous_standby_names = 'nobody'")
    database.execute("select pg_reload_conf()")
    yield own_stage
    own_stage.reconnect()
    database.execute("alter system reset synchronous_standby_names")
    database.execute("select pg_reload_conf()")


WAITS = "select pid from pg_stat_activity where wait_event = 'SyncRep'"


def test_a_commit_that_waits_for_a_standby_has_happened_when_its_run_is_stopped(absent_standby: Stage) -> None:
    stage = absent_standby
    stage.add_job("report", "sql", f"set synchronous_commit = on; {WORK}", timeout=timedelta(seconds=2))
    stage.ready()
    run_id = stage.run_now("report")
    stage.wait_for(lambda: stage.database.rows(WAITS), "the commit waits")
    run = stage.wait_status(run_id, "succeeded", "timed_out")
    assert (run.status, stage.database.value("select count(*) from truth.effects")) == ("succeeded", 1)
    stage.check()


def test_so_it_has_when_its_session_is_ended(absent_standby: Stage) -> None:
    stage = absent_standby
    stage.add_job("report", "sql", f"set synchronous_commit = on; {WORK}")
    worker = stage.ready()
    run_id = stage.run_now("report")
    [(pid,)] = stage.wait_for(lambda: stage.database.rows(WAITS), "the commit waits")
    stage.terminate(pid)
    stage.wait_for(lambda: worker.events("commit_unanswered"), "the worker looks it up")
    run = stage.wait_status(run_id, "succeeded", "lost")
    assert (run.status, stage.database.value("select count(*) from truth.effects")) == ("succeeded", 1)
    assert len(stage.runs()) == 1
    stage.check()
