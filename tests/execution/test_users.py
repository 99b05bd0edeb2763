"""Users and namespaces: commands as another user, workers that are nobody, blind, or the first process of all."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pgcron_runner
from pgcron_runner.execution.processes import Guard
from pgcron_runner.model import Status
from tests.execution import odd_worker
from tests.execution.escapes import ESCAPES, living
from tests.execution.guarded import ON_LINUX, eventually
from tests.execution.shell_runs import run, stop_when_up, text

pytestmark = [
    ON_LINUX,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

ROOT = Path(pgcron_runner.__file__).parents[1]
ODD_ENV = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def run_odd(*arguments: str, within: tuple[str, ...] = (), python: str = sys.executable) -> dict[str, Any]:
    """What odd_worker.py prints, run within other programs."""
    command = [*within, python, odd_worker.__file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=ODD_ENV, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="session")
def python_for_all() -> str:
    """An interpreter that anybody may run, with these sources; the one of a virtual environment may lie in a home."""
    # Twice, since the rights of root end with the first program.
    again = "import sys, subprocess, tests.execution.odd_worker; subprocess.check_call([sys.executable, '-c', ''])"
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        check = [*NOBODY, python, "-c", again]
        if os.path.exists(python) and subprocess.run(check, cwd="/", env=ODD_ENV, capture_output=True).returncode == 0:
            return python
    pytest.skip("nobody may run this Python or read these sources")


def require(*command: str) -> None:
    """Skip where this machine does not let us."""
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip(f"not possible here: {' '.join(command)}")


# Commands as another user


async def test_a_command_runs_as_the_user_that_its_job_names(guard: Guard, tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    script = 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL"; touch /etc/passwd; kill -0 1; kill -0 $PPID'
    outcome = await run(guard, script, args={"run_as": "nobody"})
    assert text(outcome).splitlines()[:4] == [
        str(nobody.pw_uid),
        str(nobody.pw_gid),
        " ".join(map(str, os.getgrouplist("nobody", nobody.pw_gid))),
        f"{nobody.pw_dir} nobody nobody {nobody.pw_shell}",
    ]
    assert text(outcome).count("ermi") >= 3, "it has no right to more than that user"
    assert text(await run(guard, "id -u")) == "0\n", "the next one is the worker's own again"


async def test_the_group_can_be_another(guard: Guard) -> None:
    gid = os.stat("/").st_gid
    group = "root" if gid == 0 else str(gid)
    outcome = await run(guard, "id -u; id -g", args={"run_as": f"nobody:{group}"})
    assert text(outcome) == f"{pwd.getpwnam('nobody').pw_uid}\n{gid}\n"


async def test_numbers_of_known_users_do_and_the_jobs_own_variables_win(guard: Guard) -> None:
    nobody = pwd.getpwnam("nobody")
    args = {
        "run_as": f"{nobody.pw_uid}:{nobody.pw_gid}",
        "umask": "077",
        "argv": ["/bin/sh", "-c", "id -u; umask; echo $HOME"],
    }
    outcome = await run(guard, "label", args=args, env={"HOME": "/mine"})
    assert text(outcome) == f"{nobody.pw_uid}\n0077\n/mine\n"


async def test_another_user_can_speak_through_the_step_files(guard: Guard) -> None:
    script = 'echo "40 copied" >> $PGCRON_PROGRESS; echo "[1]" > $PGCRON_RESULT'
    outcome = await run(guard, script, args={"run_as": "nobody", "umask": "077"})
    assert (outcome.status, outcome.result, outcome.progress["percent"]) == (Status.SUCCEEDED, [1], 40), outcome


@pytest.mark.parametrize(
    ("run_as", "words"),
    [
        ("no-such-user", "this host has no user 'no-such-user'"),
        ("nobody:no-such-group", "this host has no group 'no-such-group'"),
        ("4294967290", "this host has no user '4294967290'"),
        ("99999999999999999999", "this host has no user"),
        (":root", "this host has no user ''"),
        ("nobody:", "this host has no group ''"),
        ("", "must be the name of a user"),
        (65534, "must be the name of a user"),
        (["nobody"], "must be the name of a user"),
    ],
)
async def test_an_unknown_user_is_told_in_words(guard: Guard, run_as: Any, words: str) -> None:
    outcome = await run(guard, "id", args={"run_as": run_as})
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: args.run_as")
    assert words in outcome.error


async def test_a_program_that_the_user_may_not_run_is_told(guard: Guard, tmp_path: Path) -> None:
    program = tmp_path / "private"
    program.write_text("#!/bin/sh\necho ran")
    program.chmod(0o700)
    outcome = await run(guard, "x", args={"run_as": "nobody", "argv": [str(program)]})
    assert outcome.error == f"launch failed: {program} may not be executed by this user, or is not executable"


@pytest.mark.parametrize("way", ESCAPES)
async def test_a_guard_that_is_root_kills_the_commands_of_others(guard: Guard, marker: str, way: str) -> None:
    drop = " ".join(NOBODY)
    command = ESCAPES[way].replace("sleep 300 {0}", f"{drop} sleep 300 {{0}}")
    await stop_when_up(guard, marker, command, grace=0)
    assert not living(marker)


async def test_what_another_users_command_leaves_behind_is_killed_too(guard: Guard, marker: str) -> None:
    outcome = await run(guard, f"sleep 300 {marker} >/dev/null 2>&1 & echo up", args={"run_as": "nobody"})
    assert outcome.status is Status.SUCCEEDED
    assert outcome.reason == "left processes running in the background; they were killed"
    assert not living(marker)


# Workers that are nobody


def test_nothing_needs_root(python_for_all: str, marker: str) -> None:
    seen = run_odd("escapes", f"={marker}", within=NOBODY, python=python_for_all)
    assert (seen["uid"], seen["killed"], seen["left"]) == (65534, [True] * len(ESCAPES), [])
    assert not living(marker)


def test_nothing_needs_to_see_the_processes_of_others(python_for_all: str, marker: str) -> None:
    # In a namespace of its own: the option is for all mounts of one.
    blind = 'mount -o remount,hidepid=2 /proc && "$@"; exit $?'
    within = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", blind, "sh", *NOBODY)
    require(*within, "sh", "-c", "test ! -e /proc/1")
    seen = run_odd("escapes", f"={marker}", within=within, python=python_for_all)
    assert (seen["uid"], seen["killed"], seen["left"]) == (65534, [True] * len(ESCAPES), [])
    assert not living(marker)


def test_only_root_can_run_commands_as_others(python_for_all: str) -> None:
    seen = run_odd("command", "id", '{"run_as": "root"}', within=NOBODY, python=python_for_all)
    assert seen["error"] == "launch failed: args.run_as needs a worker that runs as root"
    seen = run_odd("command", "id -u; echo $USER", '{"run_as": "nobody"}', within=NOBODY, python=python_for_all)
    assert seen["text"] == "65534\nnobody\n", "it is that user already"


@pytest.fixture
def become_root() -> Iterator[Path]:
    """A program with which anybody becomes root, as with sudo. Not in tmp_path, which is closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        program = Path(folder) / "become-root"
        shutil.copy(str(shutil.which("setpriv")), program)
        program.chmod(0o4755)
        yield program


