"""Stores and reads frozen rule sets, to which batches are pinned, as JSON files named by their hashes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from eventbridge.errors import StoreFileDamaged
from eventbridge.rules import RuleSet
from eventbridge.store import layout
from eventbridge.store.protocol import Store

#: The maximum number of rule sets that a process caches: the current one, and older ones of open batches. A set of
#: 10,000 rules takes about 100 MB, less the part that it shares with the one read before it.
_CACHED_SETS = 4

_lock = threading.Lock()
#: Sets by hash, the most recently requested one last. A hash always names the same content, in any store.
_read: OrderedDict[str, RuleSet] = OrderedDict()


def freeze_rules(store: Store, rules: RuleSet, *, over: bool = False) -> str:
    """Write a rule set to the store unless it exists (if `over`, replace a damaged one), and return its hash."""
    text = rules.to_json().encode()
    found = RuleSet.hash_of(text)
    write = store.put if over else store.create
    write(layout.rule_set(found), text)
    return found


def frozen_rules(store: Store, rule_set_hash: str) -> RuleSet:
    """Return the rule set with a hash; a process that requests it repeatedly reads it once.

    Raises StoreError if the file is missing or its content does not match its name.
    """
    with _lock:  # held during the read, because other threads would otherwise read the same file
        known = _read.get(rule_set_hash)
        if known is None:
            newest = next(reversed(_read.values()), None)  # rules that are the same in this set are not parsed again
            known = _read[rule_set_hash] = _from_store(store, rule_set_hash, newest)
        _read.move_to_end(rule_set_hash)
        while len(_read) > _CACHED_SETS:
            _read.popitem(last=False)
        return known


def know_rules(rule_set_hash: str, text: str) -> RuleSet:
    """Return the rule set in the text of a frozen file, and cache it for `frozen_rules` in this process and its forks.

    Raises StoreFileDamaged if `text` does not have that hash.
    """
    with _lock:
        if RuleSet.hash_of(text.encode()) != rule_set_hash:
            raise StoreFileDamaged(
                f"A rule set in a local file does not have the hash {rule_set_hash}. It is read from the store instead."
            )
        known = _read[rule_set_hash] = RuleSet.from_json(text)
        return known


def _from_store(store: Store, rule_set_hash: str, newest: RuleSet | None) -> RuleSet:
    path = layout.rule_set(rule_set_hash)
    content = store.get(path)
    found = RuleSet.hash_of(content)
    if found != rule_set_hash:
        raise StoreFileDamaged(
            f"The content of {path} in {store.uri} has the hash {found}, not the one in its name. "
            "Restore the file from a backup."
        )
    return RuleSet.from_json(content.decode(), newest)
