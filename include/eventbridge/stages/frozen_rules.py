"""Rule sets as batches are pinned to them: JSON files in the store, named by their content."""

from __future__ import annotations

from eventbridge.errors import StoreFileDamaged
from eventbridge.rule import RuleSet
from eventbridge.store import layout
from eventbridge.store.protocol import Store

#: The set that was read last: of one that was changed only what changed is read.
_last: RuleSet | None = None


def freeze_rules(store: Store, rules: RuleSet) -> str:
    """Write a rule set to the store unless it is there, and return its hash."""
    text = rules.to_json().encode()
    found = RuleSet.hash_of(text)
    store.create(layout.rule_set(found), text)
    return found


def frozen_rules(store: Store, rule_set_hash: str) -> RuleSet:
    """Return the rule set frozen under a hash; raises StoreError if the file is gone or is not what its name says."""
    global _last
    path = layout.rule_set(rule_set_hash)
    content = store.get(path)
    found = RuleSet.hash_of(content)
    if found != rule_set_hash:
        raise StoreFileDamaged(f"{path} in {store.uri} holds the content {found}. Restore it from a backup.")
    _last = RuleSet.from_json(content.decode(), _last)
    return _last