async def test_a_command_that_has_become_root_is_named_where_its_worker_is_not(
    python_for_all: str, become_root: Path, marker: str
) -> None:
    sudo = f"{become_root} --reuid=0 --regid=0 --clear-groups"
    require(*NOBODY, *sudo.split(), "true")
    try:
        seen = run_odd(
            "stopped", f"exec {sudo} sh -c 'echo up; exec sleep 300 {marker}'", within=NOBODY, python=python_for_all
        )
        assert len(living(marker)) == 1, seen
        (pid,) = living(marker)
        assert seen["status"] == "failed"
        assert seen["error"] == f"it could not be killed and lives on: sleep (process {pid} of root)"
        os.kill(pid, 9)
        await eventually(lambda: not living(marker))

        script = f"{sudo} sh -c 'echo up; exec sleep 300 {marker} >/dev/null 2>&1' & sleep 300"
        seen = run_odd("stopped", script, within=NOBODY, python=python_for_all)
        assert len(living(marker)) == 1, seen
        (pid,) = living(marker)
        assert seen["reason"] == (f"left processes that could not be killed and live on: sleep (process {pid} of root)")
    finally:
        for pid in living(marker):
            os.kill(pid, 9)


# The first process


def test_a_worker_can_be_the_first_process_of_a_container(marker: str) -> None:
    first = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    require(*first, "true")
    seen = run_odd("escapes", f"={marker}", within=first)
    assert (seen["pid"], seen["killed"], seen["left"]) == (1, [True] * len(ESCAPES), [])
    assert run_odd("orphan", within=first) == {"pid": 1, "awaited": 0, "code": 4}
