"""Whom an http job believes, and the way through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path

import pytest
import trustme

from tests.execution.http_runs import ENVIRON, TOKEN, Names, fails, run, succeeds
from tests.execution.tasks import text_of
from tests.support.http_server import Connection, HttpServer, redirect, reply, serving

AUTHORITY = trustme.CA()


def certificate(*names: str) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate for these names."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def ca_file(tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return str(path)


async def test_a_private_authority_is_trusted_where_the_job_names_it(ca_file: str) -> None:
    names = Names(api_test=["127.0.0.1"])
    async with serving(reply(body=b"safe"), tls=certificate("127.0.0.1", "api.test")) as server:
        assert text_of(await succeeds(server.url(), ca_file=ca_file)) == "safe"
        assert text_of(await succeeds(server.url(host="api.test"), names=names, ca_file=ca_file)) == "safe"


async def test_an_authority_that_nobody_knows_is_not_trusted(ca_file: str) -> None:
    async with serving(reply(), tls=certificate("127.0.0.1")) as server:
        error = await fails(server.url())
        assert error.startswith(f"the certificate of 127.0.0.1:{server.port} is not trusted: ")
        assert "args.ca_file" in error
        assert server.requests == []
        await succeeds(server.url(), verify=False)


async def test_a_certificate_for_another_name_is_told_as_such(ca_file: str) -> None:
    names = Names(api_test=["127.0.0.1"])
    async with serving(reply(), tls=certificate("other.test")) as server:
        error = await fails(server.url(host="api.test"), names=names, ca_file=ca_file)
        assert error == (
            f"the certificate of api.test:{server.port} is for another name: "
            "Hostname mismatch, certificate is not valid for 'api.test'"
        )
        # An address is not a name: it has a sentence of its own in the library.
        assert "is for another name" in await fails(server.url(), ca_file=ca_file)
        assert server.requests == []
        await succeeds(server.url(), verify=False)


async def test_a_server_that_speaks_no_tls_is_told_as_such() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        error = await fails(f"https://127.0.0.1:{port}/")
    assert error.startswith(f"no TLS with 127.0.0.1:{port}: ")


@pytest.mark.parametrize("content", [None, "rubbish"])
async def test_an_authority_that_cannot_be_read_launches_nothing(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    async with serving(reply()) as server:
        error = await fails(server.url(), ca_file=str(path))
    assert error.startswith(f"launch failed: args.ca_file: '{path}' cannot be used (")
    assert server.requests == []


async def test_a_body_over_tls_is_cut_and_its_connection_closed_like_any_other(ca_file: str) -> None:
    async def flood(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await connection.send_for_ever(b"x" * 65_536)

    async with serving(flood, tls=certificate("127.0.0.1")) as server:
        outcome = await succeeds(server.url(), ca_file=ca_file)
        assert outcome.reason == "the body was cut after 1,048,576 bytes"
        await server.all_closed()


# ------------------------------------------------------------------------------------------------- proxies


async def test_no_proxy_is_used_unless_the_job_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(reply(body=b"proxy")) as proxy, serving(reply(body=b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        assert text_of(await succeeds(server.url())) == "direct"
        assert text_of(await succeeds(server.url("/x?y"), proxy=proxy.url())) == "proxy"
    assert [request.target for request in proxy.requests] == [server.url("/x?y")]


async def test_the_user_of_a_proxy_comes_from_the_environment_and_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def echo(connection: Connection) -> None:
        await connection.send(reply(body=f"{connection.request.headers} pr0xypw".encode()))

    async with serving(echo) as proxy:
        monkeypatch.setitem(ENVIRON, "PROXY", f"http://user:pr0xypw@127.0.0.1:{proxy.port}")
        outcome = await succeeds("http://far.test/", proxy="env:PROXY")
    sent = proxy.requests[0].headers["proxy-authorization"]
    assert sent == f"Basic {b64encode(b'user:pr0xypw').decode()}"
    assert sent.removeprefix("Basic ") not in text_of(outcome)
    assert "pr0xypw" not in text_of(outcome)


@pytest.mark.parametrize(
    ("variable", "words"), [("API_TOKEN", "is no proxy's URL"), ("NOT_THERE", "environment has not")]
)
async def test_a_variable_that_holds_no_proxy_is_not_shown(variable: str, words: str) -> None:
    error = await fails("http://far.test/", proxy=f"env:{variable}")
    assert error.startswith(f"launch failed: args.proxy: 'proxy' asks for {variable}, which ")
    assert words in error
    assert TOKEN not in error


async def tunnel(connection: Connection) -> None:
    """A proxy that does as it is asked by CONNECT."""
    assert connection.request.method == "CONNECT"
    host, _, port = connection.request.target.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await connection.send(b"HTTP/1.1 200 Connected\r\n\r\n")

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
        target.close()

    try:
        await asyncio.gather(pump(connection.reader, writer), pump(reader, connection.writer))
    finally:
        writer.close()


async def test_tls_goes_through_a_proxy_unseen(ca_file: str) -> None:
    async with (
        serving(reply(body=b"safe"), tls=certificate("127.0.0.1")) as server,
        serving(tunnel) as proxy,
    ):
        outcome = await succeeds(
            server.url(), proxy=proxy.url(), ca_file=ca_file, headers={"Authorization": "env:API_TOKEN"}
        )
        assert text_of(outcome) == "safe"
        assert "authorization" not in proxy.requests[0].headers
        error = await fails(server.url(), proxy=proxy.url())
        assert error.startswith(f"the certificate of 127.0.0.1:{server.port} is not trusted")


async def test_a_proxy_that_does_not_want_to_is_told_as_such() -> None:
    async with serving(reply("407 Proxy Authentication Required")) as proxy:
        error = await fails("https://far.test/", proxy=proxy.url())
    assert error == "the proxy refused to connect to far.test:443: status 407"
    error = await fails("http://far.test/", proxy="http://127.0.0.1:1/")
    assert error.startswith("the proxy 127.0.0.1:1 cannot be reached: Connect")


async def test_no_proxy_is_asked_for_an_address_that_is_refused() -> None:
    proxy: HttpServer
    async with serving(redirect("http://169.254.169.254/")) as proxy:
        assert "never called" in await fails("http://169.254.169.254/", proxy=proxy.url())
        assert "not followed" in await fails("http://far.test/", proxy=proxy.url())
        assert len(proxy.requests) == 1
        names = Names(proxy_test=["169.254.1.1"])
        assert "is refused: 169.254.1.1" in await fails("http://far.test/", proxy="http://proxy.test/", names=names)


async def test_a_user_of_the_environment_s_netrc_is_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password pw\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with serving(reply()) as server:
        await run(server.url())
    assert "authorization" not in server.requests[0].headers
