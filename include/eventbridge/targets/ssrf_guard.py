"""Protects against SSRF: an HTTP target may only connect to public addresses, unless the installation allows others.

A host name in a rule file may resolve to a private address, now or only at the moment of the delivery. Therefore the
guard checks the resolved address just before a connection is made, never the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SETTING = "EVENTBRIDGE_ALLOW_ADDRESSES"

#: Addresses of cloud metadata services. The first one, Azure's wire server, is in a public block.
_METADATA: tuple[Network, ...] = (ip_network("168.63.129.16/32"), ip_network("169.254.169.254/32"))

#: Special-purpose blocks (RFC 6890, 7526, 9637) that not every version of Python classifies as private.
_SPECIAL: tuple[Network, ...] = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))

#: Prefixes of IPv6 addresses with an IPv4 address in the last 32 bits: IPv4-mapped, IPv4-compatible, IPv4-translated
#: (RFC 2765), NAT64 (RFC 6052). NAT64 with a custom prefix cannot be recognised.
_LAST_32_BITS = tuple(map(IPv6Network, ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
_SIX_TO_FOUR = IPv6Network("2002::/16")  # RFC 3056: the 32 bits after the prefix
#: `::` and `::1` are in the IPv4-compatible block, but contain no IPv4 address.
_OF_IPV6_ITSELF = frozenset(map(IPv6Address, ("::", "::1")))
_GLOBAL_UNICAST = IPv6Network("2000::/3")

#: Properties of non-public addresses, with their descriptions; the first that applies is used.
_KINDS = (
    ("is_unspecified", "the unspecified address"),
    ("is_loopback", "a loopback address"),
    ("is_link_local", "a link-local address"),
    ("is_multicast", "a multicast address"),
    ("is_private", "a private address"),
)


class SsrfGuard:
    """Refuses every non-public address outside the blocks `allowed`."""

    def __init__(self, allowed: Sequence[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SsrfGuard) and other._allowed == self._allowed

    def __hash__(self) -> int:
        return hash(self._allowed)

    def refusal(self, text: str) -> str | None:
        """Return why an address is refused, e.g. `10.0.0.7 is a private address`; None if it is allowed.

        For an IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64), the IPv4 address decides; `allowed` may
        list either.
        """
        address = ip_address(text.partition("%")[0])
        inner = _embedded_ipv4(address)
        if any(each in block for block in self._allowed for each in {address, inner} if each.version == block.version):
            return None
        kind = _kind(inner)
        if kind is None:
            return None
        return f"{text} is {kind}" if inner == address else f"{text} carries {inner}, {kind}"


def describe_refusals(refusals: Iterable[str]) -> str:
    """Return the refusals of a host's addresses, and the remedy."""
    shown = "; ".join(dict.fromkeys(refusals))
    return f"{shown}: nothing is delivered there unless {SETTING} lists its address block"


def _embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address carries, else the address itself."""
    if isinstance(address, IPv4Address) or address in _OF_IPV6_ITSELF:
        return address
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    if any(address in block for block in _LAST_32_BITS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _kind(address: Address) -> str | None:
    if any(address in block for block in _METADATA if block.version == address.version):
        return "a cloud's metadata address"
    if any(address in block for block in _SPECIAL if block.version == address.version):
        return "not a public address"  # checked first, because versions of Python differ in which of them are private
    for name, kind in _KINDS:
        if getattr(address, name):
            return kind
    public = address.is_global and (isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST)
    return None if public else "not a public address"
