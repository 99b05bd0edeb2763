"""Sessions that are ended under a worker's hands, and commits whose answer is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.stage import Stage, Worker
from tests.support.databases import WORKER_ROLE
from tests.support.proxy import Proxy

pytestmark = pytest.mark.faults

# Which sessions a worker has, and how the last statement of each begins.
RECORD, LISTEN = "-- Watch over%", "listen%"


def assert_nothing_was_lost(worker: Worker) -> None:
    for event in ("locks_taken_over", "lease_not_renewed", "worker_reaped", "result_dropped", "text", "step_failed"):
        assert worker.events(event) == []


@pytest.mark.parametrize("session", ["control", "record"])
def test_a_session_that_is_ended_costs_no_run(session: str, stage: Stage) -> None:
    stage.add_shell("backup")
    worker = stage.ready(lease="6s")
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    stage.ready(lease="6s")
    (holder,) = stage.job_lock_pids("backup")
    (recorder,) = stage.wait_for(lambda: stage.sessions(worker, RECORD), "the record session is there")

    stage.terminate(holder if session == "control" else recorder)

    if session == "control":
        # Only for a moment: it is taken again on the new session, without another start.
        assert stage.wait_for(lambda: stage.job_lock_pids("backup"), "the lock is held again") != [holder]
    else:
        stage.wait_for(lambda: stage.sessions(worker, RECORD) not in ([], [recorder]), "there is another session")
    assert stage.begun("backup") == [run_id]
    stage.open_gate("backup")
    assert stage.wait_status(run_id, "succeeded").worker_id == worker.ids[0]
    assert [event["session"] for event in worker.events("session_lost")] == [session]
    assert worker.returncode is None
    assert len(worker.ids) == 1
    assert_nothing_was_lost(worker)
    stage.check()


def test_notifications_are_heard_again_after_their_session_was_ended(stage: Stage) -> None:
    stage.add_sql("report")
    worker = stage.ready(lease="60s", poll="300s")
    stage.wait_status(stage.run_now("report"), "succeeded")
    (listener,) = stage.wait_for(lambda: stage.sessions(worker, LISTEN), "it listens")
    stage.terminate(listener)
    stage.wait_for(lambda: stage.sessions(worker, LISTEN) not in ([], [listener]), "it listens again")
    stage.wait_status(stage.run_now("report"), "succeeded")
    assert_nothing_was_lost(worker)
    stage.check()


def test_a_sql_run_whose_session_is_ended_is_rolled_back_and_tried_again(stage: Stage) -> None:
    stage.add_sql("report", seconds=2)
    worker = stage.ready()
    run_id = stage.run_now("report")
    (backend,) = stage.wait_for(lambda: stage.sessions(worker, "select pg_sleep%"), "it is at work")
    stage.terminate(backend)
    assert stage.wait_status(run_id, "lost").reason == "the session was lost; the work was rolled back"
    stage.wait_attempt("report", 2, "succeeded")
    assert [event for event in worker.events() if event["level"] != "info"] == []
    stage.check()


def test_limits_that_the_role_has_strike_neither_the_worker_nor_long_runs(stage: Stage) -> None:
    stage.add_shell("backup", seconds=2)
    stage.add_sql("report", seconds=2)
    role = f"alter role {WORKER_ROLE} in database {stage.database.name} set"
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"):
        stage.database.execute(f"{role} {limit} = '300ms'")
    worker = stage.ready(lease="6s", dsn=stage.ordinary_dsn())
    for run_id in [stage.run_now(job) for job in ("backup", "report")]:
        assert stage.wait_status(run_id, "succeeded", "failed", "lost").status == "succeeded"
    stage.wait_status(stage.run_now("report"), "succeeded")
    assert [event for event in worker.events() if event["level"] != "info"] == []
    stage.check()


def test_a_run_that_ends_while_the_locks_are_lost_is_recorded_and_not_called_dropped(stage: Stage) -> None:
    stage.add_shell("backup")
    # Long enough that no heartbeat finds the lost session before the end of the run does.
    worker = stage.ready(lease="60s")
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    (holder,) = stage.job_lock_pids("backup")
    stage.terminate(holder)
    stage.open_gate("backup")
    stage.wait_status(run_id, "succeeded")
    stage.wait_for(lambda: worker.events("session_lost"), "it notices")
    stage.wait_status(stage.run_now("backup"), "succeeded")
    assert_nothing_was_lost(worker)
    stage.check()


# Behind a proxy: the worker's line is cut while the server works on its COMMIT.


@pytest.fixture
def line(stage: Stage) -> Iterator[Proxy]:
    server = stage.database.server
    with Proxy(f"{server.socket_dir}/.s.PGSQL.{server.port}") as line:
        yield line


def slow_commit_once(stage: Stage, table: str, condition: str) -> None:
    """The next commit of such a row takes a second, inside of COMMIT; a flag in truth.slow arms it."""
    stage.database.execute("create table truth.slow (left_over int); insert into truth.slow values (1)")
    stage.database.execute(
        "create function truth.slow() returns trigger language plpgsql as $$ begin"
        " if (select left_over from truth.slow) > 0 then perform pg_sleep(1); end if; return null; end $$"
    )
    stage.database.execute(
        f"create constraint trigger slow after insert or update on {table} deferrable initially deferred"
        f" for each row when ({condition}) execute function truth.slow()"
    )


def cut_in_commit(stage: Stage, line: Proxy) -> None:
    stage.wait_for(
        lambda: stage.database.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"),
        "the commit is under way",
    )
    line.cut()
    stage.database.execute("update truth.slow set left_over = 0")
    stage.wait_for(
        lambda: not stage.database.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"),
        "the commit is over",
    )
    line.resume()


def test_a_claim_whose_commit_got_no_answer_is_not_left_running(stage: Stage, line: Proxy) -> None:
    slow_commit_once(stage, "pgcron.runs", "new.status = 'running'")
    stage.add_shell("backup")
    stage.open_gate("backup")
    worker = stage.ready(lease="12s", dsn=stage.database.dsn_through(line.port))
    run_id = stage.run_now("backup")
    cut_in_commit(stage, line)
    stage.wait_status(run_id, "succeeded", "lost")
    stage.wait_for(lambda: stage.runs()[-1].status == "succeeded", "it is carried out")
    assert_nothing_was_lost(worker)
    stage.check()


def test_an_end_whose_commit_got_no_answer_is_recorded_once_and_not_called_dropped(stage: Stage, line: Proxy) -> None:
    slow_commit_once(stage, "pgcron.runs", "new.status = 'succeeded'")
    stage.add_shell("backup")
    worker = stage.ready(lease="12s", dsn=stage.database.dsn_through(line.port))
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    stage.open_gate("backup")
    cut_in_commit(stage, line)
    stage.wait_status(run_id, "succeeded")
    stage.wait_status(stage.run_now("backup"), "succeeded")
    assert_nothing_was_lost(worker)
    stage.check()


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "rolled back"])
def test_a_sql_run_whose_commit_got_no_answer_has_happened_as_its_row_says(
    committed: bool, stage: Stage, line: Proxy
) -> None:
    slow_commit_once(stage, "truth.effects", "true")
    stage.add_sql("report")
    worker = stage.ready(lease="12s", dsn=stage.database.dsn_through(line.port))
    run_id = stage.run_now("report")
    if not committed:
        backend = stage.wait_for(
            lambda: stage.database.value("select pid from pg_stat_activity where wait_event = 'PgSleep'"), "it commits"
        )
        stage.terminate(backend)
        stage.database.execute("update truth.slow set left_over = 0")
        assert stage.wait_status(run_id, "lost", "succeeded").status == "lost"
        stage.wait_attempt("report", 2, "succeeded")
    else:
        cut_in_commit(stage, line)
        assert stage.wait_status(run_id, "lost", "succeeded").status == "succeeded"
    assert [event["run"] for event in worker.events("commit_unanswered")] == [run_id]
    stage.check()


def test_a_cut_that_the_server_does_not_notice_costs_no_run(stage: Stage, line: Proxy) -> None:
    """The worker's old session still has the lock; that is no other worker's."""
    stage.add_shell("backup")
    worker = stage.ready(lease="12s", dsn=stage.database.dsn_through(line.port))
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)
    (holder,) = stage.job_lock_pids("backup")
    line.abandon()
    stage.wait_for(lambda: stage.job_lock_pids("backup") not in ([], [holder]), "the lock is on the new session")
    stage.open_gate("backup")
    assert stage.wait_status(run_id, "succeeded", "lost").status == "succeeded"
    assert_nothing_was_lost(worker)
    stage.check()


def test_what_is_queued_while_the_line_is_cut_is_begun_when_it_is_back(stage: Stage, line: Proxy) -> None:
    """The hint is lost for ever: the new session must make up for it, not the poll."""
    stage.add_sql("report")
    worker = stage.ready(lease="60s", poll="300s", dsn=stage.database.dsn_through(line.port))
    stage.wait_status(stage.run_now("report"), "succeeded")
    stage.wait_for(lambda: stage.sessions(worker, LISTEN) and is_asleep(stage), "it sleeps and listens")
    line.cut()
    run_id = stage.run_now("report")
    line.resume()
    stage.wait_status(run_id, "succeeded", timeout=15)
    stage.check()


def is_asleep(stage: Stage) -> bool:
    """No session of a worker has done anything for a moment."""
    busy = (
        "select count(*) from pg_stat_activity where application_name like 'pgcron %%'"
        " and (state <> 'idle' or state_change > clock_timestamp() - interval '0.5 seconds')"
    )
    return bool(stage.database.value(busy) == 0)
