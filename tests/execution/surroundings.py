"""What a Python job can see of the process that it is in, and what it may leave behind. Called by jobs of the tests."""

from __future__ import annotations

import asyncio
import atexit
import gc
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

_RLIMIT_LOCKS = 10


def kinship() -> dict[str, Any]:
    """Whose child this is, and how it is marked."""
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "program": Path("/proc/self/cmdline").read_text().split("\0")[3],
        "mark": resource.getrlimit(_RLIMIT_LOCKS)[0],
    }


def all_that_can_be_seen() -> dict[str, Any]:
    """What must be the same however the process was started."""
    umask = os.umask(0)
    os.umask(umask)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        "environment": {name: text for name, text in os.environ.items() if not name.startswith("PGCRON_")},
        "of programs": sorted(_shell("env | grep -v '^PGCRON_\\|^_=\\|^PWD=\\|^SHLVL=\\|^OLDPWD='").splitlines()),
        "folder": os.getcwd(),
        "umask": umask,
        "argv": [Path(argument).name for argument in sys.argv],
        "path": sys.path,
        "flags": str(sys.flags),
        "streams": [(stream.encoding, stream.errors, stream.line_buffering, stream.isatty()) for stream in streams],
        "input": sys.stdin.read(),
        "handlers": {number.name: _named(signal.getsignal(number)) for number in signal.Signals},
        "signals of programs": _shell("grep ^Sig[BIC] /proc/self/status"),
        "files": sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in _open_files()),
        "limits": {name: list(limit) for name, limit in limits.items()},
        "threads": [thread.name for thread in threading.enumerate()],
        "zone": time.tzname,
        "locale": list(locale.getlocale()),
        "encodings": [sys.getfilesystemencoding(), locale.getpreferredencoding()],
        "garbage": [gc.isenabled(), gc.get_threshold()],
        "process": [multiprocessing.current_process().name, str(multiprocessing.parent_process())],
        "log handlers": [str(handler) for handler in logging.getLogger().handlers],
        "nice": os.nice(0),
        "temporary": tempfile.gettempdir(),
        "user": [os.getuid(), os.getgid(), os.getgroups()],
    }


def _named(handler: Any) -> str:
    return getattr(handler, "name", None) or getattr(handler, "__name__", None) or type(handler).__name__


def _shell(command: str) -> str:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stdout


def _open_files() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:  # that of the listing itself
            continue
        found.append(int(name))
    return found


def all_that_others_can_read() -> dict[str, str]:
    """Others of the same user, that is: in the list of processes, and on the disk."""
    folder = Path(os.environ["PGCRON_STATE"]).parent
    paths = [Path("/proc/self/cmdline"), Path("/proc/self/environ"), *folder.iterdir()]
    return {"own": os.environ["TOKEN"], "others": "".join(path.read_text() for path in paths)}


def module_names() -> list[str]:
    return sorted(sys.modules)


def changes_everything() -> None:
    """As much as one process can change."""
    os.environ["PGCRON_TEST_LEAK"] = "x"
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    os.chdir("/")
    os.umask(0o077)
    os.nice(1)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    locale.setlocale(locale.LC_ALL, "C")
    logging.basicConfig(level=1, filename="/dev/null")
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    random.seed(1)
    gc.disable()
    sys.path.clear()
    sys.modules["json"] = None  # type: ignore[assignment]
    sys.setrecursionlimit(60)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    os.close(0)


def luck() -> list[Any]:
    """Never the same twice."""
    drawn = [random.random(), str(uuid.uuid4()), os.urandom(4).hex(), next(tempfile._get_candidate_names())]  # type: ignore[attr-defined]
    if (numpy := sys.modules.get("numpy.random")) is not None:
        drawn.append(numpy.random())
    return drawn


def uses_everything(folder: str) -> dict[str, Any]:
    """Whatever else forks, threads and waits."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        forked = pool.map(abs, [-1, -2])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        spawned = processes.submit(abs, -3).result()
    with ThreadPoolExecutor(1) as threads:
        threaded = threads.submit(abs, -4).result()
    logging.getLogger("job").warning("heard")
    print(_shell("echo from a program"), end="")
    return {"forked": forked, "spawned": spawned, "threaded": threaded, "async": asyncio.run(_five())}


async def _five() -> int:
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 5")
    return await process.wait()


_open: list[Any] = []


def leaves_things_open(folder: str) -> None:
    """As a program may that ends soon after: nothing of it may be lost, or stay."""
    atexit.register(print, "at exit")
    threading.Thread(target=_late).start()
    for way, buffered in (("w", True), ("wb", False)):
        file = open(Path(folder) / way, way)  # noqa: SIM115 # what it is about
        file.write("kept" if buffered else b"kept")
        _open.append(file)
    _open.append(tempfile.NamedTemporaryFile(dir=folder, prefix="temporary"))  # noqa: SIM115 # the same
    sys.stdout.write("no end of line")


def _late() -> None:
    time.sleep(0.1)
    print("late")


def prints(text: str) -> str:
    print(text)
    print(text, file=sys.stderr)
    return text


def appends(path: str) -> None:
    with open(path, "a") as file:
        file.write("ran\n")
