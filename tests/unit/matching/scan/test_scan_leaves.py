"""What the scanner notes of an event is what `flatten` finds: values, and where in arrays they lie."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest
from generative.kernel_agreement import made
from unit.raw_memory import Raw

from eventbridge.errors import EventError
from eventbridge.event.json_document import parse_document
from eventbridge.matching.consistency import flatten
from eventbridge.matching.scan.leaves import DEEP, FLAT, FREE, MALFORMED, NESTED, NOWHERE, Leaves, room_for_leaves, scan
from eventbridge.matching.scan.tree import path_tree, tree_tables

Path = tuple[str, ...]


def scanned(text: bytes, paths: list[Path], room: int = 10_000) -> tuple[int, list[tuple[Path, Any, Any]]]:
    """Return what the scanner says of an event, and its leaves: path, value, element of an array."""
    tree, raw, leaves = path_tree(paths), Raw(text), room_for_leaves(room)
    first_leaf, status = np.zeros(2, np.int64), np.empty(1, np.uint8)
    start, end = np.zeros(1, np.int64), np.array([len(text)])

    assert scan(raw.address, start, end, tree_tables(tree), leaves, first_leaf, status, 0) == 1
    found = []
    for leaf in range(first_leaf[1]):
        if leaves.node[leaf] != NOWHERE:
            path = paths[tree.path[leaves.node[leaf]]]
            found.append(
                (path, _value(text, leaves, leaf), _position(int(leaves.array[leaf]), int(leaves.element[leaf])))
            )
    return int(status[0]), found


def _value(text: bytes, leaves: Leaves, leaf: int) -> Any:
    begin, size = int(leaves.position[leaf]), int(leaves.length[leaf])
    written = text[begin : begin + size]
    if leaves.kind[leaf] >= 4:
        written = b'"' + written + b'"'
    return parse_document(b'{"":' + written + b"}")[""]


def _position(array: int, element: int) -> Any:
    return array if array in (FREE, DEEP) else element


def expected(text: bytes, paths: list[Path]) -> list[tuple[Path, Any, Any]]:
    """Return the same of the reference matcher's leaves."""
    return [
        (path, leaf.value, FREE if not leaf.position else DEEP if len(leaf.position) > 1 else leaf.position[0][1])
        for path, leaves in flatten(parse_document(text)).by_path.items()
        if path in paths
        for leaf in leaves
    ]


@pytest.mark.parametrize("seed", range(12))
def test_leaves_are_those_of_the_reference(seed: int) -> None:
    """Duplicate keys, arrays in arrays, escaped keys: the same values at the same positions."""
    patterns, texts = made(seed, rules=20, events=60)
    paths = sorted(
        {field.path for pattern in patterns for field in pattern.where.clauses if hasattr(field, "conditions")}
    )
    for text in texts:
        status, found = scanned(text, paths)
        try:
            wanted = expected(text, paths)
        except EventError:
            assert status == MALFORMED
            continue

        assert sorted(map(repr, found)) == sorted(map(repr, wanted)), text
        assert status == NESTED or {position for _, _, position in found} <= {FREE}


@pytest.mark.parametrize("depth", [127, 128])
@pytest.mark.parametrize("wanted", [True, False])
def test_the_128th_level_is_the_last(depth: int, wanted: bool) -> None:
    """Requested or not: 127 arrays in the event are read, 128 refused."""
    text = b'{"a":' + b"[" * depth + b"1" + b"]" * depth + b"}"
    status, found = scanned(text, [("a",)] if wanted else [("b",)])

    assert (status == MALFORMED) == (depth == 128)
    assert len(found) == (wanted and depth == 127)


def test_a_scan_without_room_is_taken_up_again() -> None:
    """It stops before the event that does not fit, and continues with more space."""
    texts = [b'{"a":[1,2]}', b'{"a":[3,4,5]}', b"{", b'{"a":6}']
    raw, tables = Raw(b"".join(texts)), tree_tables(tree := path_tree([("a",)]))
    ends = np.cumsum([len(text) for text in texts])
    starts = ends - [len(text) for text in texts]
    first_leaf, status = np.zeros(5, np.int64), np.empty(4, np.uint8)

    assert tree.path.tolist() == [-1, 0]
    assert scan(raw.address, starts, ends, tables, room_for_leaves(4), first_leaf, status, 0) == 1
    assert scan(raw.address, starts, ends, tables, room_for_leaves(6), first_leaf, status, 1) == 4
    assert first_leaf.tolist() == [0, 2, 5, 5, 6]
    assert status.tolist() == [FLAT, FLAT, MALFORMED, FLAT]


def test_a_text_of_two_gibibytes_is_malformed() -> None:
    """Lengths are noted in 32 bits: what they cannot hold is refused before a byte of it is read."""
    raw, tables = Raw(b'{"a":1}'), tree_tables(tree := path_tree([("a",)]))
    first_leaf, status = np.zeros(3, np.int64), np.empty(2, np.uint8)
    starts, ends = np.zeros(2, np.int64), np.array([1 << 31, 7])

    assert tree.path.tolist() == [-1, 0]
    assert scan(raw.address, starts, ends, tables, room_for_leaves(4), first_leaf, status, 0) == 2
    assert status.tolist() == [MALFORMED, FLAT]


def test_other_threads_run_while_events_are_scanned() -> None:
    """The interpreter's lock is given up: with threads that never take turns by themselves another one gets in."""
    text = b'{"a":[' + b"1," * 4_000_000 + b"1]}"
    raw, tables, leaves = Raw(text), tree_tables(tree := path_tree([("b",)])), room_for_leaves(4)
    first_leaf, status = np.zeros(2, np.int64), np.empty(1, np.uint8)
    start, end = np.zeros(1, np.int64), np.array([len(text)])
    state: list[str] = []

    def work() -> None:
        state.append("begun")
        scan(raw.address, start, end, tables, leaves, first_leaf, status, 0)
        state.append("done")

    assert len(tree.path) == 2
    seen = False
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)  # seconds
    try:
        for _ in range(50):  # the other thread may come too late if the machine has much to do
            state.clear()
            thread = threading.Thread(target=work)
            thread.start()
            seen |= state == ["begun"]
            thread.join()
            if seen:
                break
    finally:
        sys.setswitchinterval(interval)
    assert seen
    assert status.tolist() == [FLAT]
