"""Sends a run's request and follows its redirects to the last answer. It sets no limit of time: a stop cancels it."""

from __future__ import annotations

import re
from contextlib import closing
from io import BytesIO

import aiohttp
from yarl import URL

from pgcron_runner.execution.http.body import read_body
from pgcron_runner.execution.http.connections import NotSentAgain, Trust, open_session, trust_of
from pgcron_runner.execution.http.definition import Definition
from pgcron_runner.execution.http.failures import describe
from pgcron_runner.execution.http.lookups import Lookups
from pgcron_runner.execution.http.report import Report
from pgcron_runner.execution.http.request import Request
from pgcron_runner.execution.http.urls import BadUrl, Url, follow_url, shown

_REDIRECTS = {301, 302, 303, 307, 308}
# As RFC 3986 has them. These are sent as they were written, since some hosts sign the very text.
_LEGAL = re.compile(r"[A-Za-z0-9:/?#\[\]@!$&'()*+,;=._~%-]+", re.ASCII)


class Client:
    """All requests of one run. How it went is in the report; only what comes before the first request is raised."""

    def __init__(self, definition: Definition, report: Report, lookups: Lookups) -> None:
        self._definition = definition
        self._report = report
        self._lookups = lookups
        self._trust: Trust = True

    async def run(self, request: Request, *, proxy: str | None, most_bytes: int) -> None:
        """From the first connection to the end of the last answer's body, or its first `most_bytes` bytes.

        Raises InvalidInput where the job's authorities cannot be read.
        """
        self._trust = await trust_of(self._definition)
        async with open_session(self._lookups, self._report) as session:
            following: Request | None = request
            redirects = 0
            while following is not None:
                request = following
                response = await self._send(session, request, proxy, is_first=redirects == 0)
                if response is None:
                    return
                with closing(response):
                    location = self._location(response)
                    if location is None:
                        await read_body(response, request.url, self._report, most_bytes)
                        return
                following = self._redirected(request, response.status, location, redirects)
                redirects += 1

    async def _send(
        self, session: aiohttp.ClientSession, request: Request, proxy: str | None, *, is_first: bool
    ) -> aiohttp.ClientResponse | None:
        report = self._report
        report.asks(request.url.text)
        try:
            response = await session.request(
                request.method,
                URL(request.url.text, encoded=_LEGAL.fullmatch(request.url.text) is not None),
                headers=[(header.name, header.value) for header in request.headers],
                data=None if request.body is None else BytesIO(request.body),
                proxy=proxy,
                ssl=self._trust,
                allow_redirects=False,
                trace_request_ctx=report,
            )
        except NotSentAgain as error:
            report.error = describe(error.reason, request.url)
        except aiohttp.ClientConnectorError as error:
            report.error = self._not_connected(error, request.url, is_first=is_first)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            report.error = describe(error, request.url)
        else:
            report.answered(response.status, response.headers)
            return response
        return None

    def _not_connected(self, error: aiohttp.ClientConnectorError, url: Url, *, is_first: bool) -> str:
        if self._report.refused is None:
            return describe(error, url)
        words = f"{shown(url.text)} is refused: {self._report.refused}"
        return f"launch failed: {words}" if is_first else f"the redirect to {words}"

    def _location(self, response: aiohttp.ClientResponse) -> str | None:
        """Where the answer leads; None where it is the last one."""
        location: str | None = response.headers.get("Location")
        if not location or response.status not in _REDIRECTS or self._definition.expect.names(response.status):
            return None
        if self._definition.follow == 0:
            self._report.remarks.append("the redirect was not followed: args.follow is 0")
            return None
        return location

    def _redirected(self, request: Request, status: int, location: str, redirects: int) -> Request | None:
        """The next request; None where the report says why there is none."""
        if redirects == self._definition.follow:
            self._report.error = (
                f"more than {redirects} redirects (args.follow), the last from {shown(request.url.text)} "
                f"to {shown(location)}"
            )
            return None
        try:
            url = follow_url(request.url, location)
        except BadUrl as error:
            self._report.error = f"the redirect to {shown(location)} is not followed: it {error}"
            return None
        following = request.redirected(status, url)
        if dropped := [h.name for h in request.headers if h.private and h not in following.headers]:
            self._report.remarks.append(f"{', '.join(dropped)} not sent on to {url.scheme}://{url.place}")
        return following
