"""Local services that alerts are sent to: HTTP that answers as a test wants, and SMTP that keeps the mail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


@dataclass(frozen=True)
class Posted:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Hook:
    """An HTTP server. `answer` is called with the number of the request and the handler; by default it says 200."""

    port: int = 0
    posted: list[Posted] = field(default_factory=list)
    answer: Callable[[int, BaseHTTPRequestHandler], None] | None = None
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hang(self, number: int, handler: BaseHTTPRequestHandler) -> None:
        """Never answers, until the test is over."""
        self.released.wait(60)

    def drip(self, number: int, handler: BaseHTTPRequestHandler) -> None:
        """A byte a second, until the test is over."""
        while not self.released.wait(1):
            handler.wfile.write(b"H")


def answering(status: int, words: bytes = b"words", **headers: str) -> Callable[[int, BaseHTTPRequestHandler], None]:
    """Answers all with one status."""

    def answer(number: int, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(words)))
        handler.end_headers()
        handler.wfile.write(words)

    return answer


@contextmanager
def hook() -> Iterator[Hook]:
    """A server that takes everything."""
    made = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.posted.append(Posted(self.path, dict(self.headers), body))
            (made.answer or answering(200))(len(made.posted), self)

        do_PUT = do_GET = do_POST  # noqa: N815 # names that the base class asks for

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that is killed leaves in the middle."""

    server = Server(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mailbox:
    """What came by mail: the raw text of each message."""

    port: int = 0
    mails: list[str] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 # aiosmtpd's name
        self.mails.append(envelope.content.decode())
        return "250 OK"


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """An SMTP server."""
    made = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        made.port = free.getsockname()[1]
    controller = Controller(made, hostname="127.0.0.1", port=made.port)
    controller.start()
    try:
        yield made
    finally:
        controller.stop()
