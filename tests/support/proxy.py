"""A network that can fail: a loopback TCP proxy in a thread of its own, to be cut, stalled and resumed."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar, cast

T = TypeVar("T")

Address = tuple[str, int] | str

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Carries connections from `port` of 127.0.0.1 to `upstream`: a TCP address or a Unix socket's path."""

    def __init__(self, upstream: Address) -> None:
        self.port = 0
        self.stalled = False
        self.refuses = False
        self.sides: set[_Side] = set()
        self._upstream = upstream
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)

    def cut(self) -> None:
        """Reset every connection, and every new one until `resume`: a peer that is gone and says so."""
        self._on_loop(self._cut)

    def stall(self) -> None:
        """Carry nothing and close nothing until `resume`, which delivers what was sent: a pulled cable."""
        self._on_loop(self._stall)

    def resume(self) -> None:
        """Carry again, and take new connections again."""
        self._on_loop(self._resume)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._on_loop(lambda: sum(side.is_near for side in self.sides))

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on_loop(self._ended.set)
        self._thread.join()

    async def connect_upstream(self, near: _Side) -> None:
        """Called once for each client: bring it together with a connection of its own to the server."""
        loop = asyncio.get_running_loop()
        try:
            if isinstance(self._upstream, str):
                _, far = await loop.create_unix_connection(lambda: _Side(self), self._upstream)
            else:
                _, far = await loop.create_connection(lambda: _Side(self), *self._upstream)
        except OSError:
            near.reset()
            return
        if near.transport.is_closing():
            far.reset()
            return
        near.peer, far.peer = far, near
        for side in (near, far):
            side.let_flow()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        listener = await self._loop.create_server(lambda: _Side(self, is_near=True), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        listener.close()
        # Transports close in the next turn of the loop; and a client may just have been accepted.
        for _ in range(10):
            self._cut()
            await asyncio.sleep(0)

    def _cut(self) -> None:
        self.refuses = True
        for side in list(self.sides):
            side.reset()

    def _stall(self) -> None:
        self.stalled = True
        for side in self.sides:
            side.transport.pause_reading()

    def _resume(self) -> None:
        self.refuses = self.stalled = False
        for side in self.sides:
            side.let_flow()

    def _on_loop(self, action: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(action()))
        return done.result(10)


class _Side(asyncio.Protocol):
    """One of the two sockets of a carried connection; what it reads, its peer writes."""

    transport: asyncio.Transport

    def __init__(self, proxy: Proxy, *, is_near: bool = False) -> None:
        self.peer: _Side | None = None
        self.is_near = is_near
        self._proxy = proxy
        self._connecting: asyncio.Task[None] | None = None
        # Some versions of asyncio read once more after pause_reading().
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()
        self._proxy.sides.add(self)
        if self._proxy.refuses:
            self.reset()
        elif self.is_near:
            self._connecting = asyncio.ensure_future(self._proxy.connect_upstream(self))

    def data_received(self, data: bytes) -> None:
        self._held += data
        self._pass_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.sides.discard(self)
        if self.peer is not None:
            self.peer.transport.close()

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.let_flow()

    def let_flow(self) -> None:
        if self.peer is not None and not self._proxy.stalled:
            self._pass_on()
            self.transport.resume_reading()

    def reset(self) -> None:
        """Close at once, with RST where the socket knows it."""
        raw: socket.socket = self.transport.get_extra_info("socket")
        if raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    def _pass_on(self) -> None:
        if self.peer is not None and not self._proxy.stalled:
            self.peer.transport.write(bytes(self._held))
            self._held.clear()
