"""A network that can fail: a loopback TCP proxy in a thread of its own, to be cut, stalled and resumed."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Literal, Self, TypeVar, cast

T = TypeVar("T")

Address = tuple[str, int] | str
Way = Literal["to the server", "to the client"]

_BOTH_WAYS: frozenset[Way] = frozenset({"to the server", "to the client"})

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Carries connections from `port` of 127.0.0.1 to `upstream`: a TCP address or a Unix socket's path."""

    def __init__(self, upstream: Address) -> None:
        self.port = 0
        self.stalled: frozenset[Way] = frozenset()
        self.refuses = False
        self.delay = 0.0
        self.sides: set[_Side] = set()
        self._upstream = upstream
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)

    def cut(self) -> None:
        """Reset every connection, and every new one until `resume`: a peer that is gone and says so."""
        self._on_loop(self._cut)

    def stall(self, *ways: Way) -> None:
        """Carry nothing and close nothing until `resume`, which delivers what was sent: a pulled cable.

        With `ways` only there: "to the client" is a server that hears and is not heard.
        """
        self._on_loop(lambda: self._stall(frozenset(ways) or _BOTH_WAYS))

    def slow_down(self, seconds: float) -> None:
        """Everything takes so much longer on its way, until `resume`."""
        self._on_loop(lambda: setattr(self, "delay", seconds))

    def abandon(self) -> None:
        """Reset every client, and let the server believe that it is still there: a router that has forgotten."""
        self._on_loop(lambda: self._part(is_near=True))

    def orphan(self) -> None:
        """The other way round: the server sees its clients gone, and they believe in it."""
        self._on_loop(lambda: self._part(is_near=False))

    def resume(self) -> None:
        """Carry again and at once, and take new connections again."""
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

    def deliver(self, side: _Side, data: bytes) -> None:
        """What has come for this side, in the order of its coming, after the delay that there is now."""
        now = self._loop.time()
        side.due = max(side.due, now + self.delay)
        if side.due <= now:
            side.transport.write(data)
        else:
            self._loop.call_at(side.due, side.transport.write, data)

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

    def _stall(self, ways: frozenset[Way]) -> None:
        self.stalled |= ways
        for side in self.sides:
            if side.way in ways:
                side.transport.pause_reading()

    def _resume(self) -> None:
        self.refuses, self.stalled, self.delay = False, frozenset(), 0.0
        for side in list(self.sides):
            if side.is_near and side.is_abandoned:
                # A client that still believes in a server that has seen it go.
                side.reset()
            side.let_flow()

    def _part(self, *, is_near: bool) -> None:
        for side in [side for side in self.sides if side.is_near is is_near]:
            if side.peer is not None:
                side.peer.peer, side.peer.is_abandoned = None, True
                side.peer = None
            side.reset()

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
        self.is_abandoned = False
        self.way: Way = "to the server" if is_near else "to the client"
        self.due = 0.0
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
        if self.peer is not None and self.way not in self._proxy.stalled:
            self._pass_on()
            self.transport.resume_reading()

    def reset(self) -> None:
        """Close at once, with RST where the socket knows it."""
        raw: socket.socket = self.transport.get_extra_info("socket")
        if raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    def _pass_on(self) -> None:
        if self.peer is not None and self._held and self.way not in self._proxy.stalled:
            self._proxy.deliver(self.peer, bytes(self._held))
            self._held.clear()
