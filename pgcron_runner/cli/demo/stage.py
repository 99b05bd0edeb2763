"""The demo's processes and its folder: real workers, what their commands write down, and that nothing stays behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pgcron_runner
from pgcron_runner.promises import Mark, Moment

LEASE = 6
PARTS = 10

# Two lines for each run, independent of the database: small appends to one file keep their order.
_NOTED = """
session=$$
[ ! -r /proc/$$/stat ] || read -r _ _ _ _ _ session _ </proc/$$/stat
echo "begin $PGCRON_JOB $PGCRON_RUN_ID $session" >>marks
"$@"
code=$?
echo "end $PGCRON_JOB $PGCRON_RUN_ID $session" >>marks
exit $code
"""
# A part that is made is not made again: the next attempt goes on where the last one was cut off.
_BACKUP = f"""
part=1
while [ $part -le {PARTS} ]; do
  grep -qs "^$part " parts || {{ sleep 1 && echo "$part $PGCRON_RUN_ID" >>parts; }}
  part=$((part + 1))
done
"""
# Waits for its pipe to close, which no way of dying can prevent.
_MINDER = 'read -r never; kill -KILL "$1"; sleep 1; rm -rf "$2"'


class WorkerProcess:
    """`python -m pgcron_runner worker` in a session of its own: a Ctrl-C in the terminal is for the demo alone."""

    def __init__(self, name: str, dsn: str, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        options = ["--dsn", dsn, "--lease", f"{LEASE}s", "--slots", "4", "--name", name]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pgcron_runner", "worker", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=_environment(),
                start_new_session=True,
            )
        # Should the demo itself be killed, neither its workers nor its folder must stay.
        self._minder = subprocess.Popen(
            ["/bin/sh", "-c", _MINDER, "pgcron-minder", str(self.pid), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal that ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL: it cannot react. Returns when it is dead."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM: it lets its runs end and stops in order."""
        self._process.terminate()

    def dismiss(self) -> None:
        """Kill it if it still runs; its guard kills its commands."""
        self.kill()
        with self._minder:
            self._minder.kill()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").strip().splitlines()[-8:])


class Stage:
    """The folder that workers and commands run in, and the workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: dict[str, WorkerProcess] = {}
        (folder / "noted.sh").write_text(_NOTED.lstrip())
        (folder / "backup.sh").write_text(_BACKUP.lstrip())
        for name in ("marks", "parts"):
            (folder / name).touch()

    def start_workers(self, dsn: str, names: list[str]) -> None:
        for name in names:
            self.workers[name] = WorkerProcess(name, dsn, self.folder)

    def marks(self) -> list[Mark]:
        """What the commands have written down so far, in the order of writing."""
        lines = (line.split() for line in (self.folder / "marks").read_text().splitlines())
        return [Mark(Moment(word), job, int(run_id), int(session)) for word, job, run_id, session in lines]

    def watch_commands(self) -> list[Mark]:
        """Commands that have begun and live; of those that were killed it is written down that they are gone."""
        marks = self.marks()
        over = {mark.run_id for mark in marks if mark.moment is not Moment.BEGIN}
        going = [mark for mark in marks if mark.run_id not in over]
        living = {_session_of(pid) for pid in self.processes()} if going else set()
        with (self.folder / "marks").open("a") as file:
            for mark in going:
                # One that ended by itself in this very moment has both marks: neither is wrong.
                if mark.session not in living:
                    file.write(f"{Moment.GONE} {mark.job_name} {mark.run_id} {mark.session}\n")
        return [mark for mark in going if mark.session in living]

    def parts(self) -> list[tuple[int, int]]:
        """What the backup has made so far: the number of each part, and the run that made it."""
        lines = (line.split() for line in (self.folder / "parts").read_text().splitlines())
        return [(int(part), int(run_id)) for part, run_id in lines]

    def processes(self) -> dict[int, str]:
        """Every living process that runs in the folder: workers, their guards and all commands; pid -> what it is."""
        if not Path("/proc/self/cwd").exists():
            return self._known_processes()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended meanwhile, or a zombie
                if (entry / "cwd").readlink() == self.folder:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    found[int(entry.name)] = f"{entry.name} {words[:60]}"
        return found

    def clear(self) -> None:
        """End every process at once and wait until all are gone."""
        for worker in self.workers.values():
            worker.dismiss()
        patience = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < patience:
            time.sleep(0.01)
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _known_processes(self) -> dict[int, str]:
        """Without /proc: those whose number was told, by us or by their mark."""
        known = {worker.pid: worker.name for worker in self.workers.values() if worker.exit_code is None}
        known |= {mark.session: f"command of run {mark.run_id}" for mark in self.marks()}
        return {pid: what for pid, what in known.items() if _lives(pid)}


@contextmanager
def open_stage() -> Iterator[Stage]:
    """A stage in a new temporary folder; at the end no process and no folder of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="pgcron-demo-")).resolve()
    try:
        stage = Stage(folder)
        try:
            yield stage
        finally:
            stage.clear()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _session_of(pid: int) -> int | None:
    """The session of a process; None when it has ended."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _environment() -> dict[str, str]:
    """Ours, without what would lead libpq elsewhere; the package is found although the folder is another one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    package = str(Path(pgcron_runner.__file__).resolve().parents[1])
    paths = [package, *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}
