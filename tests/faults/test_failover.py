"""A real standby takes the place of its primary, and workers that reach the wrong server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from pgcron_runner.migrate import migrate_database
from tests.faults.programme.nodes import Cluster, home_for_servers
from tests.faults.stage import Stage
from tests.support.databases import Database

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A primary and its synchronous standby, on Unix sockets of one folder."""
    given = os.environ.get("PGCRON_TEST_BIN")
    with home_for_servers() as (home, _):
        bin_dir = Path(given) if given else None
        cluster = Cluster(home, bin_dir=bin_dir, namespace=None, clock=None, synchronous=True)
        try:
            cluster.create()
            with closing(cluster.primary.connect("postgres")) as connection:
                connection.execute("create database app")
            migrate_database(cluster.primary.dsn("app"))
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def stage(cluster: Cluster, tmp_path: Path) -> Iterator[Stage]:
    with Stage(Database(cluster.primary, "app"), tmp_path) as stage:
        yield stage
        stage.database.close()


def dsn(cluster: Cluster, *ports: int) -> str:
    hosts = ",".join([str(cluster.primary.socket_dir)] * len(ports))
    return f"host={hosts} port={','.join(map(str, ports))} user=postgres dbname=app"


def fail_over(cluster: Cluster, stage: Stage) -> None:
    stage.database.close()
    cluster.primary.kill()
    cluster.promote()
    cluster.require_standby(False)
    stage.database = Database(cluster.primary, "app")


def test_a_failover_within_the_lease_costs_no_run_and_needs_no_hand(cluster: Cluster, stage: Stage) -> None:
    stage.add_shell("backup")
    worker = stage.ready(lease="20s", dsn=dsn(cluster, 5501, 5502))
    run_id = stage.run_now("backup")
    stage.wait_begun("backup", run_id)

    fail_over(cluster, stage)

    stage.wait_for(lambda: worker.events("database_failed_over"), "it notices where it is")
    stage.wait_for(lambda: stage.job_lock_pids("backup"), "the lock is held there too")
    stage.open_gate("backup")
    assert stage.wait_status(run_id, "succeeded", "lost").status == "succeeded"
    assert stage.wait_status(stage.run_now("backup"), "succeeded").attempt == 1
    assert stage.begun("backup")[0] == run_id
    assert worker.returncode is None
    assert len(worker.ids) == 1
    stage.check()


def test_a_worker_that_reaches_only_a_standby_begins_nothing_and_says_so_once(cluster: Cluster, stage: Stage) -> None:
    stage.add_sql("report")
    run_id = stage.run_now("report")
    worker = stage.start(lease="4s", dsn=dsn(cluster, 5502))
    stage.wait_for(lambda: worker.events("database_away"), "it says that it waits")
    with psycopg.connect(f"{dsn(cluster, 5502)}", autocommit=True) as standby:
        assert standby.execute("select status from pgcron.runs where id = %s", [run_id]).fetchone() == ("queued",)
    fail_over(cluster, stage)
    stage.wait_status(run_id, "succeeded")
    # While the standby starts to write, what is in the way may have a second name.
    assert len(worker.events("database_away")) <= 3
    stage.check()
