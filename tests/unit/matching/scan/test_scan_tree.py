"""The tree of wanted paths: every key is found, no other is."""

from __future__ import annotations

import numpy as np
import pytest
from unit.raw_memory import Raw

from eventbridge.matching.scan.tree import find_edge, path_tree, tree_tables

LIKE_KEYS = ["eightlon", "eightlong", "eightlong1", "eightlong2", "eightlo", "", "é", "\ud800", "a\x00", "a", "x" * 500]


@pytest.mark.parametrize("more", [0, 1, 60])
def test_a_key_leads_to_the_node_of_its_path(more: int) -> None:
    """Searched one by one or by hash: keys that share their first 8 bytes, the empty one, many of them."""
    keys = [*LIKE_KEYS[: 8 if more == 0 else None], *(f"key {number}" for number in range(more))]
    tree = path_tree([(key,) for key in keys])
    tables = tree_tables(tree)

    def found(key: str) -> int:
        raw = Raw(key.encode("utf-8", "surrogatepass"))
        edge = int(find_edge(tables, 0, raw.address, 0, raw.length))
        return int(tree.path[tree.child[edge]]) if edge >= 0 else -1

    assert [found(key) for key in keys] == list(range(len(keys)))
    assert {found(key) for key in ("b", "eightlong3", "eightlonG", "a\x00\x00", "x" * 499, "key", "\x00")} == {-1}


def test_nodes_below_a_node_follow_it() -> None:
    """The nodes n + 1 to last[n] lie below node n; a path may end where another continues."""
    paths = [("a", "b"), ("a",), ("c", "d", "e"), ("a", "f")]
    tree = path_tree(paths)
    ends = {int(path): node for node, path in enumerate(tree.path) if path >= 0}

    assert sorted(ends) == [0, 1, 2, 3]
    assert tree.last[0] == len(tree.path) - 1
    assert {int(tree.path[node]) for node in range(ends[1], tree.last[ends[1]] + 1)} == {0, 1, 3}
    assert np.all(tree.last >= np.arange(len(tree.last)))


def test_no_path_is_a_tree_of_the_event_alone() -> None:
    """Without a requested path, no key is found."""
    tables, raw = tree_tables(path_tree([])), Raw(b"a")

    assert find_edge(tables, 0, raw.address, 0, 1) == -1


def test_keys_that_begin_alike_are_spread_over_the_slots() -> None:
    """Thousands of keys of one length that share their first bytes, or their last: no long run of slots to search."""
    for spelling in ("attribute_%05d", "%05d_attribute", "an_attribute_%05d_of_an_order"):
        tree = path_tree([(spelling % number,) for number in range(5_000)])
        taken = "".join("x" if slot else " " for slot in tree.slots.tolist())

        assert max(map(len, taken.split())) < 100
