"""The worker's end of the line to its guard. Sending never waits: a guard that is stopped must not stop the worker."""

from __future__ import annotations

import array
import asyncio
import errno
import os
import socket
from collections import deque

from pgcron_runner.execution.guard import wire

_READ_SIZE = 65536
# The channel is full, or too many files are on their way: the guard will take them.
_SEND_LATER = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)


class Mailbox:
    """Frames to the guard, some with a file, and frames from it; before there is a loop they are kept or sent."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.socket = channel
        self._frames = wire.Frames()
        self._outgoing: deque[tuple[bytes, int | None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """What could not be sent at once is sent from this loop from now on."""
        self._loop = loop
        self._flush()

    def post(self, frame: bytes, fd: int | None = None) -> None:
        """Sends a frame as soon as it goes, and closes `fd` once it was sent along."""
        self._outgoing.append((frame, fd))
        if len(self._outgoing) == 1:
            self._flush()

    def collect(self) -> list[list[bytes]] | None:
        """The frames that have come; None once the guard has ended."""
        try:
            data = self.socket.recv(_READ_SIZE)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        return self._frames.feed(data) if data else None

    def shut(self) -> None:
        """Sends no more, and forgets what was not sent."""
        if self._loop is not None:
            self._loop.remove_writer(self.socket)
        for _, fd in self._outgoing:
            if fd is not None:
                os.close(fd)
        self._outgoing.clear()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                self._send_first()
        except OSError as error:
            if error.errno not in _SEND_LATER:
                self.shut()
            elif self._loop is not None:
                self._loop.add_writer(self.socket, self._flush)
                return
        if self._loop is not None:
            self._loop.remove_writer(self.socket)

    def _send_first(self) -> None:
        frame, fd = self._outgoing[0]
        # The file travels with the first byte.
        files = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        sent = self.socket.sendmsg([frame], files)
        if fd is not None:
            os.close(fd)
        if sent < len(frame):
            self._outgoing[0] = (frame[sent:], None)
        else:
            self._outgoing.popleft()
