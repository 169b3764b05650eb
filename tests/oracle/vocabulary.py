"""The texts, numbers and blocks that pairs are drawn from: few, so that events often hit rules."""

from __future__ import annotations

from typing import Any, Final

from eventbridge.event.json_document import Number

KEYS: Final = ("a", "b", "c", "d", "é", "a b", "A")
RARE_KEYS: Final = ("a.b", "b.c", "prefix", "numeric")

PLAIN: Final = (
    *("", "a", "b", "ab", "ba", "aab", "abab", "A", "Ab", "aB", "true", "null", "1", "1.0", "order.placed", "a/b"),
    *(
        "a b",
        "a\nb",
        "\t",
        "\\",
        "\\\\",
        "*",
        "a*b",
        'say "a"',
        "\0",
        "é",
        "É",
        "e\u0301",
        "Üb",
        "中文",
        "жЖ",
        "\u2028",
    ),
)

ROUGH: Final = (
    *('"', 'a"', '"a', 'a""', '""', 'ab"', '"ab'),
    *("ß", "ẞ", "SS", "ss", "Ss", "aß", "aSS", "\u03c3", "ς", "Σ", "ﬁ", "fi", "FI"),
    *("İ", "i\u0307", "\u0131", "I", "i", "\u212a", "k", "😀", "😁", "a😀", "😀b", "𐐀", "𐐨", "??"),
)
"""Texts that Event Ruler is known to respond differently where an operator makes something of them."""

ADDRESSES: Final = ("10.1.2.3", "010.1.2.3", "10.1.2.4", "::ffff:10.1.2.3", "::ffff:a01:203", "fd00::1", "FD00:0:0::1")
BLOCKS: Final = (
    "10.0.0.0/8",
    "10.1.2.0/24",
    "10.1.2.2/31",
    "192.168.7.9/16",
    "0.0.0.0/0",
    "fd00::/8",
    "fd00::/127",
    "::/0",
)
ROUGH_BLOCKS: Final = ("10.1.2.3/32", "fd00::1/128", "::ffff:10.0.0.0/104")
ROUGH_NUMBERS: Final = (
    *("9007199254740992", "9007199254740993", "1234567890123456789", "0.1000000000000000055", "1e400", "-1e400"),
    *("1e-400", "100000000000000000000", "1e20", "4.35", "0.30000000000000004", "123456789012345.6"),
)
ROUGH_CONDITIONS: Final[tuple[Any, ...]] = (
    {"contains": "a"},
    {"regex": "a.*"},
    {"all": [{"prefix": "a"}]},
    {"numeric": ["!=", Number("1")]},
    {"numeric": [">=", Number("1"), "<=", Number("1")]},
    {"anything-but": ["a", Number("1")]},
    {"anything-but": [None, True]},
    {"anything-but": {"cidr": "10.0.0.0/8"}},
    {"anything-but": {"contains": "a"}},
)
