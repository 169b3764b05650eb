"""Parses IP addresses and blocks in their strict spelling, for the pattern parser and the matchers.

There are no DNS look-ups, octal numbers or scopes: `010.0.0.1`, `10.1` and `fe80::1%eth0` are not addresses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_MASK = re.compile("0|[1-9][0-9]{0,2}")
_MAPPED_PREFIX = 0xFFFF  # the upper 96 bits of an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2)


@dataclass(frozen=True, slots=True)
class Block:
    """The addresses of one family (`width` 32 or 128 bits) whose first `mask` bits are `prefix`."""

    width: int
    mask: int
    prefix: int

    def holds(self, address: tuple[int, int]) -> bool:
        """Return whether the block contains an address, given as `parse_address` returns it."""
        width, value = address
        return width == self.width and value >> (width - self.mask) == self.prefix


def parse_address(text: str) -> tuple[int, int] | None:
    """Return (width in bits, value) of an address, or None for any other string.

    An IPv4-mapped IPv6 address is read as its IPv4 address.
    """
    raw = _raw_address(text)
    if raw is not None and raw[0] == 128 and raw[1] >> 32 == _MAPPED_PREFIX:
        return 32, raw[1] & 0xFFFFFFFF
    return raw


def parse_block(text: str) -> Block | None:
    """Return the block that `address/mask` spells, with host bits ignored, or None for any other string.

    A block of IPv4-mapped addresses only (`::ffff:10.0.0.0/104`) is read as the IPv4 block (`10.0.0.0/8`).
    """
    spelled, slash, mask_text = text.partition("/")
    raw = _raw_address(spelled)
    if raw is None or not slash or not _MASK.fullmatch(mask_text) or int(mask_text) > raw[0]:
        return None
    (width, value), mask = raw, int(mask_text)
    if width == 128 and mask >= 96 and value >> 32 == _MAPPED_PREFIX:
        width, mask, value = 32, mask - 96, value & 0xFFFFFFFF
    return Block(width, mask, value >> (width - mask))


def _raw_address(text: str) -> tuple[int, int] | None:
    try:
        if ":" in text:
            return None if "%" in text else (128, int(IPv6Address(text)))
        return 32, int(IPv4Address(text))
    except AddressValueError:
        return None
