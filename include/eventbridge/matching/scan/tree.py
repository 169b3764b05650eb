"""The requested paths of an event as a tree of keys, laid out in arrays for compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.compiled import inlined
from eventbridge.matching.scan.memory import address_of, byte_at, int32_at, load64, low_bytes, word_at

_INDEX_MARK: Final = 0xFF

#: The maximum number of keys of a node that are compared one by one; with more, a key is looked up by its hash.
_MAX_LISTED_KEYS: Final = 8


class PathTree(NamedTuple):
    """The requested paths as a tree: node 0 is the event, and an edge is a key that leads from a node to the next one.

    The nodes below node n have the numbers n + 1 to `last[n]`. The edges of node n are adjacent from `first_edge[n]`
    on. `path[n]` is the index of the path that ends at node n, or -1.
    """

    first_edge: npt.NDArray[np.int32]
    edge_count: npt.NDArray[np.int32]
    first_slot: npt.NDArray[np.int32]  # -1: the edges are searched one by one
    slot_mask: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    path: npt.NDArray[np.int32]
    key_word: npt.NDArray[np.uint64]  # per edge: the first 8 bytes of the key
    key_length: npt.NDArray[np.int32]
    key_start: npt.NDArray[np.int32]
    child: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]  # the edge + 1, or 0 where free
    key_bytes: npt.NDArray[np.uint8]


class TreeTables(NamedTuple):
    """The addresses of a PathTree's arrays, under the same names."""

    first_edge: int
    edge_count: int
    first_slot: int
    slot_mask: int
    last: int
    path: int
    key_word: int
    key_length: int
    key_start: int
    child: int
    slots: int
    key_bytes: int


def tree_tables(tree: PathTree) -> TreeTables:
    """Return the addresses of a tree's arrays, which are valid while the tree lives."""
    return TreeTables(*[address_of(array) for array in tree])


#: One step of a path: the key of a member, or the number of an element, which counts from the end if it is negative.
Step: TypeAlias = str | int


class _Node:
    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.path = -1


def path_tree(paths: Sequence[Sequence[Step]]) -> PathTree:
    """Return the tree of distinct paths; a path's index is its position in `paths`.

    Only `find_index` finds a step that is a number, because its key begins with a byte that never occurs in UTF-8.
    """
    root = _Node()
    for index, path in enumerate(paths):
        node = root
        for step in path:
            key = step.encode("utf-8", "surrogatepass") if isinstance(step, str) else _index_key(step)
            node = node.children.setdefault(key, _Node())
        node.path = index
    return _Builder().build(root)


def _index_key(index: int) -> bytes:
    return int(index << 8 | _INDEX_MARK).to_bytes(8, "little", signed=True)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[list[int]] = []  # first_edge, edge_count, first_slot, slot_mask, last, path
        self.edges: list[tuple[int, int, int, int]] = []  # key_word, key_length, key_start, child
        self.slots: list[int] = []
        self.key_bytes = bytearray()

    def build(self, root: _Node) -> PathTree:
        self._add(root)
        columns = np.ascontiguousarray(np.array(self.nodes, np.int32).T)
        words, lengths, starts, children = zip(*self.edges, strict=True) if self.edges else ((), (), (), ())
        return PathTree(
            columns[0],
            columns[1],
            columns[2],
            columns[3],
            columns[4],
            columns[5],
            np.array(words, np.uint64),
            np.array(lengths, np.int32),
            np.array(starts, np.int32),
            np.array(children, np.int32),
            np.array(self.slots, np.int32),
            np.frombuffer(bytes(self.key_bytes) + bytes(8), np.uint8),
        )

    def _add(self, node: _Node) -> int:
        number = len(self.nodes)
        first = len(self.edges)
        keys = list(node.children)
        self.nodes.append([first, len(keys), -1, 0, 0, node.path])
        for key in keys:
            self.edges.append((int.from_bytes(key[:8], "little"), len(key), len(self.key_bytes), 0))
            self.key_bytes += key
        if len(keys) > _MAX_LISTED_KEYS:
            self.nodes[number][2:4] = self._hash(keys, first)
        for index, child in enumerate(node.children.values()):
            word, length, start, _ = self.edges[first + index]
            self.edges[first + index] = (word, length, start, self._add(child))
        self.nodes[number][4] = len(self.nodes) - 1
        return number

    def _hash(self, keys: list[bytes], first: int) -> list[int]:
        size = 1 << (2 * len(keys) - 1).bit_length()
        table = [0] * size
        for index, key in enumerate(keys):
            text = np.frombuffer(key + bytes(8), np.uint8)
            word = np.uint64(int.from_bytes(key[:8], "little"))
            slot = int(_slot_of(word, address_of(text), 0, len(key))) & (size - 1)
            while table[slot]:
                slot = (slot + 1) & (size - 1)
            table[slot] = first + index + 1
        self.slots += table
        return [len(self.slots) - size, size - 1]


_MIXER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


@inlined
def _slot_of(word: Any, text: int, position: int, length: int) -> Any:
    """Return the hash of all bytes of a key, as keys often share a prefix; `word` is its first 8 bytes."""
    value = (word ^ np.uint64(length)) * _MIXER
    for index in range(8, length, 8):
        value ^= value >> np.uint64(29)
        value = (value ^ low_bytes(load64(text, position + index), min(length - index, 8))) * _MIXER
    return np.int64(value >> np.uint64(33))


@inlined
def find_edge(tree: Any, node: int, text: int, position: int, length: int) -> Any:
    """Return the edge of a node for the key at `position`, or -1 if it is not requested; `tree` is a TreeTables."""
    return _find(tree, node, low_bytes(load64(text, position), min(length, 8)), text, position, length)


@inlined
def find_index(tree: Any, node: int, index: int) -> Any:
    """Return the edge of an array's node for element number `index`, or -1 if it is not requested; see `find_edge`."""
    return _find(tree, node, np.uint64(index << 8 | _INDEX_MARK), 0, 0, 8)


@inlined
def _find(tree: Any, node: int, word: Any, text: int, position: int, length: int) -> Any:
    slot = int32_at(tree.first_slot, node)
    if slot < 0:
        first = int32_at(tree.first_edge, node)
        for edge in range(first, first + int32_at(tree.edge_count, node)):
            if _is_key(tree, edge, word, text, position, length):
                return edge
        return -1
    mask = int32_at(tree.slot_mask, node)
    at = _slot_of(word, text, position, length) & mask
    while True:
        edge = int32_at(tree.slots, slot + at) - 1
        if edge < 0 or _is_key(tree, edge, word, text, position, length):
            return edge
        at = (at + 1) & mask


@inlined
def _is_key(tree: Any, edge: int, word: Any, text: int, position: int, length: int) -> bool:
    if word_at(tree.key_word, edge) != word or int32_at(tree.key_length, edge) != length:
        return False
    start = int32_at(tree.key_start, edge)
    for index in range(8, length):
        if byte_at(tree.key_bytes, start + index) != byte_at(text, position + index):
            return False
    return True
