"""Strings that are looked up as a whole, by their beginning or by their end."""

from __future__ import annotations

from typing import Any

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.hashing import SEED, grow, hash_whole, same_bytes, slot_of
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import byte_at, int32_at, int64_at


@compiled
def find_whole(tables: int, owner: int, text: int, position: int, length: int) -> Any:
    """Return the entry of an owner that equals a text, -1 if there is none."""
    return _find(tables, owner, text, position, length, hash_whole(text, position, length))


@compiled
def find_beginning(tables: int, owner: int, text: int, position: int, length: int) -> Any:
    """Return an owner's longest entry that a text begins with, -1 if there is none."""
    firsts, lengths = int64_at(tables, t.LENGTHS_FIRST), int64_at(tables, t.LENGTHS)
    found, done, value = -1, 0, SEED
    for index in range(int32_at(firsts, owner), int32_at(firsts, owner + 1)):
        size = int32_at(lengths, index)
        if size > length:
            break
        while done < size:
            value = grow(value, byte_at(text, position + done))
            done += 1
        entry = _find(tables, owner, text, position, size, value)
        if entry >= 0:
            found = entry
    return found


@compiled
def find_end(tables: int, owner: int, text: int, position: int, length: int) -> Any:
    """Return an owner's longest entry that a text ends with, -1 if there is none."""
    firsts, lengths = int64_at(tables, t.LENGTHS_FIRST), int64_at(tables, t.LENGTHS)
    found, done, value = -1, 0, SEED
    stop = position + length
    for index in range(int32_at(firsts, owner), int32_at(firsts, owner + 1)):
        size = int32_at(lengths, index)
        if size > length:
            break
        while done < size:
            done += 1
            value = grow(value, byte_at(text, stop - done))
        entry = _find(tables, owner, text, stop - size, size, value)
        if entry >= 0:
            found = entry
    return found


@compiled
def _find(tables: int, owner: int, text: int, position: int, length: int, value: Any) -> Any:
    slots, mask = int64_at(tables, t.SLOTS), int64_at(tables, t.SLOT_MASK)
    owners, lengths = int64_at(tables, t.ENTRY_OWNER), int64_at(tables, t.ENTRY_LENGTH)
    slot = slot_of(value, owner, mask)
    while True:
        entry = int32_at(slots, slot) - 1
        if entry < 0:
            return -1
        if int32_at(lengths, entry) == length and int32_at(owners, entry) == owner:
            start = int32_at(int64_at(tables, t.ENTRY_START), entry)
            if same_bytes(text, position, int64_at(tables, t.ENTRY_BYTES), start, length):
                return entry
        slot = (slot + 1) & mask
