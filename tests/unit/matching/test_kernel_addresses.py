"""Addresses in compiled code, against `eventbridge.matching.pattern.address`."""

from __future__ import annotations

import random

import pytest
from generative.vocabulary import Vocabulary
from unit.raw_memory import Raw

from eventbridge.matching.kernel.addresses import MAPPED, parse_address
from eventbridge.matching.pattern import address

SPELLINGS = [
    *(
        "1.2.3.4",
        "0.0.0.0",
        "255.255.255.255",
        "256.1.1.1",
        "01.2.3.4",
        "1.2.3",
        "1.2.3.4.5",
        "1..2.3",
        ".1.2.3",
        "1.2.3.",
    ),
    *("::", "::1", "1::", ":::", "1:::2", "1::2::3", "::1:2:3:4:5:6:7", "1:2:3:4:5:6:7::", "::1:2:3:4:5:6:7:8"),
    *("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", ":1:2:3:4:5:6:7", "1:2:3:4:5:6:7:", "12345::", "g::"),
    *("::1.2.3.4", "::ffff:1.2.3.4", "::FFFF:0102:0304", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3"),
    *("1:2:3:4:5::1.2.3.4", "::1.2.3.4:5", "::01.2.3.4", "1.2.3.4::", "::1%eth0", "", " ", "::1 ", "::/0", "é::1", ":"),
    *(
        "0000:0000:0000:0000:0000:ffff:255.255.255.255",
        "00000::",
        "1:2:3:4::5:6:7:8",
        "\x00",
        "1.2.3.4\x00",
        "\uff11.2.3.4",
    ),
]


def read(text: str) -> int | None:
    """Return the address on the line of 128 bits."""
    raw = Raw(text.encode("utf-8", "surrogatepass"))
    good, high, low = parse_address(raw.address, 0, raw.length)
    return (int(high) << 64) + int(low) if good else None


def expected(text: str) -> int | None:
    """Return the same by the standard library."""
    found = address.parse_address(text)
    return None if found is None else found[1] + (MAPPED if found[0] == 32 else 0)


@pytest.mark.parametrize("text", SPELLINGS)
def test_an_address_is_what_the_standard_library_reads(text: str) -> None:
    """Also what is none."""
    assert read(text) == expected(text)


def test_random_spellings_are_read_alike() -> None:
    """All groups, zeros compressed anywhere, IPv4 at the end, capitals; damaged ones too."""
    for seed in range(200):
        vocabulary = Vocabulary(random.Random(seed))
        for block in vocabulary.blocks * 6:
            text = vocabulary.address(block)

            assert read(text) == expected(text), text
