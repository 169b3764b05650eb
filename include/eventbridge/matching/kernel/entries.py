"""Looks up strings as a whole, by prefix, or by suffix."""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.conditions import Conditions
from eventbridge.matching.kernel.folding import folding_tables
from eventbridge.matching.kernel.hashing import SEED, grow, hash_whole, same_bytes, slot_of
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import address_of, byte_at, int32_at, int64_at, put_int32


@compiled
def find_whole(tables: int, owner: int, text: int, position: int, length: int) -> Any:
    """Return the entry of an owner (a look-up at a path) that equals a text, or -1."""
    return _find(tables, owner, text, position, length, hash_whole(text, position, length))


@compiled
def find_beginning(tables: int, owner: int, text: int, position: int, length: int) -> Any:
    """Return an owner's longest entry that is a prefix of a text, or -1."""
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
    """Return an owner's longest entry that is a suffix of a text, or -1."""
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


def put_entries(tables: t.Tables, conditions: Conditions) -> None:
    """Build the tables of the strings to look up, and of the look-ups that each path needs."""
    paths = len(conditions.by_path)
    found = [(name[1] * paths + path, name[2], atom) for path, name, atom in conditions.tests_of_kind("entry")]
    owners = np.array([owner for owner, _, _ in found], np.int32)
    lengths = np.array([len(text) for _, text, _ in found], np.int32)
    starts = (np.cumsum(lengths) - lengths).astype(np.int32)
    text = np.frombuffer(b"".join(text for _, text, _ in found) + bytes(8), np.uint8)
    by_owner: list[set[int]] = [set() for _ in range(6 * paths)]
    numbers = {}
    lookups = np.zeros(paths + 1, np.int32)
    for entry, (owner, content, _) in enumerate(found):
        by_owner[owner].add(len(content))
        numbers[owner, content] = entry
        lookups[owner % paths] |= 1 << (owner // paths)
    sizes = [sorted(one) for one in by_owner]
    parents = np.full(len(found), -1, np.int32)
    for entry, (owner, content, _) in enumerate(found):
        lookup = owner // paths
        if lookup in (t.EXACT, t.FOLDED):
            continue
        for size in reversed(sizes[owner]):
            if size < len(content):
                part = content[len(content) - size :] if lookup in (t.FINISH, t.FOLDED_FINISH) else content[:size]
                if (owner, part) in numbers:
                    parents[entry] = numbers[owner, part]
                    break
    slots = np.zeros(power_of_two(2 * len(found) + 16), np.int32)
    kinds = (owners // max(paths, 1)).astype(np.int32)
    _fill_slots(address_of(slots), len(slots) - 1, owners, kinds, starts, lengths, address_of(text))
    for path in conditions.blocks:
        lookups[path] |= t.LOOKUP_ADDRESS
    for path, _, _ in conditions.texts:
        lookups[path] |= t.LOOKUP_TEXT
    for path in conditions.regexes:
        lookups[path] |= t.LOOKUP_REGEX
    tables.put(t.PATH_LOOKUPS, lookups)
    tables.put_number(t.SLOT_MASK, len(slots) - 1)
    tables.put(t.SLOTS, slots)
    tables.put(t.ENTRY_OWNER, owners)
    tables.put(t.ENTRY_START, starts)
    tables.put(t.ENTRY_LENGTH, lengths)
    tables.put(t.ENTRY_ATOM, np.array([atom for _, _, atom in found], np.int32))
    tables.put(t.ENTRY_PARENT, parents)
    tables.put(t.ENTRY_BYTES, text)
    tables.put_lists(t.LENGTHS_FIRST, t.LENGTHS, sizes)
    if lookups.any() and (lookups & t.LOOKUP_ANY_FOLDED).any():
        points, firsts, folded = folding_tables()
        tables.put_number(t.FOLD_COUNT, len(points))
        tables.put(t.FOLD_POINTS, points)
        tables.put(t.FOLD_FIRST, firsts)
        tables.put(t.FOLD_BYTES, folded)


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least `least` and at least 16."""
    return 1 << max(4, (least - 1).bit_length())


@compiled
def _fill_slots(slots: int, mask: int, owners: Any, lookups: Any, starts: Any, lengths: Any, text: int) -> None:
    """Add every entry to the hash table with the hash that its look-up computes: of the whole text, or from one end."""
    for entry in range(owners.shape[0]):
        start, length = int(starts[entry]), int(lengths[entry])
        lookup = lookups[entry]
        if lookup == t.EXACT or lookup == t.FOLDED:
            value = hash_whole(text, start, length)
        else:
            value = SEED
            backward = lookup == t.FINISH or lookup == t.FOLDED_FINISH
            for index in range(length):
                value = grow(value, byte_at(text, start + (length - 1 - index if backward else index)))
        slot = slot_of(value, int(owners[entry]), mask)
        while _is_taken(slots, slot):
            slot = (slot + 1) & mask
        put_int32(slots, slot, entry + 1)


@compiled
def _is_taken(slots: int, slot: int) -> bool:
    for index in range(4):
        if byte_at(slots, 4 * slot + index) != 0:
            return True
    return False
