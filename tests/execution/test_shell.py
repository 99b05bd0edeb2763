"""Commands of jobs, from their text to the outcome that is recorded."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.processes import Guard
from pgcron_runner.model import Status
from tests.execution.shell_runs import run, text

# How it ended


async def test_exit_code_0_is_success(guard: Guard) -> None:
    outcome = await run(guard, "echo done")
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.SUCCEEDED, 0, None)
    assert (outcome.reason, text(outcome)) == (None, "done\n")


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("exit 3", 3, "exited with code 3"),
        ("exit 255", 255, "exited with code 255"),
        ("no-such-command", 127, "exited with code 127"),
        ("kill -KILL $$", 137, "killed by SIGKILL (signal 9)"),
        ("kill -SEGV $$", 139, "killed by SIGSEGV (signal 11)"),
        ("kill -40 $$", 168, "killed by signal 40"),
    ],
)
async def test_any_other_end_is_a_failure_with_one_sentence(guard: Guard, command: str, code: int, error: str) -> None:
    outcome = await run(guard, command)
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.FAILED, code, error)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"args": {"argv": ["/no/such"]}}, "launch failed: /no/such (or the interpreter it asks for) was not found"),
        ({"working_dir": "/no/folder"}, "launch failed: the folder /no/folder does not exist"),
        ({"env": {"A": "b\0c"}}, "launch failed: the command or its environment contains a NUL character"),
        ({"env_from": ("NOT_THERE",)}, "launch failed: env_from: the worker has no environment variable NOT_THERE"),
        ({"env_from": ("PGPASSWORD",)}, "launch failed: env_from: PGPASSWORD is the worker's own and is not passed on"),
        ({"env_from": ("PGCRON_DSN",)}, "launch failed: env_from: PGCRON_DSN is the worker's own and is not passed on"),
        (
            {"args": {"argv": "ls"}},
            'launch failed: args.argv must be a list of strings, for example ["/bin/echo", "hello"]',
        ),
        (
            {"args": {"argv": []}},
            'launch failed: args.argv must be a list of strings, for example ["/bin/echo", "hello"]',
        ),
        (
            {"args": {"argv": ["ls", 1]}},
            'launch failed: args.argv must be a list of strings, for example ["/bin/echo", "hello"]',
        ),
    ],
)
async def test_what_cannot_be_started_fails_with_a_plain_error(
    guard: Guard, changes: dict[str, Any], error: str
) -> None:
    outcome = await run(guard, "echo never", **changes)
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.FAILED, None, error)


# What runs

QUOTING = [
    "date +%Y-%m-%d",
    'printf \'%s\\n\' "a b" \'c"d\' "$HOME"',
    "echo one\necho two\n",
    "echo trailing \\",
    "  # only a comment",
    "echo $((1+2)) `echo back` \"$(printf '%%d')\"; echo ünï 😀",
    "echo \\u0000 %(name)s {braces} $1 $0",
    "cat <<'END'\n$not %expanded\nEND",
    "printf 'a\\tb\\rc'",
    "",
    "exit 4",
    "-x",
    "syntax error (",
]


@pytest.mark.parametrize("command", QUOTING)
async def test_the_text_reaches_the_shell_unchanged(guard: Guard, command: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/home/worker"}
    direct = await asyncio.to_thread(
        subprocess.run, ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    outcome = await run(guard, command)
    assert (text(outcome).encode(), outcome.exit_code) == (direct.stdout, direct.returncode)


async def test_an_argument_list_needs_no_shell(guard: Guard) -> None:
    items = ["a b", 'c"d', "$HOME", "%d", "-n", "", "new\nline", "back\\", "😀"]
    show = "import sys; print(sys.argv[1:])"
    outcome = await run(guard, "a label", args={"argv": [sys.executable, "-I", "-S", "-c", show, *items]})
    assert text(outcome) == f"{items}\n"


async def test_a_command_of_100_kb_runs_and_one_of_200_kb_fails_alone_and_clearly(guard: Guard) -> None:
    outcome = await run(guard, "echo ok #" + "x" * 100_000)
    assert text(outcome) == "ok\n"
    outcome = await run(guard, "echo ok #" + "x" * 200_000)
    if outcome.status is Status.FAILED:
        assert outcome.error is not None
        assert outcome.error.startswith("launch failed: the command (200,018 bytes) or its environment is longer")
    assert text(await run(guard, "echo next")) == "next\n"


async def test_the_environment_is_small_and_clean(guard: Guard) -> None:
    outcome = await run(guard, "env", env={"A": "1", "HOME": "/mine"}, env_from=("TOKEN",))
    variables = dict(line.split("=", 1) for line in text(outcome).splitlines())
    assert {
        "A": "1",
        "HOME": "/mine",
        "LC_TIME": "C",
        "PATH": os.environ["PATH"],
        "TOKEN": "t0ken",
        "PGCRON_JOB": "nightly",
        "PGCRON_RUN_ID": "77",
        "PGCRON_ATTEMPT": "2",
        "PGCRON_SCHEDULED_FOR": "2026-03-01T18:00:00Z",
    }.items() <= variables.items()
    assert "s3cr3t" not in text(outcome)
    allowed = {"A", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "SHLVL", "TMPDIR", "TOKEN"}
    allowed |= {"TZ", "USER", "_", "OLDPWD"}
    assert not {name for name in variables if not name.startswith(("PGCRON_", "LC_"))} - allowed


async def test_a_job_cannot_pose_as_another(guard: Guard) -> None:
    outcome = await run(guard, "echo $PGCRON_JOB", env={"PGCRON_JOB": "other"})
    assert text(outcome) == "nightly\n"


async def test_the_scheduled_instant_is_given_in_utc(guard: Guard) -> None:
    instant = datetime(2026, 3, 1, 18, 0, 0, 250_000, tzinfo=UTC)
    outcome = await run(guard, "echo $PGCRON_SCHEDULED_FOR", scheduled_for=instant)
    assert text(outcome) == "2026-03-01T18:00:00.250000Z\n"


async def test_the_folder_is_the_jobs(guard: Guard, tmp_path: Path) -> None:
    assert text(await run(guard, "pwd", working_dir=str(tmp_path))) == f"{tmp_path}\n"


# Output


@pytest.mark.parametrize("exit_code", [0, 3])
async def test_bytes_that_are_no_text_close_the_run_all_the_same(guard: Guard, exit_code: int) -> None:
    outcome = await run(guard, f"printf 'a\\0b\\377c'; printf '\\\\u0000' >&2; exit {exit_code}")
    assert (text(outcome), outcome.exit_code) == ("a␀b\\xffc\\u0000", exit_code)


async def test_only_head_and_tail_of_long_output_are_kept(guard: Guard) -> None:
    outcome = await run(guard, "echo first; seq 1 200000; echo last", output_limit_kb=1)
    assert outcome.output is not None
    assert outcome.output.truncated
    assert outcome.output.total_bytes == 6 + 1_288_895 + 5
    assert text(outcome).startswith("first\n1\n2\n")
    assert "\n… 1,287,882 bytes left out …\n" in text(outcome)
    assert text(outcome).endswith("200000\nlast\n")
