"""Matches `wildcard` and `contains` with one automaton per path, which finds the conditions that are worth checking.

A text condition is a list of parts that must follow one another: `a*b*c` has the parts a, b and c, of which the first
must be at the beginning and the last at the end; `contains x` has the parts "", x and "". Up to `SIGN_BYTES` bytes of a
part, those that the fewest other conditions of the path share, are the condition's sign. An Aho-Corasick automaton
finds all signs in one pass over the text, in one step per byte. Only conditions whose sign was found are checked, each
in linear time. So the tables grow linearly with the conditions, and do not depend on the texts that are matched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.hashing import same_bytes
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.memory import byte_at, int32_at, int64_at, put_int32, put_word

_MAX_SHARING: Final = 8  # this many checks cost about as much as the pass over a text of 50 bytes
_MAX_SCANNED_BYTES: Final = 200  # per part, to choose a sign from: limits the cost for thousands of long parts

STATES_AND_COLUMNS: Final = 1 << 31
"""An automaton must have fewer moves than this: a signed 32-bit integer holds a position, and negative is a mark."""

SIGN_BYTES: Final = 12
"""The maximum number of bytes in a sign; the automaton's table has a row for each of them."""


@compiled
def find_texts(tables: int, path: int, text: int, position: int, length: int, key: int, size: int) -> Any:
    """Append the atoms of the text conditions that a text meets to the `size` parts of a key; return the new size."""
    classes, moves = int64_at(tables, t.BYTE_CLASS), int64_at(tables, t.MOVES)
    counters = int64_at(tables, t.COUNTERS)
    stamp = int64_at(counters, t.COUNTER_STAMP) + 1
    put_word(counters, t.COUNTER_STAMP, np.uint64(stamp))
    state = int32_at(int64_at(tables, t.PATH_ROOT), path)
    first = size
    for index in range(position, position + length):
        move = int32_at(moves, state + byte_at(classes, byte_at(text, index)))
        if move < 0:
            move = ~move
            size = _check_signs(tables, move, text, position, length, key, size, stamp)
        state = move
    _sort(key, first, size)
    return size


@compiled
def _check_signs(
    tables: int, state: int, text: int, position: int, length: int, key: int, size: int, stamp: int
) -> Any:
    """Check the conditions of all signs that end at a state."""
    signs, links = int64_at(tables, t.STATE_SIGN), int64_at(tables, t.STATE_LINK)
    found = state >> int64_at(tables, t.CLASS_SHIFT)
    while found >= 0:
        sign = int32_at(signs, found)
        if sign >= 0:
            size = _check_conditions(tables, sign, text, position, length, key, size, stamp)
        found = int32_at(links, found)
    return size


@inlined
def _check_conditions(
    tables: int, sign: int, text: int, position: int, length: int, key: int, size: int, stamp: int
) -> Any:
    firsts, items = int64_at(tables, t.SIGN_TEXTS_FIRST), int64_at(tables, t.SIGN_TEXTS)
    stamps = int64_at(tables, t.TEXT_STAMP)
    for item in range(int32_at(firsts, sign), int32_at(firsts, sign + 1)):
        condition = int32_at(items, item)
        if int64_at(stamps, condition) != stamp:
            put_word(stamps, condition, np.uint64(stamp))
            if _is_met(tables, condition, text, position, length):
                put_int32(key, size, int32_at(int64_at(tables, t.TEXT_ATOM), condition) | t.KEY_ATOM)
                size += 1
    return size


@compiled
def _sort(key: int, first: int, stop: int) -> None:
    """Sort the atoms that one text added to the key (Shell sort), because equal sets must give equal keys."""
    gap = (stop - first) >> 1
    while gap > 0:
        for index in range(first + gap, stop):
            value = int32_at(key, index)
            position = index
            while position >= first + gap and int32_at(key, position - gap) > value:
                put_int32(key, position, int32_at(key, position - gap))
                position -= gap
            put_int32(key, position, value)
        gap >>= 1


