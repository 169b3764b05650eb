"""Damages bytes, tokens or parts of JSON documents; half of the results are still JSON, or almost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

#: Strings that are inserted, or that replace something else.
TOKENS: Final = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\t", b"\n", b"\r", b"{}", b"[]", b'""', b"[[", b"]]"),
    *(b"\x0c", b"\x0b", b"\x00", b"\x1f", b"\x7f", b"\xa0", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xef\xbb\xbf"),
    *(b"null", b"nul", b"true", b"tru", b"True", b"false", b"falsf", b"NaN", b"Infinity", b"-Infinity", b"nulll"),
    *(b"0", b"-", b"+", b".", b"e", b"E+", b"01", b"-01", b"1.", b".5", b"1e", b"1e+", b"--1", b"0x1", b"1_0", b"00"),
    *(b"-0", b"1.0e5", b"1E400", b"9" * 40, b"0.0", b"-1.5E-7", b"1e99999999999999999999"),
    *(b"\\u", b"\\u12", b"\\u12G4", b"\\uD83D", b"\\uDE00", b"\\ud83d\\ude00", b"\\u0000", b"\\x41", b"\\a", b"\\/"),
    *(b"\\\\", b'\\"', b"'a'", b"//", b"/**/", b'"a":1', b',"a":{}', b',"\\u0061":[1]', b"1,", b",1"),
    *(b"\x80", b"\xc0\x80", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xff"),
    *(b"\xf0\x9f\x98\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xc3\xa9"),
)
_DIGITS_AND_SIGNS: Final = b'{}[],:"\\ eE.+-0123456789'


class Damage:
    """Damages documents, the same way for the same seed."""

    def __init__(self, seed: int, documents: Sequence[bytes]) -> None:
        self._random = random.Random(seed)
        self._documents = documents

    def document(self) -> bytes:
        """Return one of the documents with one or more damages."""
        choice = self._random.choice
        text = choice(self._documents)
        for _ in range(choice((1, 1, 1, 1, 2, 3))):
            text = self._damaged(text)
        return text

    def _damaged(self, text: bytes) -> bytes:
        whole, choice = self._random.randrange, self._random.choice
        at = whole(len(text) + 1)
        to = min(len(text), at + choice((1, 1, 1, 2, 3, 8, 40)))
        way = whole(14)
        if way < 7:
            return text[:at] + self._instead(way, text, at, to)
        if way < 11:
            return self._moved(way, text, at, to)
        if way == 11:  # a token becomes another
            token = choice(TOKENS)
            at_token = text.find(choice((b'"', b":", b",", b"}", b"]", b"1", b"0", b"e")), at)
            return text if at_token < 0 else text[:at_token] + token + text[at_token + 1 :]
        if way == 12:  # nest
            depth = choice((1, 1, 2, 60, 127, 128, 300))
            inside = text.find(b":", at) + 1
            end = text.find(b",", inside)
            if inside == 0 or end < 0:
                return text
            return text[:inside] + b"[" * depth + text[inside:end] + b"]" * depth + text[end:]
        return (
            choice((b" ", b"\n\t", b"\xef\xbb\xbf", b"\x00", b"\r")) + text + choice((b" ", b"\n", b"\x00", b",", b"}"))
        )

    def _instead(self, way: int, text: bytes, at: int, to: int) -> bytes:
        """Return the bytes that replace those from `at` on."""
        whole, choice = self._random.randrange, self._random.choice
        if way == 0:  # a bit
            return bytes(byte ^ 1 << whole(8) for byte in text[at : at + 1]) + text[at + 1 :]
        if way == 1:  # any byte
            return bytes([whole(256)]) + text[at + 1 :]
        if way == 2:
            return bytes([choice(_DIGITS_AND_SIGNS)]) + text[at + 1 :]
        if way == 3:
            return text[to:]
        return choice(TOKENS) + (text[to:] if way == 6 else text[at:])

    def _moved(self, way: int, text: bytes, at: int, to: int) -> bytes:
        """Return the text without a part, or with a part of it or of another text at another position."""
        choice = self._random.choice
        if way == 7:  # cut off the beginning or the end
            return text[:at] if choice((True, True, False)) else text[at:]
        if way == 8:  # swap neighbours
            size = to - at
            return text[:at] + text[to : to + size] + text[at:to] + text[to + size :]
        if way == 9:  # repeat
            return text[:to] + text[at:to] * choice((1, 1, 2, 30)) + text[to:]
        other = choice(self._documents)  # append another document, or insert it
        return text + choice((b"", b" ", b",", b"\n")) + other if choice((True, False)) else text[:at] + other
