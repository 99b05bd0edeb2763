"""`from pgcron_runner import run`: what a job's own Python code asks of its run, and says of it.

The same for a function that runs in a process of its own, for one inside the worker (`"isolation": "thread"`), and for
any Python program that a shell job starts. It knows the PGCRON_* variables and nothing of workers and databases; it
needs the standard library alone, since every job that imports it pays for it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import cache

from pgcron_runner.errors import PgcronError

TYPE_CHECKING = False  # typing's own takes 5 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    class Context(Protocol):
        """Where a run is. Values come as JSON that was checked; progress as a line of PGCRON_PROGRESS."""

        @property
        def id(self) -> int: ...
        @property
        def job(self) -> str: ...
        @property
        def attempt(self) -> int: ...
        @property
        def scheduled_for(self) -> datetime: ...
        @property
        def args(self) -> dict[str, Any]: ...
        @property
        def state(self) -> Any: ...
        def is_cancelled(self) -> bool: ...
        def merging(self) -> AbstractContextManager[object]: ...
        def progress(self, line: str) -> None: ...
        def save(self, text: str) -> None: ...
        def run_after(self, text: str) -> None: ...
        def result(self, text: str) -> None: ...


ARGS, STATE, PROGRESS = "PGCRON_ARGS", "PGCRON_STATE", "PGCRON_PROGRESS"
RESULT, NEXT = "PGCRON_RESULT", "PGCRON_NEXT"
# State and result are part of the statements that write the run's row.
MOST_BYTES = 1 << 20
_MOST_WORDS = 1000
_NOTHING: Any = object()
_LONGEST_DELAY = timedelta(days=3650)


class NotInRun(PgcronError):
    """There is no run here: neither the PGCRON_* variables that a worker gives to its jobs nor a function of a job.

    To try such code without a worker:

        from pgcron_runner import pretend_run

        with pretend_run(state={"cursor": 4711}) as pretended:
            copy_table()
        assert pretended.state == {"cursor": 9000}
    """


class NotKept(PgcronError):
    """What was given cannot be kept."""


class Run:
    """The run that this code is part of. Outside of any run everything here raises NotInRun."""

    __slots__ = ()

    @property
    def id(self) -> int:
        """The run's number. It only grows, and a retry has a new one: good as a fencing token."""
        return _here().id

    @property
    def job(self) -> str:
        """The name of the job."""
        return _here().job

    @property
    def attempt(self) -> int:
        """1, and one more for each time that this occurrence was tried before."""
        return _here().attempt

    @property
    def scheduled_for(self) -> datetime:
        """The nominal time, in UTC: the same for all attempts, whenever they really begin."""
        return _here().scheduled_for

    @property
    def args(self) -> dict[str, Any]:
        """The job's `args`, or those that this run was given instead; a function has them as its keywords too."""
        return _here().args

    @property
    def state(self) -> Any:
        """What was saved last: by this run, else by the attempt or slice before it; `{}` where nothing was.

        A run that the schedule starts begins with `{}`. A copy: changing it saves nothing.
        """
        state = _here().state
        return {} if state is None else state

    @property
    def cancelled(self) -> bool:
        """Whether this run is to end: cancelled, too late, or its worker is being stopped.

        Who looks is expected to look again, and is not interrupted any more: without a look a process is (SIGTERM
        raises an exception in a job's function, and ends a program), from the first look on only this tells, and
        `kill_grace` later the process is killed. A function in a thread of the worker can be asked in no other way.
        A coroutine is cancelled in any case. A job that handles SIGTERM in its own way is not told here.
        """
        return _here().is_cancelled()

    def progress(self, percent: float, text: str = "") -> None:
        """Tells people how far it is: 0 to 100, and a few words. Cheap enough for every turn of a loop."""
        bounded = percent if 0 <= percent <= 100 else 100 if percent > 100 else 0  # NaN is no more than 0
        if not text.isprintable():
            text = " ".join(text.split())
        _here().progress(f"{bounded:.3g} {text[:_MOST_WORDS]}" if text else f"{bounded:.3g}")

    def save(self, state: Any = _NOTHING, /, **values: Any) -> None:
        """Keeps a JSON value for the next attempt or slice, also where this process is killed in the next moment.

        `run.save(cursor=4711)` adds to the object that is there, `run.save({"cursor": 4711})` replaces it, and
        `run.save({})` forgets. Several threads and processes of a run may add at once. At most 1 MiB. Raises NotKept.
        """
        here = _here()
        if state is _NOTHING:
            with here.merging():
                here.save(_state_json(_merged(self.state, values)))
        elif values:
            raise NotKept("run.save() takes a whole state or names with values, not both")
        elif state is None:
            raise NotKept("run.save(None) keeps nothing; run.save({}) forgets what is there")
        else:
            here.save(_state_json(state))

    def run_after(
        self, delay: str | float | timedelta = 0, job: str | None = None, args: dict[str, Any] | None = None
    ) -> None:
        """Once this run has succeeded, starts another: of this job, which then finds the saved state, or of `job`.

        `delay` counts from the end: `"10s"`, seconds, or a timedelta. `args` None: those of the job. May be called
        several times. Raises InvalidInput, NotKept.
        """
        here = _here()
        asked = {"job": job, "after": _seconds(delay), "args": args}
        said = {name: value for name, value in asked.items() if value is not None}
        here.run_after(_json_of("args", said, example='run.run_after("10s", args={"day": "2027-01-31"})'))

    def result(self, value: Any) -> None:
        """Keeps a JSON value of at most 1 MiB as the run's result; a function may just return it. Raises NotKept."""
        _here().result(_json_of("result", value, example='run.result({"rows": 12})'))


