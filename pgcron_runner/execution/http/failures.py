"""Why a request got no answer, or not all of it, in words. All it knows is what aiohttp raises."""

from __future__ import annotations

import socket
import ssl

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientHttpProxyError,
    ClientPayloadError,
    ClientProxyConnectionError,
    ClientResponseError,
    ClientSSLError,
    ServerDisconnectedError,
)
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from pgcron_runner.execution.http.urls import Url

_MAY_HAVE_ACTED = "it may have acted on the request"
# OpenSSL's codes for a host, a mail and an IP address that the certificate is not for.
_OTHER_NAME = {62, 63, 64}
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None)}


def describe(error: Exception, url: Url) -> str:
    """One sentence for what was raised by a request to `url`, before its answer had begun."""
    match error:
        case ClientConnectorDNSError():
            return _name(error)
        case ClientConnectorCertificateError():
            return _certificate(error)
        case ClientSSLError():
            return f"no TLS with {_place(error)}: {_reason(error.os_error)}"
        case ClientProxyConnectionError():
            return f"the proxy {_place(error)} cannot be reached: {_cause(error.os_error)}"
        case ClientConnectorError(os_error=ConnectionRefusedError()):
            return f"connection refused by {_place(error)}"
        case ClientConnectorError():
            return f"no connection to {_place(error)}: {_cause(error.os_error)}"
        case ClientHttpProxyError():
            return f"the proxy refused to connect to {url.place}: status {error.status}"
        case ServerDisconnectedError():
            return f"{url.place} closed the connection without an answer; {_MAY_HAVE_ACTED}"
        case ClientResponseError():
            return f"{url.place} gave a malformed answer ({_flaw(error)}); {_MAY_HAVE_ACTED}"
        case OSError():
            return f"the connection to {url.place} broke before an answer came: {_cause(error)}; {_MAY_HAVE_ACTED}"
    return f"the request to {url.place} failed: {_one_line(str(error)) or type(error).__name__}"


def describe_body(error: BaseException, url: Url) -> str:
    """The same for what was raised while the body of the answer was read."""
    cause = error.__cause__ if isinstance(error, ClientPayloadError) and error.__cause__ else error
    words = cause.message if isinstance(cause, HttpProcessingError) else _cause(cause)
    return f"the body of the answer of {url.place} broke off or is malformed: {_one_line(words).rstrip('.')}"


def _name(error: ClientConnectorDNSError) -> str:
    found = error.os_error
    if isinstance(found, socket.gaierror) and found.errno in _NO_SUCH_NAME:
        return f"name not found: {error.host} ({found.strerror})"
    return f"the name {error.host} could not be looked up: {found.strerror or found}"


def _certificate(error: ClientConnectorCertificateError) -> str:
    found = error.certificate_error
    if not isinstance(found, ssl.SSLCertVerificationError):
        return f"the certificate of {_place(error)} is not trusted: {found}"
    words = found.verify_message.rstrip(".")
    if found.verify_code in _OTHER_NAME:
        return f"the certificate of {_place(error)} is for another name: {words}"
    return f"the certificate of {_place(error)} is not trusted: {words} (a private CA goes into args.ca_file)"


def _flaw(error: ClientResponseError) -> str:
    processing = error.__cause__
    if processing is not None and isinstance(processing.__cause__, LineTooLong):
        return "a header is too large"
    return _one_line(error.message)


def _place(error: ClientConnectorError) -> str:
    host = f"[{error.host}]" if ":" in error.host else error.host
    return f"{host}:{error.port}"


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return _cause(error)


def _cause(error: BaseException) -> str:
    """The system's own words, without the numbers."""
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
