"""The program that most Python jobs are forks of: it has imported already what they would wait for.

`python -P -u zygote.py SOCKET`, in the clean environment of a job that adds nothing. It is told over the socket what to
import, and answers how many bytes that took. From then on it sees to it that one fork of it waits at the socket: for a
byte that comes with two files, a channel of the run's own and where the run prints to. It forks twice, so that the
guard, a child subreaper, becomes the parent. Over its channel the fork is told what it is to be, says its pid, and
waits for `go` until the guard has adopted it: before that, nothing of the job has run, and if its channel closes it
just ends. From there on it is what child.py is.

It must not have threads: a fork has only one of them, and the locks that the others held are never released.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import resource
import socket
import sys
import threading
import time
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

# Of the standard library, and what is ours: what child.py, asynchronous functions and `pgcron_runner.run` need.
_ALWAYS = ("asyncio", "logging", "pgcron_runner.running")
_RLIMIT_LOCKS = 10
_LENGTH_BYTES = 4


def main(address: str) -> int:
    """Serves the worker until it is gone; in a fork, runs the job. Returns the exit code."""
    origin = _Origin()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
        worker.connect(address)
        settings = json.loads(worker.recv(1 << 20))
        sys.path[:] = list(dict.fromkeys([os.getcwd(), *settings["path"], *sys.path]))
        for name in (*_ALWAYS, *settings["preload"]):
            importlib.import_module(name)
        if _threads() > 1:
            sys.exit(f"importing {', '.join(settings['preload'])} has started threads: {_thread_names()}")
        origin.remember_imports()
        child = _load_child()
        libc = ctypes.CDLL(None)
        # What C code has printed and not written yet would be written by each fork.
        libc.fflush(None)
        # What is there now stays for good: not looked at by the collector, its pages stay shared with the forks.
        gc.collect()
        gc.freeze()
        worker.send(b"%d" % _own_memory())
        folder = _serve(worker, origin)
    if folder is not None:
        sys.argv[:] = [str(child.__file__)]
        code = child.main(folder)
        _tidy_up(before=origin.module_names)
        # The interpreter would take leave of each object of the zygote, and so copy all its pages: 10 ms (measured).
        libc.exit(code)
    return 0


class _Origin:
    """What the zygote was before it imported anything, for its forks to begin with, and what it has imported."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._folder = os.getcwd()
        self._modules: dict[str, str | None] = {}
        self.module_names: frozenset[str] = frozenset()
        self._added: dict[str, str] = {}

    def remember_imports(self) -> None:
        """Call it when all is imported."""
        self.module_names = frozenset(sys.modules)
        for name in {name.partition(".")[0] for name in sys.modules} - {"__main__"}:
            module = sys.modules.get(name)
            # What is part of the interpreter is found before any folder is looked at.
            if getattr(getattr(module, "__spec__", None), "origin", None) not in ("built-in", "frozen"):
                self._modules[name] = getattr(module, "__file__", None)
        # As a cold run has it that imports the same: django's settings module, for example.
        changed = {name for name, value in os.environ.items() if self._environment.get(name) != value}
        self._added = {name: os.environ[name] for name in changed}

    def become(self, request: dict[str, Any]) -> None:
        """Takes on the environment, the folder and the file mode mask of a run. Raises OSError for the folder."""
        os.environ.clear()
        # Not as strings: what they are in bytes must not depend on the locale.
        os.environb.update({_encoded(name): _encoded(text) for name, text in (self._added | request["env"]).items()})
        time.tzset()
        os.umask(self._umask if request["umask"] is None else request["umask"])
        os.chdir(_encoded(request["cwd"] or self._folder))
        _forget_environment()

    def has_others(self, folder: str) -> bool:
        """Whether the run's own folder, first on its path, has another module of a name that is imported already."""
        if folder == self._folder:
            return False
        for name, file in self._modules.items():
            spec = importlib.machinery.PathFinder.find_spec(name, [folder])
            if spec is not None and spec.loader is not None and spec.origin != file:
                return True
        return False


def _serve(worker: socket.socket, origin: _Origin) -> str | None:
    """None at the end of the worker; in a fork that may go on, the folder of its run."""
    while True:
        if _threads() > 1:
            sys.exit(f"something that was imported has started threads: {_thread_names()}")
        is_used, uses = os.pipe()
        if _is_fork():
            os.close(is_used)
            return _be_born(worker, uses, origin)
        os.close(uses)
        used = os.read(is_used, 1)
        os.close(is_used)
        if not used:
            return None


