"""Which addresses are called, and that the address which was looked at is the one that is called."""

from __future__ import annotations

import socket

import pytest

from pgcron_runner.execution.http.addresses import why_refused
from tests.execution.http_runs import Names, fails, run, succeeds
from tests.execution.tasks import text_of
from tests.support.http_server import reply, serving


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("169.254.169.254", "link-local"),
        ("169.254.0.1", "link-local"),
        ("0.0.0.0", "no address of a host"),
        ("0.1.2.3", "no address of a host"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("100.100.100.200", "metadata"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("febf::1", "link-local"),
        ("ff02::1", "multicast"),
        ("::", "no address of a host"),
        ("fd00:ec2::254", "metadata"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:0.0.0.0", "no address of a host"),
        ("::ffff:0:a9fe:a9fe", "link-local"),
        ("::169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("2002:a9fe:a9fe::1", "link-local"),
    ],
)
def test_what_only_the_own_host_or_link_should_reach_is_refused(address: str, what: str) -> None:
    reason = why_refused(address)
    assert reason is not None
    assert what in reason


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "fd12::1", "::ffff:10.0.0.1", "93.184.216.34",
     "2606:2800:220:1::1", "100.64.0.1", "64:ff9b::5db8:d822", "169.253.255.255", "169.255.0.0", "fec0::1"],
)  # fmt: skip
def test_everything_else_may_be_called_private_networks_and_loopback_too(address: str) -> None:
    assert why_refused(address) is None


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "0.0.0.0", "[::]"]
)
async def test_a_refused_address_is_not_called(host: str) -> None:
    error = await fails(f"http://{host}/latest/")
    assert error.startswith(f"launch failed: command: 'http://{host}/latest/' leads to an address that is never called")


@pytest.mark.parametrize(
    ("host", "meant"),
    [
        ("2852039166", "169.254.169.254"),
        ("0xa9fea9fe", "169.254.169.254"),
        ("0251.0376.0251.0376", "169.254.169.254"),
        ("169.254.43518", "169.254.169.254"),
        ("127.1", "127.0.0.1"),
        ("0", "0.0.0.0"),
    ],
)
async def test_an_address_in_disguise_is_refused(host: str, meant: str) -> None:
    assert f"writes the address {meant} in an unusual way" in await fails(f"http://{host}/")


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0"])
async def test_a_name_that_leads_to_a_refused_address_is_not_called(address: str) -> None:
    names = Names(inner_test=[address])
    error = await fails("http://inner.test/", names=names)
    assert error.startswith("launch failed: http://inner.test/ is refused: ")
    names = Names(inner_test=[address, "169.254.0.1"])
    assert (await fails("http://inner.test/", names=names)).startswith("launch failed: http://inner.test/ is refused: ")


async def test_of_several_addresses_only_the_refused_are_left_out() -> None:
    async with serving(reply(body=b"fine")) as server:
        names = Names(mixed_test=["169.254.169.254", "127.0.0.1"])
        assert text_of(await succeeds(server.url(host="mixed.test"), names=names)) == "fine"
    # Nobody answers there: the reason is the connection, which was the only one tried.
    names = Names(alone_test=["127.0.0.1"])
    assert "connection refused" in await fails(server.url(host="alone.test"), names=names)


async def test_a_name_is_looked_up_once_so_that_it_cannot_change_its_mind() -> None:
    class Turncoat(Names):
        async def find(self, host: str) -> list[str]:
            await super().find(host)
            return ["127.0.0.1"] if len(self.asked) == 1 else ["169.254.169.254"]

    names = Turncoat(rebinding_test=["?"])
    async with serving(reply(body=b"fine")) as server:
        assert text_of(await succeeds(server.url(host="rebinding.test"), names=names)) == "fine"
        assert names.asked == ["rebinding.test"]
        assert "is refused: 169.254.169.254" in await fails(server.url(host="rebinding.test"), names=names)


async def test_what_was_looked_at_is_what_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the resolver of the system says, also for what looks like an address."""
    asked = []
    real = socket.getaddrinfo

    def resolver(host: str, *args: object, **options: object) -> object:
        asked.append(host)
        return real("169.254.169.254", None, type=socket.SOCK_STREAM)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    outcome = await run("http://localhost/")
    assert outcome.error is not None
    assert "is refused: 169.254.169.254" in outcome.error
    assert asked == ["localhost"]