@compiled
def _is_met(tables: int, condition: int, text: int, position: int, length: int) -> bool:
    """Return whether a text is the condition's parts with any text between, using the first occurrence of each."""
    firsts = int64_at(tables, t.TEXT_PARTS_FIRST)
    starts, lengths = int64_at(tables, t.PART_START), int64_at(tables, t.PART_LENGTH)
    parts = int64_at(tables, t.PART_BYTES)
    first, last = int32_at(firsts, condition), int32_at(firsts, condition + 1) - 1
    head, tail = int32_at(lengths, first), int32_at(lengths, last)
    if head + tail > length:
        return False
    stop = position + length - tail
    # The end is checked first, because conditions that share a sign often share their beginning too.
    if not same_bytes(text, stop, parts, int32_at(starts, last), tail):
        return False
    if not same_bytes(text, position, parts, int32_at(starts, first), head):
        return False
    position += head
    for part in range(first + 1, last):
        position = _search(tables, int32_at(starts, part), int32_at(lengths, part), text, position, stop)
        if position < 0:
            return False
    return True


@compiled
def _search(tables: int, start: int, size: int, text: int, position: int, stop: int) -> Any:
    """Return the position after the first occurrence of a part, or -1 (Knuth, Morris and Pratt)."""
    parts, failures = int64_at(tables, t.PART_BYTES), int64_at(tables, t.PART_FAILURES)
    fitting = 0
    while position < stop:
        byte = byte_at(text, position)
        while fitting > 0 and byte_at(parts, start + fitting) != byte:
            fitting = int32_at(failures, start + fitting - 1)
        if byte_at(parts, start + fitting) == byte:
            fitting += 1
        position += 1
        if fitting == size:
            return position
    return -1


def failures_of(part: bytes) -> list[int]:
    """Return, for each prefix of a part, the length of its longest proper prefix that is also its suffix."""
    found = [0] * len(part)
    fitting = 0
    for index in range(1, len(part)):
        while fitting and part[fitting] != part[index]:
            fitting = found[fitting - 1]
        fitting += part[fitting] == part[index]
        found[index] = fitting
    return found


def choose_signs(conditions: Sequence[tuple[bytes, ...]]) -> list[bytes]:
    """Return each condition's sign: of the beginnings and ends of its parts, the one that the fewest conditions have.

    Of equally rare ones it is the longest. If more than `_MAX_SHARING` conditions share it, the sign may be in the
    middle of a part.
    """
    signs, shared = _rarest_signs([_ends_of(parts) for parts in conditions])
    crowded = [index for index, sign in enumerate(signs) if shared[sign] > _MAX_SHARING]
    insides, _ = _rarest_signs([_ends_of(conditions[index]) | _insides_of(conditions[index]) for index in crowded])
    for index, sign in zip(crowded, insides, strict=True):
        signs[index] = sign
    return signs


def _rarest_signs(choices: Sequence[set[bytes]]) -> tuple[list[bytes], Counter[bytes]]:
    shared = Counter(sign for signs in choices for sign in signs)
    return [min(signs, key=lambda sign: (shared[sign], -len(sign), sign)) for signs in choices], shared


def _ends_of(parts: tuple[bytes, ...]) -> set[bytes]:
    return {sign for part in parts if part for sign in (part[:SIGN_BYTES], part[-SIGN_BYTES:])}


def _insides_of(parts: tuple[bytes, ...]) -> set[bytes]:
    return {
        part[first : first + SIGN_BYTES]
        for part in parts
        for first in range(min(len(part) - SIGN_BYTES, _MAX_SCANNED_BYTES) + 1)
        if part
    }


def byte_classes(signs: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], int]:
    """Return which column of the automaton each byte has, and the logarithm (base 2) of the number of columns.

    Every byte that occurs in a sign has its own column; all others share column 0.
    """
    occurring = sorted({byte for sign in signs for byte in sign})
    if len(occurring) == 256:
        return np.arange(256).astype(np.uint8), 8
    classes = np.zeros(256, np.uint8)
    classes[occurring] = np.arange(1, len(occurring) + 1)
    return classes, len(occurring).bit_length()


