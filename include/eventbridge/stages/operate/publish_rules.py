"""Publishes a rule set: from then on all hosts plan new batches by it, whatever rule files lie there."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.errors import StoreFileDamaged, StoreFileMissing, UserError
from eventbridge.rule import RuleSet
from eventbridge.stages.ingest.reload import put_in_force
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules, frozen_rules


@dataclass(frozen=True)
class PublishedRules:
    """What was published: the hash of the rule set, its rules, and those that changed, were added or are gone."""

    rule_set: str
    rules: int
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def publish_rules(runtime: Runtime, rules: RuleSet, *, empty: bool = False) -> PublishedRules:
    """Put a rule set in force; of one that is in force already only a lost or damaged file is written again.

    A rule that the set before had and this one lacks is removed by this, and by nothing else. Raises UserError where
    hosts go by their own files, where all rules would be removed and `empty` is not given, and where another set was
    published meanwhile.
    """
    if runtime.settings.rules_from != "published":
        raise UserError(
            "Each host goes by its own rule files, so publishing has no effect. "
            "Set EVENTBRIDGE_RULES_FROM to published on every host first."
        )
    known = runtime.ledger.rules_in_force()
    if known is not None and known.rule_set == rules.hash:
        _restore(runtime, rules)
        return PublishedRules(rules.hash, len(rules.rules), (), ())
    if not rules.rules and known is not None and not empty:
        raise UserError(
            "The rule files name no rule: to publish them would remove every rule. Give --empty if that is meant."
        )
    changes = put_in_force(runtime, rules, known)
    if changes is None:
        raise UserError("Another rule set was published at the same moment. Look at it, then run this again.")
    changed = tuple(sorted(name for name, version in changes.items() if version))
    removed = tuple(sorted(name for name, version in changes.items() if not version))
    return PublishedRules(rules.hash, len(rules.rules), changed, removed)


def _restore(runtime: Runtime, rules: RuleSet) -> None:
    try:
        frozen_rules(runtime.store, rules.hash)
    except (StoreFileMissing, StoreFileDamaged):
        freeze_rules(runtime.store, rules, over=True)
