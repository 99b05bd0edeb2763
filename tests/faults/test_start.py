"""Workers that start, or go on, where they cannot work: they wait and say so once, or end with a sentence."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo as conninfo

from pgcron_runner.migrate import migrate_database
from tests.faults.stage import PATIENCE, Stage, Worker, boottime
from tests.faults.trap import Trap
from tests.support.databases import WORKER_ROLE, Database
from tests.support.waiting import eventually

pytestmark = pytest.mark.faults

MOST_LINES = 10
END_SESSIONS = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name like 'pgcron %'"


def sentences(worker: Worker, event: str = "database_away") -> list[str]:
    return [said["error"] for said in worker.events(event)]


def assert_said_once(worker: Worker) -> None:
    """One sentence for each change of state, however many sessions notice it."""
    away = sentences(worker)
    assert len(away) == len(set(away)), away
    assert len(worker.events()) < MOST_LINES, worker.log()


def wait_and_see(check: Callable[[], object], seconds: float = 2) -> None:
    """Long enough for several tries; nothing may end the worker meanwhile."""
    eventually(check, PATIENCE)
    began = boottime()
    eventually(lambda: boottime() - began > seconds, PATIENCE)


def test_a_worker_that_starts_before_the_server_waits_for_it(own_stage: Stage) -> None:
    stage = own_stage
    stage.add_sql("report")
    stage.database.server.stop()
    worker = stage.start(lease="12s")
    wait_and_see(lambda: sentences(worker))
    assert worker.returncode is None
    assert "cannot be reached" in sentences(worker)[0]
    stage.database.server.start()
    stage.reconnect()
    stage.wait_for(lambda: worker.ids, "it registers")
    stage.wait_status(stage.run_now("report"), "succeeded")
    assert_said_once(worker)
    stage.check()


def test_a_worker_that_starts_before_the_schema_waits_for_it(empty_database: Database, stage: Stage) -> None:
    worker = stage.start(dsn=empty_database.dsn)
    wait_and_see(lambda: sentences(worker))
    assert worker.returncode is None
    assert sentences(worker) == ["This database has no pgcron schema yet. Run: pgcron-runner migrate"]
    migrate_database(empty_database.dsn)
    stage.wait_for(lambda: worker.ids, "it registers")
    assert_said_once(worker)


def test_a_role_that_may_only_read_is_waited_out_and_the_run_in_hand_is_recorded(stage: Stage) -> None:
    database = stage.database
    stage.add_shell("backup")
    stage.add_sql("report")
    worker = stage.ready(lease="30s", dsn=stage.ordinary_dsn())
    backup = stage.run_now("backup")
    stage.wait_begun("backup", backup)

    read_only = f"alter role {WORKER_ROLE} in database {database.name} set default_transaction_read_only = on"
    database.execute(read_only)
    database.execute(END_SESSIONS)
    stage.open_gate("backup")
    report = stage.run_now("report")
    wait_and_see(lambda: sentences(worker))
    assert stage.run(backup).status == "running"
    assert stage.run(report).status == "queued", "nothing starts while nothing can be written"
    database.execute(f"alter role {WORKER_ROLE} in database {database.name} reset all")

    assert stage.wait_status(backup, "succeeded", "lost").status == "succeeded"
    stage.wait_status(report, "succeeded")
    assert any("read-only" in sentence for sentence in sentences(worker))
    assert worker.returncode is None
    assert_said_once(worker)
    stage.check()


def test_an_outage_is_told_in_one_sentence_whatever_it_looks_like_from_one_try_to_the_next(own_stage: Stage) -> None:
    stage = own_stage
    stage.add_sql("report")
    worker = stage.ready(lease="12s")
    stage.wait_status(stage.run_now("report"), "succeeded")
    stage.database.server.stop()
    wait_and_see(lambda: sentences(worker))
    stage.database.server.start()
    stage.reconnect()
    stage.wait_status(stage.run_now("report"), "succeeded")
    stage.wait_for(lambda: worker.events("database_back"), "it says that all is well again")
    assert_said_once(worker)
    assert len(worker.events("database_back")) == 1
    stage.check()


def assert_refuses(worker: Worker, *words: str) -> None:
    """One line and no other: above all none that says that it waits."""
    assert worker.wait() == 1
    lines = worker.log().strip().splitlines()
    assert all(word in lines[-1] for word in words), lines
    assert len(lines) == 1, lines


def test_a_wrong_password_at_the_first_start_ends_it_with_a_sentence(stage: Stage) -> None:
    dsn = conninfo(stage.database.tcp_dsn, password="s3cr3t-and-wrong")
    worker = stage.start(dsn=dsn)
    assert_refuses(worker, "Error:", "refuses the password")
    assert "s3cr3t-and-wrong" not in worker.log()


def test_a_database_that_does_not_exist_ends_it_with_a_sentence(stage: Stage) -> None:
    worker = stage.start(dsn=stage.database.server.dsn("nowhere"))
    assert_refuses(worker, "Error:", "nowhere", "no such database")


def test_a_schema_from_the_future_ends_it_with_a_sentence(stage: Stage) -> None:
    stage.database.execute(
        "insert into pgcron.schema_migrations (version, name, breaking) values (9999, 'future', true)"
    )
    worker = stage.start()
    assert_refuses(worker, "Error:", "9999", "Upgrade pgcron-runner on this host")


@pytest.mark.parametrize(
    ("closed", "opened"),
    [
        pytest.param("alter role {role} password 'two'", "alter role {role} password 'one'", id="another password"),
        pytest.param(
            "alter database {database} connection limit 0",
            "alter database {database} connection limit -1",
            id="too many connections",
        ),
    ],
)
def test_a_door_that_is_closed_to_a_worker_for_a_while_is_waited_out(
    closed: str, opened: str, own_stage: Stage
) -> None:
    stage, database = own_stage, own_stage.database
    names = {"role": WORKER_ROLE, "database": database.name}
    stage.add_sql("report")
    stage.ordinary_dsn()
    database.execute(f"alter role {WORKER_ROLE} password 'one'")
    worker = stage.ready(lease="12s", dsn=conninfo(database.tcp_dsn, user=WORKER_ROLE, password="one"))
    stage.wait_status(stage.run_now("report"), "succeeded")
    database.execute(closed.format(**names))
    database.execute(END_SESSIONS)
    wait_and_see(lambda: sentences(worker))
    database.execute(opened.format(**names))
    stage.wait_status(stage.run_now("report"), "succeeded")
    assert worker.returncode is None
    assert_said_once(worker)
    stage.check()


def test_a_server_that_goes_away_while_a_session_is_opened_is_tried_again(stage: Stage) -> None:
    """The connection was made, and its first statement fails: an outage like any other."""
    stage.add_sql("report")
    server = stage.database.server
    with Trap(f"{server.socket_dir}/.s.PGSQL.{server.port}", times=3) as trap:
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        worker = stage.start(dsn=conninfo(stage.database.dsn_through(trap.port), **plain))
        stage.wait_for(lambda: worker.ids or worker.returncode is not None, "it registers")
        assert worker.returncode is None
        trap.left_over = 2
        run_id = stage.run_now("report")
        assert stage.wait_status(run_id, "succeeded", "failed").status == "succeeded"
        assert worker.events("execution_failed") + worker.events("step_failed") == []
        worker.kill()
    stage.check()


def test_a_worker_that_starts_while_somebody_has_the_workers_locked_waits_for_it(stage: Stage) -> None:
    """As a migration or VACUUM FULL does: longer than the lock timeout of a worker."""
    with psycopg.connect(stage.database.dsn) as stranger:
        stranger.execute("lock table pgcron.workers in access exclusive mode")
        worker = stage.start(lease="3s")
        wait_and_see(lambda: sentences(worker) or worker.returncode is not None)
        assert worker.returncode is None, worker.log()
    stage.wait_for(lambda: worker.ids, "it registers")
    assert_said_once(worker)


def test_a_worker_that_may_not_enter_itself_yet_tries_again(stage: Stage) -> None:
    """Its session is sound, and the insert alone fails: a disk is full, a statement is too slow."""
    stage.database.execute(
        "create function refuse() returns trigger language plpgsql as $$"
        " begin raise exception 'could not extend file' using errcode = '53100'; end $$;"
        " create trigger refuse before insert on pgcron.workers execute function refuse()"
    )
    worker = stage.start()
    wait_and_see(lambda: worker.events("registration_failed") or worker.returncode is not None)
    assert worker.returncode is None, worker.log()
    stage.database.execute("drop trigger refuse on pgcron.workers")
    stage.wait_for(lambda: worker.ids, "it registers")
