"""An HTTP server on loopback that answers with the very bytes a test wants, broken ones too."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.waiting import eventually_async


@dataclass(frozen=True)
class Received:
    """One request, as it came; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Connection:
    """One connection, its request read. It is closed when the test's answer to it has ended."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = 0

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.sent += len(data)

    async def send_for_ever(self, piece: bytes, *, pause: float = 0.0) -> None:
        """The same piece again and again until the other side has had enough."""
        while True:
            await self.send(piece)
            await asyncio.sleep(pause)

    async def wait_closed(self) -> None:
        """Until the other side has closed it; what it still sends is thrown away."""
        while await self.reader.read(65_536):
            pass


Answer = Callable[[Connection], Awaitable[None]]


@dataclass
class HttpServer:
    """What it was asked, how many connections there were, and how many of them are still open."""

    answer: Answer
    scheme: str
    reads_bodies: bool = True
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    sent: int = 0
    opened: int = 0
    open: int = 0

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def all_closed(self) -> None:
        """Until the server sees that nobody is there any more."""

        async def none_open() -> bool:
            return self.open == 0

        await eventually_async(none_open, message="all connections are closed")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from its first byte to its end."""
        self.opened += 1
        self.open += 1
        connection = None
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                connection = Connection(await _read(reader, with_body=self.reads_bodies), reader, writer)
                self.requests.append(connection.request)
                await self.answer(connection)
        finally:
            self.sent += connection.sent if connection else 0
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving(
    answer: Answer | bytes,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    reads_bodies: bool = True,
) -> AsyncIterator[HttpServer]:
    """A server for the block that gives this answer, or these bytes; its connections are cut at the end."""
    server = HttpServer(
        answer if callable(answer) else lambda connection: connection.send(answer),
        "http" if tls is None else "https",
        reads_bodies,
    )
    going: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        going.add(task)
        task.add_done_callback(going.discard)

    listener = await asyncio.start_server(accept, host, port, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in going:
            task.cancel()
        if going:
            await asyncio.wait(going)


@contextmanager
def serving_in_thread(answer: Answer | bytes) -> Iterator[HttpServer]:
    """The same for tests that run no event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="http-server")
    thread.start()
    context = serving(answer)
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def reply(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    """A well-formed answer; in names of headers `_` stands for `-`."""
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    """An answer that leads elsewhere."""
    return reply(status, b"over there", Location=location)


async def _read(reader: asyncio.StreamReader, *, with_body: bool) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0")) if with_body else 0
    return Received(method, target, headers, await reader.readexactly(length))
