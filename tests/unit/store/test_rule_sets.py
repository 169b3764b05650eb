"""Frozen rule sets: written once, read once by a process, reported when they are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbridge.errors import StoreFileDamaged, StoreFileMissing
from eventbridge.rules import RuleSet
from eventbridge.store import layout, rule_sets
from eventbridge.store.file import FileStore
from eventbridge.store.rule_sets import freeze_rules, frozen_rules


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    """Return an empty store, with nothing that this process read before."""
    rule_sets._read.clear()
    yield FileStore(tmp_path / "store")
    rule_sets._read.clear()


def a_set(number: int) -> RuleSet:
    """Return a rule set of one rule; no two numbers give the same content."""
    rule = {
        "name": "late",
        "bus": "orders",
        "runner": "orders",
        "pattern": {"data": {"n": [number]}},
        "targets": {"log": {"name": "log", "type": "file", "path": "/tmp/never-written.jsonl"}},
    }
    bus = {"name": "orders", "source": {"type": "embedded"}}
    return RuleSet.model_validate({"buses": {"orders": bus}, "rules": {"late": rule}})


def test_a_rule_set_is_read_once(store: FileStore) -> None:
    """Its name is its content: a second read returns the first one's result, and the store is not asked."""
    name = freeze_rules(store, a_set(1))
    first = frozen_rules(store, name)
    store.delete(layout.rule_set(name))

    assert frozen_rules(store, name) is first
    assert first == a_set(1)


def test_few_rule_sets_are_kept(store: FileStore) -> None:
    """Those that were asked for last: a process that lives long does not keep every set that there ever was."""
    names = [freeze_rules(store, a_set(number)) for number in range(6)]
    sets = [frozen_rules(store, name) for name in names[:5]]
    assert frozen_rules(store, names[1]) is sets[1]
    frozen_rules(store, names[5])
    for name in names:
        store.delete(layout.rule_set(name))

    kept = {number for number in range(6) if is_kept(store, names[number])}

    assert kept == {1, 3, 4, 5}


def is_kept(store: FileStore, name: str) -> bool:
    """Return whether a set is known though its file is missing."""
    try:
        frozen_rules(store, name)
    except StoreFileMissing:
        return False
    return True


def test_a_damaged_rule_set_is_reported(store: FileStore) -> None:
    """A file that does not hold what its name says is not used, and not kept."""
    name = freeze_rules(store, a_set(1))
    store.put(layout.rule_set(name), b"{}")

    for _ in range(2):
        with pytest.raises(StoreFileDamaged, match=name):
            frozen_rules(store, name)
