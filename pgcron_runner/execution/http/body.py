"""Reads the body of an answer, up to a cap. It must not know what the answer is to be."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from pgcron_runner.execution.http.failures import describe_body
from pgcron_runner.execution.http.report import Phase, Report
from pgcron_runner.execution.http.urls import Url

_FIRST_WITH_A_BODY = 200


async def read_body(response: aiohttp.ClientResponse, url: Url, report: Report, most_bytes: int) -> None:
    """Gives the body to the report, piece by piece, and says there how it ended; at the cap no more is read."""
    report.phase = Phase.BODY
    if response.status < _FIRST_WITH_A_BODY:
        # What follows is another protocol.
        report.whole = True
        return
    if encoding := response.headers.get("Content-Encoding"):
        report.remarks.append(f"the body came with the encoding {encoding}, unasked for, and is kept so")
    end = _End(response)
    try:
        while not report.cut and (data := await response.content.readany()):
            report.take(data, most_bytes)
    except (aiohttp.ClientError, OSError, HttpProcessingError, RuntimeError) as error:
        report.broken = describe_body(end.flaw or error, url)
        return
    if report.cut:
        return
    report.whole = end.flaw is None
    report.broken = None if end.flaw is None else describe_body(end.flaw, url)


class _End:
    """Notices that a connection is over while its body is not, and ends the body.

    aiohttp closes a connection on which it finds a broken chunk, but tells it to nobody who waits for more.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.flaw: BaseException | None = None
        self._content = response.content
        connection = response.connection
        self._protocol = None if connection is None else connection.protocol
        if self._protocol is not None and (closed := self._protocol.closed) is not None:
            closed.add_done_callback(self._closed)

    def _closed(self, closed: asyncio.Future[None]) -> None:
        lost = None if closed.cancelled() else closed.exception()
        if self._content.is_eof() or self._content.exception() is not None:
            return
        assert self._protocol is not None
        self.flaw = self._protocol.exception() or lost or ConnectionError("the connection was closed")
        self._content.feed_eof()
