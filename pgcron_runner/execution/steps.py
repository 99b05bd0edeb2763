"""Long work in steps: the files through which a command, in any language, talks of itself to its worker.

The command finds their paths in its environment:

    PGCRON_ARGS      JSON: the job's `args`, or the run's own, without those that say how to run it
    PGCRON_STATE     JSON: what the last attempt or slice has saved; written anew by the command to save
    PGCRON_PROGRESS  lines that the command appends, `40 copied`: percent, then words; the last one counts
    PGCRON_RESULT    JSON: the run's result
    PGCRON_NEXT      JSON lines {"job": "other", "after": "10s", "args": {}}: runs to start once this one has succeeded

A file that has nothing to say is not there. What cannot be read at the end makes the run fail, in words; while it runs
it may just be half written. Python has all this as `pgcron_runner.run` (running.py).
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from pgcron_runner.durations import parse_duration
from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import storable
from pgcron_runner.execution.result import MOST_BYTES, BadResultError, storable_result
from pgcron_runner.execution.scratch import Scratch
from pgcron_runner.model import Kind, NextRun, Outcome, Status, Task
from pgcron_runner.running import ARGS, NEXT, PROGRESS, RESULT, STATE

_NAMES = {ARGS: "args.json", STATE: "state.json", PROGRESS: "progress", RESULT: "result.json", NEXT: "next.jsonl"}
_WHAT = {name: variable for variable, name in _NAMES.items()}
# What in `args` says how to run it.
_SETTINGS = {Kind.SHELL: ("argv", "run_as", "umask"), Kind.PYTHON: ("isolation", "run_as", "umask")}
# A file that was changed so shortly before the look may be changed again without a sign: clocks of files are coarse.
_COARSE = 50_000_000
_LAST_LINE_BYTES = 4096
_MOST_WORDS = 1000
_MOST_NEXT_RUNS = 1000
_LONGEST_DELAY = timedelta(days=3650)
_NEXT_KEYS = ("job", "after", "args")
_NEXT_EXAMPLE = '{"job": "report", "after": "10s", "args": {"day": "2027-01-31"}}'


class BadStepError(PgcronError):
    """A file that the command has written cannot be read."""


class StepFiles:
    """The files of one run, in a folder of its own; none of them exists before somebody writes it."""

    def __init__(self, folder: Path, task: Task, live: Live) -> None:
        self.folder = folder
        self._live = live
        self._seen: dict[str, tuple[int, int, int]] = {}
        # The job may put another folder in its place.
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if args := without_settings(task):
            (folder / _NAMES[ARGS]).write_text(json.dumps(args), encoding="utf-8")
        if task.state is not None:
            state = folder / _NAMES[STATE]
            state.write_text(json.dumps(task.state), encoding="utf-8")
            # Long ago, so that whatever is written from now on is seen to be another.
            os.utime(state, (0, 0))
            self._has_changed(STATE)
        live.refresh = self.refresh

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell the command where they are."""
        return {variable: str(self.folder / name) for variable, name in _NAMES.items()}

    def refresh(self) -> None:
        """Takes over what was written since the last look; what is half written is left for the next."""
        with suppress(OSError, BadStepError):
            if self._has_changed(PROGRESS):
                self._live.progress = self._progress()
        with suppress(OSError, BadStepError):
            if self._has_changed(STATE):
                self._live.state = self._json_of(STATE)

    def finish(self, outcome: Outcome) -> Outcome:
        """The outcome with all that the files say in the end."""
        try:
            if self._has_changed(PROGRESS):
                self._live.progress = self._progress()
            if self._has_changed(STATE):
                self._live.state = self._json_of(STATE)
            outcome = replace(outcome, progress=self._live.progress, state=self._live.state)
            if (result := self._json_of(RESULT)) is not None:
                outcome = replace(outcome, result=result)
            return replace(outcome, next_runs=self._next_runs())
        except (OSError, BadStepError) as error:
            return _spoiled(replace(outcome, progress=self._live.progress, state=self._live.state), str(error))

    def read(self, name: str, *, most_bytes: int = MOST_BYTES) -> str | None:
        """A file of the folder as text; None where there is none. Raises OSError, BadStepError."""
        file = self._open(name)
        if file is None:
            return None
        with file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise BadStepError(f"{_WHAT.get(name, name)} is larger than {most_bytes:,} bytes")
        return data.decode("utf-8", "backslashreplace")

    def close(self) -> None:
        """The folder is looked at no more."""
        self._live.refresh = None
        os.close(self._fd)

    def _open(self, name: str) -> IO[bytes] | None:
        # Whatever the job has put there: a pipe would be waited for, a link may lead to what only the worker may read.
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise BadStepError(f"{_WHAT.get(name, name)} is not an ordinary file any more")
        return os.fdopen(fd, "rb")

    def _has_changed(self, variable: str) -> bool:
        """Since this was last asked."""
        try:
            status = os.stat(_NAMES[variable], dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        now = (status.st_ino, status.st_mtime_ns, status.st_size)
        if now == self._seen.get(variable):
            return False
        if time.time_ns() - status.st_mtime_ns > _COARSE:
            self._seen[variable] = now
        return True

    def _progress(self) -> dict[str, Any] | None:
        file = self._open(_NAMES[PROGRESS])
        if file is None:
            return None
        with file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LAST_LINE_BYTES, 0))
            lines = file.read(_LAST_LINE_BYTES).decode("utf-8", "backslashreplace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), None)
        return None if said is None else parse_progress(said)

    def _json_of(self, variable: str) -> Any:
        text = self.read(_NAMES[variable])
        if text is None or not text.strip():
            # A command that truncates the file and then writes it was caught in between.
            return None
        try:
            return storable_result(json.loads(text))
        except (ValueError, RecursionError, BadResultError) as error:
            raise BadStepError(f"{variable} does not hold JSON: {error}") from error

    def _next_runs(self) -> tuple[NextRun, ...]:
        text = self.read(_NAMES[NEXT]) or ""
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) > _MOST_NEXT_RUNS:
            raise BadStepError(f"{NEXT} asks for {len(lines):,} runs, more than {_MOST_NEXT_RUNS:,}")
        return tuple(parse_next_run(line, where=f"{NEXT} line {number}") for number, line in lines)


