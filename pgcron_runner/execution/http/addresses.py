"""Which addresses are never called: those that only somebody on the worker's own host or link should reach.

Loopback and private networks are allowed: they are what a scheduler inside them is there to call. Link-local
addresses are refused because the metadata services of clouds, which hand out the host's own credentials, live there.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IpAddress = IPv4Address | IPv6Address

_METADATA = "a cloud's metadata service"
_REFUSED: tuple[tuple[IPv4Network | IPv6Network, str], ...] = (
    (IPv4Network("169.254.0.0/16"), "link-local, as metadata services of clouds are"),
    (IPv4Network("0.0.0.0/8"), "no address of a host"),
    (IPv4Network("224.0.0.0/4"), "multicast"),
    (IPv4Network("255.255.255.255/32"), "broadcast"),
    (IPv4Network("100.100.100.200/32"), _METADATA),
    (IPv4Network("168.63.129.16/32"), _METADATA),
    (IPv4Network("192.0.0.192/32"), _METADATA),
    (IPv6Network("fe80::/10"), "link-local"),
    (IPv6Network("::/128"), "no address of a host"),
    (IPv6Network("ff00::/8"), "multicast"),
    (IPv6Network("fd00:ec2::/32"), _METADATA),
    (IPv6Network("fd20:ce::254/128"), _METADATA),
)
# Blocks whose last 32 bits are an IPv4 address that somebody on the way may unpack.
_EMBEDDING = (
    IPv6Network("::ffff:0:0/96"),
    IPv6Network("::ffff:0:0:0/96"),
    IPv6Network("::/96"),
    IPv6Network("64:ff9b::/96"),
)
_LOOPBACK = IPv6Address("::1")


def why_refused(address: IpAddress | str) -> str | None:
    """Why nothing is sent to this address, as `X is …`; None where it may be called."""
    number = ip_address(address) if isinstance(address, str) else address
    for inner in (number, *_embedded(number)):
        for network, what in _REFUSED:
            if inner in network:
                return f"{number} is {what}"
    return None


def _embedded(address: IpAddress) -> tuple[IPv4Address, ...]:
    if isinstance(address, IPv4Address) or address == _LOOPBACK:
        return ()
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if any(address in network for network in _EMBEDDING):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()
