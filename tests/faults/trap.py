"""A line to Postgres that lets a session be opened and breaks at its first statement."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

_READY = b"Z\x00\x00\x00\x05I"


class Trap:
    """On a port of 127.0.0.1, before a server's Unix socket; breaks the first `times` sessions, then carries all.

    For a plain connection without a password: sslmode=disable gssencmode=disable.
    """

    def __init__(self, upstream: str, *, times: int) -> None:
        self._upstream = upstream
        self.left_over = times
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ended = False
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended:
            if select.select([self._listener], [], [], 0.05)[0]:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._carry, args=[client])
                self._threads.append(thread)
                thread.start()

    def _carry(self, client: socket.socket) -> None:
        with ExitStack() as closing, suppress(OSError):
            closing.enter_context(client)
            server = closing.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(self._upstream)
            is_open = False
            while not self._ended:
                for side in select.select([client, server], [], [], 0.05)[0]:
                    if not (data := side.recv(65536)) or (side is client and is_open and self._breaks()):
                        return
                    is_open = is_open or data.endswith(_READY)
                    (server if side is client else client).sendall(data)

    def _breaks(self) -> bool:
        self.left_over -= 1
        return self.left_over >= 0
