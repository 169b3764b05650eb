"""Freezes a rule set in the store, so that a batch means the same rules whenever it is run."""

from __future__ import annotations

from eventbridge.rule import RuleSet
from eventbridge.store import Store, layout


def freeze(store: Store, rules: RuleSet) -> str:
    """Write a rule set under its hash unless it is there, and return the hash."""
    store.create(layout.rule_set(rules.hash), rules.to_json().encode())
    return rules.hash
