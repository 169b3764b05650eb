"""Access to raw memory in compiled code: typed loads and stores by address, and bit scans.

Compiled functions take their tables as plain addresses. Numba counts the references of every array that is passed from
one function to the next. This costs more than the work of the small functions here. An address costs nothing, but it is
not checked. So the owner of an address must keep its array alive, and an index must be computed only from tables that
were built together. At most `PADDING` bytes are read after a text.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as numba_intrinsic

from eventbridge.matching.scan.compiled import inlined

PADDING: Final = 64
"""The number of bytes that must be readable after the last byte of any text. A block of an outline reads up to 63 of
them, a test of a number's digits 33, a test of an escape's digits 34, and `load64` 8."""


# Numba annotates an intrinsic with the type of the function that generates it, not of the one that is called.
intrinsic: Any = numba_intrinsic


_LANES = 32
BYTE, _INT32, _INT64, _DOUBLE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of a contiguous array's memory; the caller must keep the array alive."""
    assert array.flags.c_contiguous, "compiled code reads the memory sequentially"
    return int(pa.py_buffer(array).address)  # a fifth of the time of `array.ctypes.data`; up to 30 calls an event


def _load(kind: Any, result: Any, widen: str = "") -> Any:
    """Return an intrinsic (address, index) that reads value number `index` of an array of `kind` at an address."""

    @intrinsic
    def load(typing: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(pointer_to(builder, arguments, kind))
            return getattr(builder, widen)(value, _INT64) if widen else value

        return result(types.int64, types.int64), generate

    return load


def _store(kind: Any, argument: Any, *, narrow: bool = False) -> Any:
    """Return an intrinsic (address, index, value) that writes value number `index` of an array of `kind`."""

    @intrinsic
    def store(typing: Any, address: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.trunc(arguments[2], kind) if narrow else arguments[2]
            builder.store(value, pointer_to(builder, arguments, kind))
            return context.get_dummy_value()

        return types.none(types.int64, types.int64, argument), generate

    return store


byte_at = _load(BYTE, types.int64, "zext")
"""(address, index): byte number `index` from an address on, as an integer of 64 bits."""

int32_at = _load(_INT32, types.int64, "sext")
"""(address, index): number `index` of the signed 32-bit integers at an address, as an integer of 64 bits."""

int64_at = _load(_INT64, types.int64)
"""(address, index): number `index` of the signed 64-bit integers at an address."""

word_at = _load(_INT64, types.uint64)
"""(address, index): number `index` of the unsigned 64-bit words at an address."""

double_at = _load(_DOUBLE, types.float64)
"""(address, index): number `index` of the doubles at an address."""

put_byte = _store(BYTE, types.int64, narrow=True)
"""(address, index, value): store the lowest 8 bits of `value` as byte number `index` from an address on."""

put_int32 = _store(_INT32, types.int64, narrow=True)
"""(address, index, value): store `value` as number `index` of the 32-bit integers at an address."""

put_word = _store(_INT64, types.uint64)
"""(address, index, value): store `value` as number `index` of the 64-bit words at an address."""

put_int64 = _store(_INT64, types.int64)
"""(address, index, value): store `value` as number `index` of the signed 64-bit integers at an address."""


@intrinsic
def copy_block(typing: Any, into: Any, index: Any, address: Any, position: Any) -> Any:
    """Copy the 32 bytes at `address` + `position` to `into` + `index`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = block_at(builder, arguments[2:], _LANES)
        target = builder.bitcast(pointer_to(builder, arguments, BYTE), block.type.as_pointer())
        builder.store(block, target).align = 1
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def load64(typing: Any, address: Any, index: Any) -> Any:
    """Return the 8 bytes at `address` + `index` as one little-endian word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(builder.bitcast(pointer_to(builder, arguments, BYTE), _INT64.as_pointer()))
        value.align = 1
        return value

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Ask the processor to load the memory at an address into its caches; any address is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), _INT32, _INT32, _INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [BYTE.as_pointer()], kind)
        for_reading, into_all_caches, data = (ir.Constant(_INT32, value) for value in (0, 3, 1))
        builder.call(function, [pointer, for_reading, into_all_caches, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def bits_in(typing: Any, word: Any) -> Any:
    """Return how many bits of a word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def lowest_bit_or_64(typing: Any, word: Any) -> Any:
    """Return the number of the lowest bit that is set, or 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def lowest_bit(typing: Any, word: Any) -> Any:
    """Return the number of the lowest bit that is set; `word` must not be 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def pointer_to(builder: Any, arguments: Any, kind: Any) -> Any:
    """Generate the address of value number `arguments[1]` of an array of `kind` at address `arguments[0]`."""
    return builder.gep(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])


def block_at(builder: Any, arguments: Any, lanes: int) -> Any:
    """Generate the load of `lanes` bytes, as a vector, from an address and an index in bytes."""
    kind = ir.VectorType(BYTE, lanes)
    block = builder.load(builder.bitcast(pointer_to(builder, arguments, BYTE), kind.as_pointer()))
    block.align = 1
    return block


@inlined
def copy_bytes(into: int, written: int, text: int, position: int, length: int) -> int:
    """Copy bytes to `into` + `written`; return `written` + `length`.

    Up to 31 more bytes are read after the source, and written after the target.
    """
    for done in range(0, length, _LANES):
        copy_block(into, written + done, text, position + done)
    return written + length


_ALL: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@inlined
def low_bytes(word: Any, count: int) -> Any:
    """Return a word with only its lowest `count` bytes (0 to 8); the others are 0."""
    if count == 0:
        return np.uint64(0)
    return word & (_ALL >> np.uint64(64 - 8 * count))
