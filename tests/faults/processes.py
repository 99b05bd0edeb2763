"""Looks at the processes of this machine through /proc, without asking the program under test."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process; with its start, since numbers are used again."""

    pid: int
    started: int
    command: str

    @property
    def is_alive(self) -> bool:
        return any(process == self for process in _read(self.pid))


def descendants(pid: int) -> list[Process]:
    """All children of a process and theirs, parents first."""
    children: dict[int, list[int]] = defaultdict(list)
    for number in _numbers():
        with suppress(OSError):
            children[_parent(number)].append(number)
    found = list(children[pid])
    for number in found:
        found += children[number]
    return [process for number in found for process in _read(number)]


def marked(text: str) -> list[Process]:
    """Processes with this text among their arguments; a zombie has none."""
    return [process for pid in _numbers() for process in _read(pid) if text in process.command]


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _read(pid: int) -> Iterator[Process]:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        stat = _stat(pid)
        if stat[0] not in ("Z", "X"):
            yield Process(pid, int(stat[19]), command)


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may itself hold blanks and brackets: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
