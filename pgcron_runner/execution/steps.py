"""Long work in steps: the files through which a command, in any language, talks of itself to its worker.

The command finds their paths in its environment:

    PGCRON_STATE     JSON: what the last attempt or slice has saved; written anew by the command to save
    PGCRON_PROGRESS  lines that the command appends, `40 copied`: percent, then words; the last one counts
    PGCRON_RESULT    JSON: the run's result
    PGCRON_NEXT      JSON lines {"job": "other", "after": "10s", "args": {}}: runs to start once this one has succeeded

What cannot be read at the end makes the run fail, in words; while it runs it may just be half written.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pgcron_runner.durations import parse_duration
from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import storable
from pgcron_runner.execution.result import MOST_BYTES, BadResultError, storable_result
from pgcron_runner.model import NextRun, Outcome, Status, Task

STATE, PROGRESS, RESULT, NEXT = "PGCRON_STATE", "PGCRON_PROGRESS", "PGCRON_RESULT", "PGCRON_NEXT"
_NAMES = {STATE: "state.json", PROGRESS: "progress", RESULT: "result.json", NEXT: "next.jsonl"}
_LAST_LINE_BYTES = 4096
_MOST_WORDS = 1000
_MOST_NEXT_RUNS = 1000
_LONGEST_DELAY = timedelta(days=3650)
_NEXT_KEYS = ("job", "after", "args")
_NEXT_EXAMPLE = '{"job": "report", "after": "10s", "args": {"day": "2027-01-31"}}'


class BadStepError(PgcronError):
    """A file that the command has written cannot be read."""


class StepFiles:
    """The four files of one run, in a folder of its own; none of them exists before somebody writes it."""

    def __init__(self, folder: Path, task: Task, live: Live) -> None:
        self.folder = folder
        self._paths = {variable: folder / name for variable, name in _NAMES.items()}
        self._live = live
        self._seen: dict[str, tuple[int, int, int]] = {}
        if task.state is not None:
            self._paths[STATE].write_text(json.dumps(task.state), encoding="utf-8")
            self._has_changed(STATE)
        live.refresh = self.refresh

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell the command where they are."""
        return {variable: str(path) for variable, path in self._paths.items()}

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
            if self._paths[RESULT].exists():
                outcome = replace(outcome, result=self._json_of(RESULT))
            return replace(outcome, next_runs=self._next_runs())
        except (OSError, BadStepError) as error:
            return _spoiled(replace(outcome, progress=self._live.progress, state=self._live.state), str(error))

    def _has_changed(self, variable: str) -> bool:
        """Since this was last asked."""
        try:
            status = self._paths[variable].stat()
        except FileNotFoundError:
            return False
        before, now = self._seen.get(variable), (status.st_ino, status.st_mtime_ns, status.st_size)
        self._seen[variable] = now
        return before != now

    def _progress(self) -> dict[str, Any] | None:
        with self._paths[PROGRESS].open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LAST_LINE_BYTES, 0))
            lines = file.read().decode("utf-8", "backslashreplace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), None)
        return None if said is None else parse_progress(said)

    def _json_of(self, variable: str) -> Any:
        text = self._read(variable)
        if not text.strip():
            # A command that truncates the file and then writes it was caught in between, or wants it forgotten.
            return None
        try:
            return storable_result(json.loads(text))
        except (ValueError, RecursionError, BadResultError) as error:
            raise BadStepError(f"{variable} does not hold JSON: {error}") from error

    def _next_runs(self) -> tuple[NextRun, ...]:
        if not self._paths[NEXT].exists():
            return ()
        lines = [(n, line) for n, line in enumerate(self._read(NEXT).splitlines(), 1) if line.strip()]
        if len(lines) > _MOST_NEXT_RUNS:
            raise BadStepError(f"{NEXT} asks for {len(lines):,} runs, more than {_MOST_NEXT_RUNS:,}")
        return tuple(parse_next_run(line, where=f"{NEXT} line {number}") for number, line in lines)

    def _read(self, variable: str) -> str:
        path = self._paths[variable]
        if path.stat().st_size > MOST_BYTES:
            raise BadStepError(f"{variable} is larger than {MOST_BYTES:,} bytes")
        return path.read_text("utf-8", "backslashreplace")


@contextmanager
def step_files(task: Task, live: Live, *, owner: tuple[int, int] | None = None) -> Iterator[StepFiles]:
    """A folder for one run, gone at the end. `owner`: the user and group that the command runs as. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix="pgcron-"))
    try:
        files = StepFiles(folder, task, live)
        if owner is not None:
            for path in (folder, *folder.iterdir()):
                os.chown(path, *owner)
        yield files
    finally:
        live.refresh = None
        shutil.rmtree(folder, ignore_errors=True)


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