@contextmanager
def step_files(
    task: Task, live: Live, scratch: Scratch, *, owner: tuple[int, int] | None = None
) -> Iterator[StepFiles]:
    """A folder for one run, gone at the end. `owner`: the user and group that the command runs as. Raises OSError."""
    folder = scratch.new_folder(str(task.run_id))
    try:
        with closing(StepFiles(folder, task, live)) as files:
            if owner is not None:
                for path in (folder, *folder.iterdir()):
                    os.chown(path, *owner)
            yield files
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def without_settings(task: Task) -> dict[str, Any]:
    """The `args` that are the job's own business."""
    settings = _SETTINGS.get(task.kind, ())
    return {name: value for name, value in task.args.items() if name not in settings}


def parse_progress(line: str) -> dict[str, Any]:
    """`40 copied` -> {"percent": 40, "text": "copied"}; a line without a number is all words."""
    first, _, rest = line.partition(" ")
    try:
        percent = float(first.rstrip("%"))
        if not 0 <= percent <= 100:
            raise ValueError
    except ValueError:
        return {"text": storable(line)[:_MOST_WORDS]}
    number = int(percent) if percent.is_integer() else percent
    words = storable(rest.strip())[:_MOST_WORDS]
    return {"percent": number, "text": words} if words else {"percent": number}


def parse_next_run(line: str, *, where: str) -> NextRun:
    """One line of PGCRON_NEXT. Raises BadStepError, which says `where`, what is wrong, and what would be right."""
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadStepError(f"{where} is not JSON: {error}; for example {_NEXT_EXAMPLE}") from error
    return next_run_of(asked, where=where)


def next_run_of(asked: Any, *, where: str) -> NextRun:
    """The same for JSON that was read already."""
    if not isinstance(asked, dict) or not asked.keys() <= set(_NEXT_KEYS):
        raise BadStepError(f"{where} is not an object with {', '.join(_NEXT_KEYS)}; for example {_NEXT_EXAMPLE}")
    job, args = asked.get("job"), asked.get("args")
    if job is not None and (not isinstance(job, str) or not job):
        raise BadStepError(f"{where}: job is {job!r}, not the name of a job; for example {_NEXT_EXAMPLE}")
    if args is not None and not isinstance(args, dict):
        raise BadStepError(f"{where}: args is {args!r}, not a JSON object; for example {_NEXT_EXAMPLE}")
    try:
        cleaned = None if args is None else storable_result(args)
    except BadResultError as error:
        raise BadStepError(f"{where}: args cannot be kept: {error}") from error
    return NextRun(job, _delay(asked.get("after", 0), where), cleaned)


def _delay(after: Any, where: str) -> timedelta:
    """A text such as 10s, or a number of seconds."""
    try:
        if isinstance(after, int | float):
            delay = timedelta(seconds=after)
        else:
            delay = parse_duration(str(after), field="after", minimum=timedelta(0))
        if timedelta(0) <= delay <= _LONGEST_DELAY:
            return delay
    except (InvalidInput, ValueError, OverflowError):
        pass
    raise BadStepError(f'{where}: after is {after!r}, not a duration of up to ten years such as "10s"')


def _spoiled(outcome: Outcome, error: str) -> Outcome:
    if outcome.status is Status.SUCCEEDED:
        return replace(outcome, status=Status.FAILED, error=storable(error))
    return replace(outcome, reason="; ".join(filter(None, [outcome.reason, storable(error)])))