def _is_fork() -> bool:
    """Forks a child whose parent is the guard; True in the child. Raises OSError."""
    middle = os.fork()
    if middle:
        with contextlib.suppress(ChildProcessError):  # some module has SIGCHLD ignored
            if os.waitpid(middle, 0)[1] != 0:
                raise OSError("no process could be forked")
        return False
    middle = os.getpid()
    try:
        child = os.fork()
    except OSError:
        os._exit(1)
    if child:
        os._exit(0)
    while os.getppid() == middle:
        time.sleep(0.0002)
    return True


def _be_born(worker: socket.socket, uses: int, origin: _Origin) -> str:
    """Waits for a run and becomes its process; does not return where that fails, or nobody wants it any more."""
    try:
        os.setsid()
        data, ancillary, _, _ = worker.recvmsg(1, socket.CMSG_SPACE(8), socket.MSG_CMSG_CLOEXEC)
        if data:
            os.write(uses, data)
            os.close(uses)
            worker.close()
            if (folder := _wanted(*_files(ancillary), origin)) is not None:
                return folder
    except BaseException:  # noqa: S110 # there is nobody to tell: the worker sees the channel close
        pass
    os._exit(1)


def _files(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    ((_, _, data),) = ancillary
    return int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[4:], sys.byteorder)


def _wanted(channel: int, output: int, origin: _Origin) -> str | None:
    """Becomes what the request says, and waits to be told to go on; then the folder of the run, else None."""
    with socket.socket(fileno=channel) as worker:
        request = _receive(worker)
        _set_mark(request["mark"])
        answer = _settle(request, output, origin)
        worker.sendall(json.dumps(answer).encode())
        folder: str = request["folder"]
        return folder if "pid" in answer and worker.recv(1) else None


def _receive(worker: socket.socket) -> dict[str, Any]:
    """The request: its length, and JSON."""
    length = int.from_bytes(_exactly(worker, _LENGTH_BYTES), "big")
    request: dict[str, Any] = json.loads(_exactly(worker, length))
    return request


def _exactly(worker: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = worker.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def _settle(request: dict[str, Any], output: int, origin: _Origin) -> dict[str, int]:
    """What to answer: `pid`, or the `errno` of a folder that cannot be entered, or `other` modules."""
    try:
        origin.become(request)
    except OSError as error:
        return {"errno": error.errno or 0}
    importlib.invalidate_caches()
    if origin.has_others(os.getcwd()):
        return {"other": 1}
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    _draw_anew()
    return {"pid": os.getpid()}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _forget_environment() -> None:
    """What the standard library has remembered of the zygote's."""
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None


def _draw_anew() -> None:
    """Random numbers of its own; the standard library sees to its own at each fork."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _set_mark(mark: int) -> None:
    # As guard/table.py, which tells what it is for.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (mark, resource.getrlimit(_RLIMIT_LOCKS)[1]))


def _tidy_up(*, before: frozenset[str]) -> None:
    """What the interpreter does at its end, for all that is the job's own: what came after `before`."""
    steps: tuple[Callable[[], object], ...] = (
        threading._shutdown,  # type: ignore[attr-defined]
        atexit._run_exitfuncs,
        # First: the collector may close what is under a file before it is written out.
        _flush_files,
        lambda: _forget_modules(before),
        _flush_files,
    )
    for step in steps:
        try:
            step()
        except BaseException:
            # A stop, most likely. It is told, and the rest is done all the same.
            traceback.print_exc()


def _flush_files() -> None:
    """All open ones of the job's; of the zygote only those that everybody prints to."""
    # Not isinstance(), which asks the object itself: a proxy might do anything.
    files = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            file.flush()


def _forget_modules(before: frozenset[str]) -> None:
    """Lets go of their objects, so that temporary files are deleted, for example."""
    for name in sys.modules.keys() - before:
        del sys.modules[name]
    gc.collect()


def _threads() -> int:
    """Of any language."""
    return len(os.listdir("/proc/self/task"))


def _own_memory() -> int:
    """The bytes that each fork has too when it begins. (The kernel does not map files for it again.)"""
    with open("/proc/self/statm", "rb") as statm:
        _, resident, shared, *_ = statm.read().split()
    return (int(resident) - int(shared)) * resource.getpagesize()


def _thread_names() -> str:
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return ", ".join(names) or "those of a library in C (OPENBLAS_NUM_THREADS=1 for the worker keeps numpy from it)"


def _load_child() -> ModuleType:
    """child.py, by its path as it is run cold: a job must not find it where it looks for modules."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
    spec = importlib.util.spec_from_file_location("pgcron_child", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