@compiled
def build_automata(
    paths: Any, starts: Any, lengths: Any, text: Any, classes: Any, class_shift: int, path_count: int, states: int
) -> tuple[Any, Any, Any, Any]:
    """Return (root per path, moves, sign per state, link per state) for signs sorted by path.

    Roots and moves identify a state by the position of its first move. A move to a state at which a sign ends is
    inverted (~).

    Sign number i is `text[starts[i]:starts[i] + lengths[i]]`, and there are at most `states` states.
    """
    class_count = 1 << class_shift
    moves = np.full(states * class_count, -1, np.int32)
    sign_of = np.full(states, -1, np.int32)
    link = np.full(states, -1, np.int32)
    fall = np.zeros(states, np.int32)
    root = np.full(path_count, -1, np.int32)
    queue = np.empty(states, np.int32)
    count = 0
    for sign in range(paths.shape[0]):
        path = paths[sign]
        if root[path] < 0:
            root[path] = count
            count += 1
        state = root[path]
        for index in range(starts[sign], starts[sign] + lengths[sign]):
            position = state * class_count + classes[text[index]]
            if moves[position] < 0:
                moves[position] = count
                count += 1
            state = moves[position]
        sign_of[state] = sign
    for path in range(path_count):
        if root[path] < 0:
            continue
        begin, end = 0, 1
        queue[0] = root[path]
        fall[root[path]] = root[path]
        while begin < end:
            state = queue[begin]
            begin += 1
            for column in range(class_count):
                position = state * class_count + column
                below = root[path] if state == root[path] else moves[fall[state] * class_count + column]
                if moves[position] < 0:
                    moves[position] = below
                else:
                    child = moves[position]
                    fall[child] = below
                    link[child] = below if sign_of[below] >= 0 else link[below]
                    queue[end] = child
                    end += 1
    for position in range(count * class_count):
        state = moves[position]
        move = state << class_shift
        moves[position] = ~move if sign_of[state] >= 0 or link[state] >= 0 else move
    for path in range(path_count):
        root[path] <<= class_shift
    return root, moves[: count * class_count].copy(), sign_of, link


def put_texts(tables: t.Tables, paths: int, texts: Sequence[tuple[int, tuple[bytes, ...], int]]) -> None:
    """Build the tables of the automata and of the text conditions, each given as (path, parts, atom)."""
    chosen = _choose_signs_by_path(texts)
    signs = sorted(set(chosen))
    number = {sign: index for index, sign in enumerate(signs)}
    conditions: list[list[int]] = [[] for _ in signs]
    for text, sign in enumerate(chosen):
        conditions[number[sign]].append(text)
    tables.put_lists(t.SIGN_TEXTS_FIRST, t.SIGN_TEXTS, conditions)
    classes, class_shift = byte_classes([sign for _, sign in signs])
    lengths = np.array([len(sign) for _, sign in signs], np.int64)
    states = int(lengths.sum()) + paths + 1
    if states << class_shift >= STATES_AND_COLUMNS:
        raise OverflowError(f"one matcher cannot hold {len(texts):,} wildcards and contains: split the rule set")
    root, moves, sign_of_state, link = build_automata(
        np.array([path for path, _ in signs], np.int64),
        np.cumsum(lengths) - lengths,
        lengths,
        np.frombuffer(b"".join(sign for _, sign in signs) + b"\0", np.uint8),
        classes,
        class_shift,
        paths,
        states,
    )
    tables.put(t.BYTE_CLASS, classes)
    tables.put_number(t.CLASS_SHIFT, class_shift)
    tables.put(t.PATH_ROOT, root)
    tables.put(t.MOVES, moves)
    tables.put(t.STATE_SIGN, sign_of_state)
    tables.put(t.STATE_LINK, link)
    tables.put(t.TEXT_ATOM, np.array([atom for _, _, atom in texts], np.int32))
    tables.put(t.TEXT_STAMP, np.zeros(len(texts) + 1, np.int64))
    distinct = {part: None for _, parts, _ in texts for part in parts}
    start_of, failures, length = {}, [], 0
    for part in distinct:
        start_of[part] = length
        failures += failures_of(part)
        length += len(part)
    counts = np.array([len(parts) for _, parts, _ in texts], np.int32)
    tables.put(t.TEXT_PARTS_FIRST, np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)]))
    tables.put(t.PART_START, np.array([start_of[part] for _, parts, _ in texts for part in parts], np.int32))
    tables.put(t.PART_LENGTH, np.array([len(part) for _, parts, _ in texts for part in parts], np.int32))
    tables.put(t.PART_BYTES, np.frombuffer(b"".join(distinct) + bytes(8), np.uint8))
    tables.put(t.PART_FAILURES, np.array([*failures, 0], np.int32))


def _choose_signs_by_path(texts: Sequence[tuple[int, tuple[bytes, ...], int]]) -> list[tuple[int, bytes]]:
    """Return (path, sign) of each text condition; conditions compete with those of their own path only."""
    of_path: defaultdict[int, list[int]] = defaultdict(list)
    for index, (path, _, _) in enumerate(texts):
        of_path[path].append(index)
    signs: list[tuple[int, bytes]] = [(0, b"")] * len(texts)
    for path, indexes in of_path.items():
        for index, sign in zip(indexes, choose_signs([texts[index][1] for index in indexes]), strict=True):
            signs[index] = (path, sign)
    return signs
