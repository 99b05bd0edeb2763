"""One sender process and the pipes to and from it, as the worker sees it. It knows no channel."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

from pgcron_runner.model import Delivery
from pgcron_runner.notify.request import Request, decode_delivery

# What programs expect, and how to get out; nothing that could hold a secret of the worker's.
_PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "no_proxy",
)  # fmt: skip
_MOST_LAST_WORDS = 2_000
_PATIENCE = 1.0


class SenderEnded(Exception):
    """The process has ended, or answers nonsense. `last_words`: the end of what it has printed, secrets included."""

    def __init__(self, last_words: str) -> None:
        super().__init__()
        self.last_words = last_words


class SenderProcess:
    """Serves one message at a time; it ends by itself when the worker is gone, or when a message takes too long."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last_words = b""
        self._listening = asyncio.create_task(self._listen(), name="words of a sender")

    @classmethod
    async def start(cls, environ: Mapping[str, str]) -> SenderProcess:
        """A new process. Messages and targets go through its standard input, never through arguments or environment."""
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "pgcron_runner.notify.sender",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={name: environ[name] for name in _PASSED_ON if name in environ} | {"PYTHONPATH": paths},
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, request: Request) -> Delivery:
        """What became of one message. Raises SenderEnded where nobody knows."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(request.encode())
            await stdin.drain()
            length = int.from_bytes(await stdout.readexactly(4), "big")
            return decode_delivery(await stdout.readexactly(length))
        except (OSError, EOFError, ValueError):
            raise SenderEnded(await self.end()) from None

    async def end(self) -> str:
        """Kills it, and what it has started, if that is needed; waits; and returns its last words."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        # Somebody else may hold its pipe, if it has let others loose.
        await asyncio.wait([self._listening], timeout=_PATIENCE)
        self._listening.cancel()
        return self._last_words.decode("utf-8", "replace").strip()

    async def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while words := await stderr.read(_MOST_LAST_WORDS):
            self._last_words = (self._last_words + words)[-_MOST_LAST_WORDS:]
