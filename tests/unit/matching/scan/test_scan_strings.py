"""Strings of strict JSON as bytes: ends and escapes; the standard library says what is right."""

from __future__ import annotations

import json

import pytest
from unit.raw_memory import Raw

from eventbridge.matching.scan.strings import has_escape, unescape
from eventbridge.matching.scan.values import quick_string_end, string_end

CONTENTS = [
    *("", "a", "é", "😀", "\\n", "\\\\", '\\"', "\\/", "\\u00e9", "\\uD83D\\uDE00", "\\ud83d", "\\ude00\\ud83d"),
    *("\\ud83d\\ud83d\\ude00", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041", "x" * 31, "x" * 32, "x" * 33, "\\u0000"),
    *("x" * 31 + "\\t", "x" * 30 + "\\u20AC", "\\b\\f\\r\\t", "\x7f", "\\\\\\\\", "\\u005c"),
]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_string_ends_at_its_quote_and_loses_its_escapes(content: str) -> None:
    """The end is the first quote that is not escaped; the content is what the standard library reads."""
    inside = content.encode()
    raw, room = Raw(b'"' + inside + b'", "other"'), Raw(bytes(len(inside)))
    end = string_end(raw.address, 1, raw.length)

    assert end == 1 + len(inside)
    assert has_escape(raw.address, 1, end) == ("\\" in content)
    assert quick_string_end(raw.address, 1) == (end if "\\" not in content and len(inside) < 32 else -1)

    written = unescape(raw.address, 1, len(inside), room.address)

    assert room.taken(written) == json.loads(f'"{content}"').encode("utf-8", "surrogatepass")
