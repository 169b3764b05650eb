"""Hashes of bytes: of a whole text, or extended byte by byte from its beginning or its end."""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import byte_at, load64, low_bytes

_MIXER = np.uint64(0x9E37_79B9_7F4A_7C15)
_STEP = np.uint64(0x0000_0100_0000_01B3)
SEED = np.uint64(0xCBF2_9CE4_8422_2325)


@compiled
def hash_whole(text: int, position: int, length: int) -> Any:
    """Return the hash of a text, computed from 8 bytes at a time."""
    value = np.uint64(length)
    stop = position + length
    while position + 8 <= stop:
        value = (value ^ load64(text, position)) * _MIXER
        value ^= value >> np.uint64(29)
        position += 8
    if position < stop:
        value = (value ^ low_bytes(load64(text, position), stop - position)) * _MIXER
        value ^= value >> np.uint64(29)
    return value


@compiled
def grow(value: Any, byte: int) -> Any:
    """Return the hash of a text extended by one byte, given the text's hash `value`; SEED is that of the empty text."""
    return (value ^ np.uint64(byte)) * _STEP


@compiled
def slot_of(value: Any, owner: int, mask: int) -> Any:
    """Return the slot at which the search for an owner's hash begins."""
    mixed = (value ^ (np.uint64(owner) * _STEP)) * _MIXER
    return np.int64(mixed >> np.uint64(32)) & mask


@compiled
def same_bytes(text: int, position: int, other: int, start: int, length: int) -> bool:
    """Return whether two texts of the same length are equal; both are read 8 bytes at a time."""
    index = 0
    while index + 8 <= length:
        if load64(text, position + index) != load64(other, start + index):
            return False
        index += 8
    while index < length:
        if byte_at(text, position + index) != byte_at(other, start + index):
            return False
        index += 1
    return True