run = Run()


CONTEXT: ContextVar[Context | None] = ContextVar("pgcron_run", default=None)
"""The run of a function inside the worker, or a pretended one; None: the process has a run, or there is none."""


def _here() -> Context:
    return CONTEXT.get() or _of_this_process()


@cache
def _of_this_process() -> RunFiles:
    return RunFiles(os.environ)


def _merged(state: Any, values: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(state, dict):
        raise NotKept(f"run.save(name=value) adds to an object, but the state is {json.dumps(state)[:100]}")
    return state | values


def _state_json(state: Any) -> str:
    return _json_of("state", state, example="run.save(cursor=4711)")


def _json_of(name: str, value: Any, *, example: str) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotKept(f"{name}: JSON cannot hold it: {error}. For example: {example}") from error
    if len(text) > MOST_BYTES:
        raise NotKept(f"{name}: it is larger than {MOST_BYTES:,} bytes; keep the data elsewhere, and here where it is")
    return text


def _seconds(delay: str | float | timedelta) -> float:
    # Imported by few jobs.
    from pgcron_runner.durations import format_duration, parse_duration
    from pgcron_runner.errors import InvalidInput

    if isinstance(delay, str):
        delay = parse_duration(delay, field="delay", minimum=timedelta(0))
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not 0 <= seconds <= _LONGEST_DELAY.total_seconds():
        problem = f"is not between 0s and {format_duration(_LONGEST_DELAY)}"
        raise InvalidInput("delay", delay, problem, example='run.run_after("10s")')
    return seconds


class RunFiles:
    """The run of a process that has its PGCRON_* variables. Raises NotInRun where it has not."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        needed = ("PGCRON_RUN_ID", "PGCRON_JOB", "PGCRON_ATTEMPT", "PGCRON_SCHEDULED_FOR")
        if any(name not in environ for name in (*needed, ARGS, STATE, PROGRESS, RESULT, NEXT)):
            raise NotInRun
        self.id = int(environ["PGCRON_RUN_ID"])
        self.job = environ["PGCRON_JOB"]
        self.attempt = int(environ["PGCRON_ATTEMPT"])
        self.scheduled_for = datetime.fromisoformat(environ["PGCRON_SCHEDULED_FOR"]).astimezone(UTC)
        self._paths = {name: environ[name] for name in (ARGS, STATE, PROGRESS, RESULT, NEXT)}
        self._progress = _LastLine(self._paths[PROGRESS])

    @property
    def args(self) -> dict[str, Any]:
        args: dict[str, Any] = self._read(ARGS) or {}
        return args

    @property
    def state(self) -> Any:
        return self._read(STATE)

    def is_cancelled(self) -> bool:
        handler: Any = signal.getsignal(signal.SIGTERM)
        if handler is signal.SIG_DFL:
            if threading.current_thread() is not threading.main_thread():
                raise PgcronError("run.cancelled: Python hears signals in its main thread; look there first, once")
            handler = _Remembers()
            signal.signal(signal.SIGTERM, handler)
        # Ours, or that of the program that a Python job runs in (execution/child.py).
        if not hasattr(handler, "received"):
            return False
        handler.interrupts = False
        return bool(handler.received)

    def progress(self, line: str) -> None:
        # That a disk is full must not end the work because of this.
        with suppress(OSError):
            self._progress.write(line.encode("utf-8", "backslashreplace"))

    @contextmanager
    def merging(self) -> Iterator[None]:
        import fcntl

        with open(f"{self._paths[STATE]}.lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def save(self, text: str) -> None:
        self._replace(STATE, text)

    def run_after(self, text: str) -> None:
        # One write: several processes of the job may ask at once.
        with open(self._paths[NEXT], "ab", buffering=0) as file:
            file.write(f"{text}\n".encode())

    def result(self, text: str) -> None:
        self._replace(RESULT, text)

    def _read(self, name: str) -> Any:
        try:
            with open(self._paths[name], encoding="utf-8") as file:
                text = file.read()
            return json.loads(text) if text.strip() else None
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise PgcronError(f"{name}: the file does not hold JSON: {error}") from error

    def _replace(self, name: str, text: str) -> None:
        # Never seen half written, whoever is killed when.
        path = self._paths[name]
        temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)


class _Remembers:
    """A handler of SIGTERM that does nothing else."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, signum: int, frame: object) -> None:
        self.received = True


class _LastLine:
    """The last line of a file, written over again and again: a file of a line, after a million calls too.

    Where somebody else appends a line, the next goes behind it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._start = self._end = -1

    def write(self, line: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        end = os.lseek(self._fd, 0, os.SEEK_END)
        if end != self._end:
            self._start = self._end = end
        # The end of the line before: it may be missing.
        text = b"\n" + line if self._start else line
        text = b"%b\n" % text.ljust(self._end - self._start - 1)
        os.pwrite(self._fd, text, self._start)
        self._end = self._start + len(text)
