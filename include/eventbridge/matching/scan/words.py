"""The AND and the OR of rows of bits, eight words of 64 bits at a time."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils

from eventbridge.matching.scan.memory import intrinsic, pointer_to

VECTOR_WORDS: Final = 8
"""The number of words processed at a time; the functions here may read that many after the last word of a row."""

# Numba's helpers to generate code have no types.
cgutils: Any = numba_cgutils

_WORD = ir.IntType(64)
_WORDS = ir.VectorType(_WORD, VECTOR_WORDS)


@intrinsic
def and_rows(typing: Any, row: Any, addresses: Any, count: Any, index: Any, into: Any) -> Any:
    """Write the AND of words number `index` and following of many rows to `into`; return a bit for each that is not 0.

    The rows are the one at address `row` and those at the `count` addresses that are stored from `addresses` on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, addresses, count, index, into = arguments
        left = cgutils.alloca_once(builder, _WORDS)
        builder.store(_load(builder, row, index), left)
        with cgutils.for_range(builder, count) as loop:
            address = builder.load(pointer_to(builder, (addresses, loop.index), _WORD))
            builder.store(builder.and_(builder.load(left), _load(builder, address, index)), left)
        return _store_and_mark(builder, builder.load(left), into)

    return types.uint64(types.int64, types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def and_words(typing: Any, into: Any, other: Any) -> Any:
    """AND the words at `other` into those at `into`; return a bit for each that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, other = arguments
        none = ir.Constant(_WORD, 0)
        return _store_and_mark(builder, builder.and_(_load(builder, into, none), _load(builder, other, none)), into)

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def or_words(typing: Any, into: Any, row: Any, index: Any) -> Any:
    """OR words number `index` and following of a row into those at `into`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, row, index = arguments
        words = builder.or_(_load(builder, into, ir.Constant(_WORD, 0)), _load(builder, row, index))
        _store(builder, words, into)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def copy_words(typing: Any, into: Any, row: Any, index: Any) -> Any:
    """Copy words number `index` and following of a row to `into`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, row, index = arguments
        _store(builder, _load(builder, row, index), into)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


def _load(builder: Any, address: Any, index: Any) -> Any:
    words = builder.load(builder.bitcast(pointer_to(builder, (address, index), _WORD), _WORDS.as_pointer()))
    words.align = 8
    return words


def _store(builder: Any, words: Any, into: Any) -> None:
    builder.store(words, builder.inttoptr(into, _WORDS.as_pointer())).align = 8


def _store_and_mark(builder: Any, words: Any, into: Any) -> Any:
    _store(builder, words, into)
    flags = builder.icmp_unsigned("!=", words, ir.Constant(_WORDS, [0] * VECTOR_WORDS))
    return builder.zext(builder.bitcast(flags, ir.IntType(VECTOR_WORDS)), _WORD)
