"""Case O20, and what else a command finds around it: nothing there is left to chance or to who started the worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pgcron_runner
from pgcron_runner.execution.processes import Guard
from pgcron_runner.model import Status
from tests.execution.guarded import ON_LINUX
from tests.execution.shell_runs import run, text

_LOOK = """
import json, os, resource, signal
try:
    terminal = os.open("/dev/tty", os.O_RDWR)
except OSError:
    terminal = None
print(json.dumps({
    "fds": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "stdin": os.readlink("/proc/self/fd/0"),
    "outputs": os.readlink("/proc/self/fd/1") == os.readlink("/proc/self/fd/2"),
    "leads": os.getpid() == os.getpgid(0) == os.getsid(0),
    "terminal": terminal,
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": int(next(line for line in open("/proc/self/status") if line.startswith("SigIgn")).split()[1], 16),
    "nice": os.nice(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "umask": os.umask(0),
    "dumpable": os.access("/proc/self/environ", os.R_OK),
}))
"""
# A worker that was started in the worst of surroundings.
_WORKER = """
import asyncio, os, signal, sys
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard

async def main():
    process = await guard.launch(Command((sys.executable, "-I", "-S", "-c", sys.argv[1]), {}), OutputBuffer(100_000))
    await process.wait()
    await process.drained.wait()
    print(process.output.render().text)
    await guard.close()

for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD):
    if signum != signal.SIGCHLD:
        signal.signal(signum, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2, signal.SIGCHLD})
os.set_inheritable(os.open("/etc/passwd", os.O_RDONLY), True)
os.umask(0o026)
os.nice(3)
guard = Guard.start()
asyncio.run(main())
"""


@ON_LINUX
def test_a_command_starts_clean_however_its_worker_was_started() -> None:
    root = str(Path(pgcron_runner.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, _LOOK], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["fds"], seen["stdin"], seen["outputs"]) == ([0, 1, 2], "/dev/null", True)
    assert (seen["leads"], seen["terminal"]) == (True, None)
    assert seen["blocked"] == []
    # Python itself ignores two; 32 and 33 are the C library's.
    own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert seen["ignored"] & 0x7FFFFFFF & ~own == 0
    # These are inherited: they are how an administrator sets limits for all jobs.
    assert (seen["nice"], seen["umask"]) == (os.nice(0) + 3, 0o026)


@ON_LINUX
async def test_reading_stdin_is_reading_nothing(guard: Guard) -> None:
    outcome = await run(guard, "cat; read line || echo no line; echo end")
    assert text(outcome) == "no line\nend\n"


@ON_LINUX
async def test_the_umask_is_the_workers_or_the_jobs(guard: Guard, tmp_path: Path) -> None:
    before = os.umask(0)
    os.umask(before)

    async def mode_with(**args: Any) -> int:
        file = tmp_path / "file"
        file.unlink(missing_ok=True)
        outcome = await run(guard, f"umask > {file}", args=args)
        assert outcome.status is Status.SUCCEEDED
        return file.stat().st_mode & 0o777

    assert await mode_with() == 0o666 & ~before
    assert await mode_with(umask="027") == 0o640
    assert await mode_with(umask="0077") == 0o600
    assert await mode_with(umask="000") == 0o666
    assert await mode_with() == 0o666 & ~before, "the mask of one command is not that of the next"


@pytest.mark.parametrize("umask", [27, "27", "9", "0o27", "00027", "888", "", True, ["027"]])
async def test_a_umask_is_three_octal_digits(guard: Guard, umask: Any) -> None:
    outcome = await run(guard, "true", args={"umask": umask})
    assert outcome.status is Status.FAILED
    assert outcome.error == (
        f'launch failed: args.umask must be three octal digits in a string, for example "027"; it is {umask!r}'
    )


async def test_odd_values_of_variables_arrive_byte_for_byte(guard: Guard) -> None:
    odd = {
        "EMPTY": "",
        "EQUALS": "a=b=c",
        "LINES": "one\ntwo\n\n",
        "QUOTES": "'\"`$(x) ${y} \\",
        "UNICODE": "ünï 😀 \u202e",
        "CONTROL": "\x01\x1b[31m\x7f\r\t",
        "PERCENT": "%s %(x)s %%",
        "lower.case-name": "dots and dashes",
        "LONG": "x" * 100_000,
    }
    show = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(os.environb[n.encode()] for n in sys.argv[1:]))"
    argv = [sys.executable, "-I", "-S", "-c", show, *odd]
    outcome = await run(guard, "odd", args={"argv": argv}, env=odd, output_limit_kb=1024)
    # NUL is shown as U+2400.
    assert text(outcome).split("␀") == list(odd.values())


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"": "x"}, "'' cannot be the name"),
        ({"A=B": "x"}, "'A=B' cannot be the name"),
        ({"A": "\ud800"}, "half a surrogate pair"),
        ({"A": "a\0b"}, "a NUL character"),
        ({"A": "x" * 200_000}, "its environment is longer than"),
    ],
)
async def test_what_no_environment_can_hold_is_told(guard: Guard, env: dict[str, str], words: str) -> None:
    outcome = await run(guard, "true", env=env)
    assert outcome.status is Status.FAILED
    assert words in str(outcome.error)


async def test_the_locale_is_the_workers_and_can_be_set(guard: Guard) -> None:
    show = 'echo "$LC_TIME|$LANG|$LC_ALL"'
    assert text(await run(guard, show, env={"LANG": "C.UTF-8"})) == "C|C.UTF-8|\n"
    assert text(await run(guard, show, env={"LC_ALL": "POSIX", "LC_TIME": "de", "LANG": ""})) == "de||POSIX\n"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("/no/folder", "the folder /no/folder does not exist"),
        ("/etc/passwd", "the folder /etc/passwd cannot be entered: Not a directory"),
        ("no-such-relative", "the folder no-such-relative does not exist"),
        ("a\0b", "NUL"),
    ],
)
async def test_a_missing_folder_fails_this_run_alone(guard: Guard, folder: str, words: str) -> None:
    outcome = await run(guard, "pwd", working_dir=folder)
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, None)
    assert words in str(outcome.error)
    assert text(await run(guard, "pwd")) == f"{Path.cwd()}\n"


async def test_a_folder_that_was_removed_is_told(guard: Guard, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert text(await run(guard, "pwd", working_dir=str(folder))) == f"{folder}\n"
    folder.rmdir()
    outcome = await run(guard, "pwd", working_dir=str(folder))
    assert outcome.error == f"launch failed: the folder {folder} does not exist"


async def test_more_text_reaches_the_shell_unchanged(guard: Guard, tmp_path: Path) -> None:
    script = (
        "cat <<-EOF\n\tindented $((6*7)) `echo sub`\n\tEOF\n"
        "cat <<'END' | sed 's/%/&&/g'\n100% $HOME \\n\nEND\n"
        "printf '%s|' \"$@\" a\\ b 'it''s' \"q\\\"q\"; echo\n"
        "case x in (x) echo 'paren)';; esac\n"
        "f() { echo \"f:$1\"; }; f 'a;b' & wait\n"
        "# comment ' with an odd quote\n"
        "echo done > " + str(tmp_path / "with space %d").replace(" ", "\\ ") + "\n"
        "date -u -d @0 +%Y-%m-%d%%\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": "/home/worker"}
    direct = await asyncio.to_thread(
        subprocess.run, ["/bin/sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    outcome = await run(guard, script)
    assert text(outcome).encode() == direct.stdout
    assert "1970-01-01%" in text(outcome)
    assert (tmp_path / "with space %d").read_text() == "done\n"
