"""The guard with real processes: what it starts, what it kills, and what it survives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgcron_runner.clock import boottime
from pgcron_runner.execution import guard as program
from pgcron_runner.execution.guard import wire
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, ExitStatus, Guard, LaunchError
from tests.execution.escapes import ENV, ESCAPES, STORM, living
from tests.execution.guarded import ON_LINUX, eventually, launch, run

# Launching


async def test_a_command_runs_and_its_output_and_exit_code_come_back(guard: Guard) -> None:
    status, text = await run(guard, Command(("/bin/sh", "-c", "echo out; echo err >&2; exit 3"), ENV))
    assert (status, text) == (ExitStatus(3), "out\nerr\n")


async def test_a_command_has_its_environment_folder_and_a_session_of_its_own(guard: Guard, tmp_path: Path) -> None:
    script = "import os,sys; print(os.getsid(0) == os.getpid() == os.getpgid(0), os.getcwd(), dict(os.environ))"
    command = Command((sys.executable, "-I", "-S", "-c", script), {"A": "b=c", "LC_ALL": "C"}, str(tmp_path))
    status, text = await run(guard, command)
    assert status == ExitStatus(0)
    assert text == f"True {tmp_path} {{'A': 'b=c', 'LC_ALL': 'C'}}\n"


@ON_LINUX
async def test_a_command_inherits_no_files_signals_or_terminal(guard: Guard) -> None:
    script = (
        "ls -l /proc/self/fd | grep -v /proc/ | tail -n +2 | wc -l; readlink /proc/self/fd/0;"
        " grep -E 'Sig(Blk|Ign)' /proc/self/status"
    )
    _, text = await run(guard, Command(("/bin/sh", "-c", script), ENV))
    files, stdin, blocked, ignored = text.split("\n")[:4]
    assert (files, stdin) == ("3", "/dev/null")
    assert int(blocked.split()[1], 16) == 0
    # 32 and 33 are the C library's own, the lowest 31 are everybody's.
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0


async def test_the_folder_of_one_command_is_not_that_of_the_next(guard: Guard, tmp_path: Path) -> None:
    await run(guard, Command(("/bin/pwd",), ENV, str(tmp_path)))
    assert (await run(guard, Command(("/bin/pwd",), ENV)))[1] == f"{Path.cwd()}\n"


async def test_programs_are_found_on_the_path_of_the_command(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "hello").write_text("#!/bin/sh\necho found")
    (tmp_path / "hello").chmod(0o755)
    _, text = await run(guard, Command(("hello",), {"PATH": f"/nowhere:{tmp_path}"}))
    assert text == "found\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (Command(("/no/such",), ENV), "/no/such .* was not found"),
        (Command(("no-such",), ENV), "no-such .* was not found"),
        (Command(("/etc/passwd",), ENV), "/etc/passwd .* is not executable"),
        (Command(("/",), ENV), "/ may not be executed"),
        (Command(("/bin/true",), ENV, "/no/folder"), "the folder /no/folder does not exist"),
        (Command(("/bin/true",), ENV, "/etc/passwd"), "the folder /etc/passwd cannot be entered: Not a dir"),
        (Command(("/bin/true", "x" * 200_000), ENV), r"the command \(200,009 bytes\) .* longer than"),
        (Command(("/bin/true", "a\0b"), ENV), "NUL character"),
        (Command(("/bin/true",), {"A=B": "c"}), "'A=B' cannot be the name"),
        (Command(("/bin/true", "\ud800"), ENV), "half a surrogate pair"),
    ],
)
async def test_what_cannot_be_started_is_told_in_words_and_hurts_no_other(
    guard: Guard, command: Command, words: str
) -> None:
    with pytest.raises(LaunchError, match=words):
        await guard.launch(command, OutputBuffer(10))
    assert (await run(guard, Command(("/bin/echo", "fine"), ENV)))[1] == "fine\n"


async def test_many_commands_at_once_keep_their_outputs_apart(guard: Guard) -> None:
    commands = [Command(("/bin/echo", str(number), "x" * 5000), ENV) for number in range(200)]
    results = await asyncio.gather(*(run(guard, command) for command in commands))
    assert [text.split()[0] for _, text in results] == [str(number) for number in range(200)]


@ON_LINUX
async def test_nothing_leaks_over_many_launches(guard: Guard) -> None:
    def files() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{guard.pid}/fd"))

    await run(guard, Command(("/bin/true",), ENV))
    before = files()
    for _ in range(50):
        await run(guard, Command(("/bin/true",), ENV))
        with pytest.raises(LaunchError):
            await guard.launch(Command(("/no/such",), ENV), OutputBuffer(10))
    assert files() == before


async def test_a_firehose_leaves_the_loop_free_and_memory_bounded(guard: Guard) -> None:
    output = OutputBuffer(1000)
    process = await launch(guard, "exec yes", output)
    await eventually(lambda: output.total_bytes > 20_000_000)
    turns = 0
    async with asyncio.timeout(5):
        for _ in range(100):
            await asyncio.sleep(0.001)
            turns += 1
    assert turns == 100
    assert await process.kill_tree()
    await process.drained.wait()
    assert len(output.render().text) < 1100


async def test_a_launch_that_is_cancelled_halfway_leaves_nothing(guard: Guard, marker: str) -> None:
    launching = asyncio.create_task(launch(guard, f"sleep 300 {marker}; true"))
    await asyncio.sleep(0)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    await run(guard, Command(("/bin/true",), ENV))
    await eventually(lambda: not living(marker))


# Killing


@ON_LINUX
@pytest.mark.parametrize("way", ESCAPES)
async def test_no_descendant_escapes_kill_tree(guard: Guard, marker: str, way: str) -> None:
    bystander = await launch(guard, "sleep 300")
    process = await launch(guard, ESCAPES[way].format(marker))
    await eventually(lambda: living(marker))
    assert await process.kill_tree()
    assert not living(marker)
    assert (await process.wait()).signal == signal.SIGKILL
    assert not bystander.exited.is_set()


@ON_LINUX
async def test_a_fork_chain_that_keeps_changing_session_is_caught(guard: Guard, marker: str) -> None:
    command = Command((sys.executable, "-I", "-S", "-c", STORM, marker), {})
    chains = [await guard.launch(command, OutputBuffer(10)) for _ in range(5)]
    bystander = await launch(guard, "sleep 300")
    await eventually(lambda: len(living(marker)) >= 5 * 10)
    assert all(await asyncio.gather(*(chain.kill_tree() for chain in chains)))
    assert not living(marker)
    assert not bystander.exited.is_set()


@ON_LINUX
async def test_a_stopped_command_gets_its_term(guard: Guard) -> None:
    process = await launch(guard, "trap 'echo bye; exit 7' TERM; kill -STOP $$; sleep 300 & wait")
    await eventually(lambda: "\nState:\tT" in Path(f"/proc/{process.pid}/status").read_text())
    process.signal_group(signal.SIGTERM)
    assert await process.wait() == ExitStatus(7)
    await process.kill_tree()


async def test_gone_is_told_when_what_was_left_behind_ends_by_itself(guard: Guard) -> None:
    process = await launch(guard, "(sleep 0.3; echo late) & exit 4")
    assert await process.wait() == ExitStatus(4)
    assert not process.gone.is_set()
    async with asyncio.timeout(5):
        await process.gone.wait()
        await process.drained.wait()
    assert process.output.render().text == "late\n"


async def test_kill_tree_after_the_end_is_harmless(guard: Guard) -> None:
    process = await launch(guard, "exit 0")
    await process.gone.wait()
    assert await process.kill_tree()


# The deadline


@ON_LINUX
async def test_a_passed_deadline_kills_all_commands_and_a_later_one_lets_them_start_again(
    guard: Guard, marker: str
) -> None:
    processes = [await launch(guard, script.format(marker)) for script in ESCAPES.values()]
    await eventually(lambda: len(living(marker)) >= len(ESCAPES))
    guard.feed(boottime() + 0.2)
    statuses = [await process.wait() for process in processes]
    assert {(status.signal, status.cut_off) for status in statuses} == {(signal.SIGKILL, True)}
    await eventually(lambda: not living(marker), 1)

    with pytest.raises(LaunchError, match="could not renew its lease"):
        await launch(guard, "true")
    guard.feed(boottime() - 1)
    with pytest.raises(LaunchError, match="could not renew its lease"):
        await launch(guard, "true")
    guard.feed(boottime() + 60)
    assert await (await launch(guard, "exit 5")).wait() == ExitStatus(5)


async def test_a_command_lives_as_long_as_the_deadline_is_moved_on(guard: Guard) -> None:
    guard.feed(boottime() + 0.3)
    process = await launch(guard, "sleep 1.5")
    while not process.exited.is_set():
        guard.feed(boottime() + 0.3)
        await asyncio.sleep(0.05)
    assert await process.wait() == ExitStatus(0)


@ON_LINUX
async def test_signals_to_the_group_of_the_worker_do_not_end_the_guard(guard: Guard) -> None:
    assert os.getsid(guard.pid) == guard.pid
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(guard.pid, signum)
    assert (await run(guard, Command(("/bin/echo", "here"), ENV)))[1] == "here\n"


def test_frames_survive_any_cutting_of_the_stream() -> None:
    sent = [[b"launch", b"1", b"", b"\xff\n"], [b"x" * 70_000], [b"feed", b"1.5"]]
    stream = b"".join(wire.pack(*frame) for frame in sent)
    for size in (1, 3, 4096, len(stream)):
        frames = wire.Frames()
        cut = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [frame for part in cut for frame in frames.feed(part)] == sent


def test_the_guard_needs_nothing_but_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(program.__file__).parent)], capture_output=True, text=True
    )
    # It gets as far as its missing arguments.
    assert done.stderr.strip().endswith("IndexError: list index out of range")
