"""Tests 32 or 64 bytes at once from any position in a text; the result has one bit for each byte.

LLVM compiles each test to a few instructions for any vector width.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from eventbridge.matching.scan.memory import block_at, intrinsic

_WORD = ir.IntType(64)


def _marks(lanes: int, test: Any) -> Any:
    """Return an intrinsic (address, index) that evaluates `test` for each of the `lanes` bytes from there on."""

    @intrinsic
    def marks(typing: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            flags = test(builder, block_at(builder, arguments, lanes))
            word = builder.bitcast(flags, ir.IntType(lanes))
            return word if lanes == 64 else builder.zext(word, _WORD)

        return types.uint64(types.int64, types.int64), generate

    return marks


def _is(builder: Any, block: Any, byte: str) -> Any:
    return builder.icmp_unsigned("==", block, _repeat(block, ord(byte)))


def _is_below(builder: Any, block: Any, byte: int) -> Any:
    return builder.icmp_unsigned("<", block, _repeat(block, byte))


def _repeat(block: Any, byte: int) -> Any:
    return ir.Constant(block.type, [byte] * block.type.count)


def _ends_string(builder: Any, block: Any) -> Any:
    marked = builder.or_(_is(builder, block, '"'), _is(builder, block, "\\"))
    return builder.or_(marked, _is_below(builder, block, 0x20))


def _is_structural(builder: Any, block: Any) -> Any:
    # "[" and "{" differ only in the bit 0x20, as do "]" and "}"; no other byte becomes "{" or "}" with that bit set.
    folded = builder.or_(block, _repeat(block, 0x20))
    brackets = builder.or_(_is(builder, folded, "{"), _is(builder, folded, "}"))
    return builder.or_(brackets, builder.or_(_is(builder, block, ","), _is(builder, block, ":")))


def _is_digit(builder: Any, block: Any) -> Any:
    return _is_below(builder, builder.sub(block, _repeat(block, ord("0"))), 10)


def _is_hexadecimal(builder: Any, block: Any) -> Any:
    letter = builder.sub(builder.or_(block, _repeat(block, 0x20)), _repeat(block, ord("a")))
    return builder.or_(_is_digit(builder, block), _is_below(builder, letter, 6))


def _is_escape_letter(builder: Any, block: Any) -> Any:
    marked = _is(builder, block, "u")
    for letter in '"\\/bfnrt':
        marked = builder.or_(marked, _is(builder, block, letter))
    return marked


def _is_at_least(builder: Any, block: Any, byte: int) -> Any:
    return builder.icmp_unsigned(">=", block, _repeat(block, byte))


def _is_doubtful_first(builder: Any, block: Any) -> Any:
    marked = _is_at_least(builder, block, 0xF4)
    for byte in (0xC0, 0xC1, 0xE0, 0xED, 0xF0):
        marked = builder.or_(marked, builder.icmp_unsigned("==", block, _repeat(block, byte)))
    return marked


string_marks = _marks(32, _ends_string)
"""(address, index): which of 32 bytes end or interrupt a JSON string: quote, backslash, control character."""

digit_marks = _marks(32, _is_digit)
"""(address, index): which of 32 bytes are digits."""

hexadecimal_marks = _marks(32, _is_hexadecimal)
"""(address, index): which of 32 bytes are hexadecimal digits."""

escape_letters = _marks(64, _is_escape_letter)
"""(address, index): which of 64 bytes RFC 8259 allows after a backslash."""

letters_u = _marks(64, lambda builder, block: _is(builder, block, "u"))
"""(address, index): which of 64 bytes are the letter u, which in an escape is followed by four hexadecimal digits."""

quotes = _marks(64, lambda builder, block: _is(builder, block, '"'))
"""(address, index): which of 64 bytes are quotes."""

backslashes = _marks(64, lambda builder, block: _is(builder, block, "\\"))
"""(address, index): which of 64 bytes are backslashes."""

structurals = _marks(64, _is_structural)
"""(address, index): which of 64 bytes are brackets, braces, commas or colons."""

controls = _marks(64, lambda builder, block: _is_below(builder, block, 0x20))
"""(address, index): which of 64 bytes are control characters."""

controls_or_spaces = _marks(64, lambda builder, block: _is_below(builder, block, 0x21))
"""(address, index): which of 64 bytes are control characters or spaces."""

beyond_ascii = _marks(64, lambda builder, block: _is_at_least(builder, block, 0x80))
"""(address, index): which of 64 bytes are beyond ASCII."""

first_of_many = _marks(64, lambda builder, block: _is_at_least(builder, block, 0xC0))
"""(address, index): which of 64 bytes begin a character of UTF-8 of two, three or four bytes."""

first_of_three = _marks(64, lambda builder, block: _is_at_least(builder, block, 0xE0))
"""(address, index): which of 64 bytes begin a character of three or four bytes."""

first_of_four = _marks(64, lambda builder, block: _is_at_least(builder, block, 0xF0))
"""(address, index): which of 64 bytes begin a character of four bytes."""

doubtful_firsts = _marks(64, _is_doubtful_first)
"""(address, index): which of 64 bytes begin a character of UTF-8 only before certain bytes, or never."""
