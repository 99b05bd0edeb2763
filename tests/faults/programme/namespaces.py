"""Networks of our own: one namespace for the servers, one for each host, and a cable between each host and the servers.

Needs root. A cut is silent: the other end's hardware address is made wrong, so that nobody takes what arrives.
Nothing outside of these namespaces is changed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_PREFIX = "pgcronfaults"
_CLONE_NEWNET = 0x40000000
_NOBODY = "02:00:00:00:de:ad"

Direction = Literal["to the server", "to the host", "both ways"]


def are_possible() -> bool:
    """Whether this machine lets us make namespaces and cables."""
    if os.geteuid() != 0:
        return False
    name = f"{_PREFIX}-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "near", "type", "veth", "peer", "name", "far")
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        with suppress(OSError, subprocess.CalledProcessError):
            _ip("netns", "del", name)
    return True


@dataclass(frozen=True, slots=True)
class Cable:
    """The cable of one host. The server is at `server`, the host at `host`."""

    servers: str
    namespace: str
    number: int

    @property
    def server(self) -> str:
        return f"10.97.{self.number}.1"

    @property
    def host(self) -> str:
        return f"10.97.{self.number}.2"

    def cut(self, direction: Direction) -> None:
        """Nothing arrives any more on that side, and nobody is told."""
        if direction != "to the host":
            self._neighbour(self.namespace, "eth0", self.server, _NOBODY)
        if direction != "to the server":
            self._neighbour(self.servers, f"host{self.number}", self.host, _NOBODY)

    def pull(self) -> None:
        """Both ends see that the cable is out."""
        _ip("-n", self.namespace, "link", "set", "eth0", "down")

    def heal(self) -> None:
        """As if nothing had been."""
        _ip("-n", self.namespace, "link", "set", "eth0", "up")
        self._neighbour(self.namespace, "eth0", self.server, _address(self.servers, f"host{self.number}"))
        self._neighbour(self.servers, f"host{self.number}", self.host, _address(self.namespace, "eth0"))

    def _neighbour(self, namespace: str, device: str, address: str, hardware: str) -> None:
        command = ("neigh", "replace", address, "lladdr", hardware, "dev", device, "nud", "permanent")
        _ip("-n", namespace, *command)


class Network:
    """All namespaces of one run of the programme."""

    def __init__(self) -> None:
        self.servers = f"{_PREFIX}-{os.getpid()}-s"
        self._made: list[str] = []

    def __enter__(self) -> Network:
        with ExitStack() as undo:
            undo.callback(self._remove)
            _remove_those_of_the_dead()
            self._add(self.servers)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def add_host(self, number: int) -> Cable:
        """A namespace for a host, with its cable plugged in."""
        cable = Cable(self.servers, f"{_PREFIX}-{os.getpid()}-{number}", number)
        self._add(cable.namespace)
        near = f"host{number}"
        _ip("-n", self.servers, "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", cable.namespace)
        for namespace, device, address in ((self.servers, near, cable.server), (cable.namespace, "eth0", cable.host)):
            _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
            _ip("-n", namespace, "link", "set", device, "up")
        cable.heal()
        return cable

    def _add(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        self._made.append(namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for namespace in self._made:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", namespace)
        self._made.clear()


@contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """This thread, and what it starts, is in that namespace. None: nothing changes."""
    if namespace is None:
        yield
        return
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot enter a network namespace: {os.strerror(code)}")


def _remove_those_of_the_dead() -> None:
    """What a run left behind that was killed."""
    for path in Path("/run/netns").glob(f"{_PREFIX}-*"):
        if not Path(f"/proc/{path.name.split('-')[1]}").exists():
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", path.name)


def _address(namespace: str, device: str) -> str:
    return _ip("netns", "exec", namespace, "cat", f"/sys/class/net/{device}/address").strip()


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout
