"""The outline of a text: where its tokens begin, whatever the blocks of 64 bytes cut in two."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
from generative.guard_page import before_guard
from unit.raw_memory import Raw

from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.outline import BEHIND, outline, room_for_outline

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:" \t\r\n]+', re.DOTALL)
PIECES = [
    *(b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\t", b"\r", b"1", b"-0.5e9", b"true", b"nu", b"\xc3\xa9"),
    *(b'"', b'"a"', b'""', b'"a b"', b'"{[,:]}"', b'"\\\\"', b'"\\""', b'"\\\\\\""', b'"\\u00e9x"', b'"\\n\\t"'),
    *(b'"' + b"x" * length + b'"' for length in (29, 61, 62, 63, 64, 130)),
    *(b'"' + b"\\\\" * count + b'"' for count in (31, 32, 33)),
]


def outlined(text: bytes, before: bytes = b"", behind: bytes = b"") -> list[int] | None:
    """Return the tokens' positions in a text that stands between others, None if it cannot be JSON."""
    raw = Raw(before + text + behind)
    room = before_guard(np.zeros(room_for_outline(len(text)), np.int64))
    begin, stop = len(before), len(before) + len(text)
    count, first_escape, last_escape = outline(raw.address, begin, stop, address_of(room))
    if count < 0:
        return None
    assert room[count : count + BEHIND].tolist() == [stop] * BEHIND
    escapes = [escape for escape in range(len(text)) if text[escape] == ord("\\")]
    assert all(first_escape <= begin + escape <= last_escape for escape in escapes)
    return [int(position) - begin for position in room[:count]]


def expected(text: bytes) -> list[int] | None:
    """Return the same, found by a regular expression; None where it leaves something out."""
    found: list[int] = []
    rest = TOKEN.sub(b"", text)
    if rest.strip(b" \t\r\n"):
        return None
    for token in TOKEN.finditer(text):
        content = token[0]
        found.append(token.start())
        if content[:1] == b'"':
            try:
                json.loads(content)
            except ValueError:
                return None
            found.append(token.end() - 1)
        elif b"\\" in content:
            return None
    return found


@pytest.mark.parametrize("seed", range(20))
def test_tokens_are_those_that_a_regular_expression_finds(seed: int) -> None:
    """Strings, escapes and numbers of all lengths, wherever a block of 64 bytes ends, and whatever stands around."""
    dice, refused = random.Random(seed), 0
    for _ in range(400):
        text = b"".join(dice.choices(PIECES, k=dice.randrange(1, 30)))
        before = bytes(dice.choices(b'"{x\\', k=dice.randrange(70)))
        want = expected(text)
        found = outlined(text, before, dice.choice([b"", b'"', b"\\", b"\xa9", b"12"]))

        if want is not None:
            assert found == want, text
        else:
            refused += found is None
    assert refused > 20


@pytest.mark.parametrize("at", [0, 50, 62, 63])
@pytest.mark.parametrize(
    "content",
    ["\\", "\\x", "\\u", "\\u12", "\\u12G4", "\\u 123", "\n", "\x00", "\x1f", "x" * 40 + "\t", "\\U0041"],
)
def test_invalid_string_content_has_no_outline(content: str, at: int) -> None:
    """Control characters, unknown escapes and halves of escapes are refused, wherever in a block they stand."""
    assert outlined(b" " * at + f'"{content}"'.encode()) is None


def test_utf8_is_what_python_decodes() -> None:
    """Two, three and four bytes at all borders, whole and cut, at any position among ASCII."""
    points = [0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF]
    good = [chr(point).encode() for point in points]
    bad = [
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xed\xa0\x80",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
    ]
    dice = random.Random(0)
    pieces = [*good, *bad, b"\xff", b"\xf5\x80\x80\x80", *(one[:-1] for one in good), b"x" * 29, b"x" * 60, b"a"]
    whole = 0
    for number in range(10_000):
        content = b"".join(dice.choices(good + pieces[-3:] if number % 2 else pieces, k=dice.randint(1, 6)))
        right = content.decode("utf-8", "replace").encode() == content
        whole += right
        text = b'"' + content + b'"'

        assert outlined(text, b"x" * dice.randrange(64), b"\xa9") == ([0, len(text) - 1] if right else None), content
    assert 5_000 < whole < 10_000
