"""What worker and guard say to each other, and the guard's end of the line.

A frame is a length, then a word and its fields, apart by NUL, which no path, argument or variable can hold.
"""

from __future__ import annotations

import array
import os
import socket
from collections import deque

_FD_SPACE = socket.CMSG_SPACE(64)
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def pack(*fields: bytes | int) -> bytes:
    """One frame; no field may hold a NUL byte."""
    body = b"\0".join(b"%d" % field if isinstance(field, int) else field for field in fields)
    return len(body).to_bytes(4, "big") + body


class Frames:
    """Cuts a stream of bytes back into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The fields of each frame that `data` completes."""
        self._buffer += data
        frames, start = [], 0
        while len(self._buffer) >= start + 4:
            end = start + 4 + int.from_bytes(self._buffer[start : start + 4], "big")
            if end > len(self._buffer):
                break
            frames.append(bytes(self._buffer[start + 4 : end]).split(b"\0"))
            start = end
        del self._buffer[:start]
        return frames


class Channel:
    """The guard's end. A worker that is stopped reads nothing: writing to it must never hold the guard up."""

    def __init__(self, worker: socket.socket) -> None:
        worker.setblocking(False)
        worker.set_inheritable(False)
        self.socket = worker
        self.connected = True
        self._frames = Frames()
        self._fds: deque[int] = deque()
        self._outgoing = bytearray()

    @property
    def has_to_write(self) -> bool:
        """Whether something waits until the worker reads again."""
        return bool(self._outgoing)

    def tell(self, *fields: bytes | int) -> None:
        """Queue a frame for the worker."""
        self._outgoing += pack(*fields)

    def flush(self) -> None:
        """Send what the worker takes now."""
        try:
            while self._outgoing:
                del self._outgoing[: self.socket.send(self._outgoing)]
        except BlockingIOError:
            return
        except ConnectionError:
            self.connected = False

    def receive(self) -> list[list[bytes]]:
        """The frames that have come; after the end of the stream `connected` is false."""
        try:
            data, ancillary, flags, _ = self.socket.recvmsg(65536, _FD_SPACE, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return []
        except ConnectionError:
            data, ancillary, flags = b"", [], 0
        self.connected = bool(data)
        for _, _, fds in ancillary:
            self._fds.extend(array.array("i", fds))
        if flags & socket.MSG_CTRUNC:
            # Which launch a pipe belongs to is known by their order only.
            raise RuntimeError("a pipe was lost on its way to the guard: all commands are killed")
        return self._frames.feed(data)

    def take_fd(self) -> int:
        """The file that came with the oldest launch that has not taken its own yet."""
        fd = self._fds.popleft()
        os.set_inheritable(fd, False)
        return fd
