"""Lays out wildcards and `contains`: the automata that find their signs, and their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.texts import (
    STATES_AND_COLUMNS,
    build_automata,
    byte_classes,
    choose_signs,
    failures_of,
)


def put_texts(tables: t.Tables, paths: int, texts: Sequence[tuple[int, tuple[bytes, ...], int]]) -> None:
    """Lay out the automata and the text conditions: (path, parts, atom) each."""
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
        raise OverflowError(f"{len(texts):,} wildcards are more than one matcher holds: split the rule set")
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
