"""The server that HTTP jobs call: it writes down each request as it begins and ends."""

from __future__ import annotations

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.faults.programme.namespaces import inside

PORT = 5580


class Peer:
    """On 127.0.0.1, and in the servers' own namespace on all of its addresses."""

    def __init__(self, truth: Path, namespace: str | None) -> None:
        fd = os.open(truth, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say("begin")
                time.sleep(0.3)
                self._say("end")
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _say(self, word: str) -> None:
                run, job = self.headers["X-Pgcron-Run-Id"], self.headers["X-Pgcron-Job"]
                now = time.clock_gettime(time.CLOCK_BOOTTIME)
                os.write(fd, f"{word} {run} {now:.6f} 0 {job}\n".encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parent's name for it
                pass

        with inside(namespace):
            self._server = _Quiet(("0.0.0.0" if namespace else "127.0.0.1", PORT if namespace else 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="peer", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed in the middle are the point of it."""
