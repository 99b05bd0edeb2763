"""Connections for one run: where they may lead, whom they trust, and that nothing is sent twice.

It must not know what a redirect is, nor what is made of an answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from pgcron_runner.errors import InvalidInput
from pgcron_runner.execution.http.addresses import why_refused
from pgcron_runner.execution.http.definition import Definition
from pgcron_runner.execution.http.lookups import Lookups
from pgcron_runner.execution.http.report import Phase, Report

_NO_LIMITS = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
# The next address gets its chance after so many seconds, while the first is still being tried (RFC 8305).
_HAPPY_EYEBALLS_DELAY = 0.25
_LONGEST_LINE, _MOST_HEADERS = 32_768, 256
# A peer that has vanished is noticed within two minutes, and routers remember a connection that waits for long.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 6}

Trust = bool | ssl.SSLContext


class RefusedAddress(OSError):
    """Nothing is sent there; the message is why."""


class NotSentAgain(Exception):
    """The connection broke, for this reason, when the request may have been sent."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@asynccontextmanager
async def open_session(lookups: Lookups, report: Report) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for one run alone: no cookies, no settings of the environment, no connection used twice.

    It tells the report what it is about, and leaves nothing behind, whatever state it is in at its end. Requests are
    made with `trace_request_ctx=report`.
    """
    sockets: list[socket.socket] = []
    connector = aiohttp.TCPConnector(
        resolver=_Resolver(lookups, report),
        socket_factory=partial(_make_socket, sockets, report),
        happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY,
        use_dns_cache=False,
        force_close=True,
        limit=0,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=_NO_LIMITS,
        auto_decompress=False,
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
        max_headers=_MOST_HEADERS,
        trace_configs=[_TRACE],
        middlewares=(_send_once,),
    )
    try:
        yield session
    finally:
        # Closing alone would wait until all is sent that was written, and a server may never read it.
        for used in sockets:
            with suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
        await session.close()


async def trust_of(definition: Definition) -> Trust:
    """Whom a job trusts: the system's authorities, those of its `ca_file` alone, or anybody. Raises InvalidInput."""
    if definition.ca_file is None:
        return definition.verify
    try:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=definition.ca_file)
    except OSError as error:
        problem = f"cannot be used ({error.strerror or error})"
        raise InvalidInput("args.ca_file", definition.ca_file, problem) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _make_socket(sockets: list[socket.socket], report: Report, where: Any) -> socket.socket:
    """A socket for an address. What is checked is what is connected to: no name is looked up between the two."""
    family, kind, protocol, _, address = where
    if (reason := why_refused(address[0])) is not None:
        report.refused = reason
        raise RefusedAddress(reason)
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    sockets.append(made)
    return made


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps aiohttp from sending a GET or PUT again when its connection breaks: attempts are the job's to count."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise NotSentAgain(error) from error


def _trace() -> aiohttp.TraceConfig:
    async def connected(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.phase = Phase.ANSWER

    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(connected)
    return config


# One for all, since it is dear to make: which report it is about is said with each request.
_TRACE = _trace()


class _Resolver(AbstractResolver):
    def __init__(self, lookups: Lookups, report: Report) -> None:
        self._lookups = lookups
        self._report = report

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self._report.phase = Phase.NAME
        addresses = await self._lookups.find(host)
        self._report.phase = Phase.CONNECTING
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is kept."""
