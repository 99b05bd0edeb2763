"""The helpers themselves: they are trusted to find faults, so they are tried first."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pgcron_runner.embedded import Server
from tests.support.databases import Database, new_database
from tests.support.proxy import Proxy
from tests.support.waiting import blocked_on_lock, eventually, eventually_async
from tests.support.workers import WorkerProcess


def test_a_database_is_a_copy_of_its_template(empty_database: Database, server: Server) -> None:
    empty_database.execute("create table t as select generate_series(1, 3) as i")
    empty_database.close()
    with new_database(server, template=empty_database.name) as copy:
        assert copy.execute("delete from t where i > %s", [2]) == 1
        assert copy.rows("select i from t order by i") == [(1,), (2,)]
        assert copy.value("select max(i) from t where i > 9") is None
    assert empty_database.value("select count(*) from t") == 3
    assert empty_database.value("select count(*) from pg_database where datname = %s", [copy.name]) == 0


def test_the_worker_role_is_an_ordinary_one(empty_database: Database) -> None:
    with psycopg.connect(empty_database.worker_dsn) as session:
        row = session.execute(
            "select current_user::text, rolsuper from pg_roles where rolname = current_user"
        ).fetchone()
    assert row == ("worker", False)


def test_the_helper_survives_a_restart_of_the_server(server: Server) -> None:
    with new_database(server) as database:
        assert database.value("select 1") == 1
        server.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            database.value("select 1")
        assert database.value("select 1") == 1


def test_eventually_returns_the_value_or_shows_the_last_one() -> None:
    values = iter([0, "", "there"])
    assert eventually(lambda: next(values)) == "there"
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: the moon \(last value: \[\]\)"):
        eventually(list, timeout=0.02, message="the moon")


async def test_eventually_async_lets_the_loop_run_between_two_tries() -> None:
    seen: list[str] = []

    async def last() -> str | None:
        return seen[-1] if seen else None

    with pytest.raises(AssertionError, match="last value: None"):
        await eventually_async(last, timeout=0.02)
    asyncio.get_running_loop().call_later(0.02, seen.append, "there")
    assert await eventually_async(last) == "there"


def test_blocked_on_lock_sees_who_waits(empty_database: Database) -> None:
    empty_database.execute("create table t as select 1 as i")
    with (
        psycopg.connect(empty_database.dsn) as holder,
        psycopg.connect(empty_database.dsn) as waiter,
        ThreadPoolExecutor() as pool,
    ):
        pid = waiter.info.backend_pid
        holder.execute("update t set i = 2")
        assert not blocked_on_lock(empty_database.dsn, pid)
        waiting = pool.submit(waiter.execute, "update t set i = 3")
        eventually(lambda: blocked_on_lock(holder, pid))
        holder.commit()
        waiting.result()
        assert not blocked_on_lock(holder, pid)


@pytest.mark.parametrize("by", ["tcp", "socket"])
def test_the_proxy_cuts_stalls_and_resumes(by: str, empty_database: Database, server: Server) -> None:
    path = f"{server.socket_dir}/.s.PGSQL.{server.port}"
    with Proxy(path if by == "socket" else ("127.0.0.1", server.port)) as proxy, ThreadPoolExecutor() as pool:
        dsn = empty_database.dsn_through(proxy.port)
        with psycopg.connect(dsn) as session:
            assert proxy.connections == 1
            assert session.execute("select repeat('x', 3000000)").fetchone() == ("x" * 3_000_000,)
            proxy.stall()
            query = pool.submit(session.execute, "select 1")
            connecting = pool.submit(lambda: psycopg.connect(dsn))
            eventually(lambda: proxy.connections == 2)
            time.sleep(0.1)  # for an answer that must not come
            assert not query.done()
            assert not connecting.done()
            proxy.resume()
            assert query.result(10).fetchone() == (1,)
            connecting.result(10).close()
            proxy.cut()
            with pytest.raises(psycopg.OperationalError):
                session.execute("select 1")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn)
        proxy.resume()
        psycopg.connect(dsn).close()
        eventually(lambda: proxy.connections == 0)


def test_a_proxy_without_a_server_behind_it_resets() -> None:
    with Proxy(("127.0.0.1", 1)) as proxy, pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"host=127.0.0.1 port={proxy.port} dbname=x")


def test_a_worker_process_ends_with_its_block(empty_database: Database, tmp_path: Path) -> None:
    with WorkerProcess(empty_database.dsn, "--no-such-option", folder=tmp_path) as worker:
        worker.stop()
        assert worker.returncode is None
    assert worker.returncode == -9
    assert worker.log_path.parent == tmp_path
