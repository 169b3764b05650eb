"""Publishes a rule set. All hosts then plan new batches with it, independently of their own rule files."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.errors import StoreFileDamaged, StoreFileMissing, UserError
from eventbridge.pipeline.ingest.reload import put_in_force
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules, frozen_rules


@dataclass(frozen=True)
class PublishedRules:
    """The published rule set: its hash, the number of its rules, the added or changed rules, and the removed ones."""

    rule_set: str
    rules: int
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def publish_rules(runtime: Runtime, rules: RuleSet, *, empty: bool = False) -> PublishedRules:
    """Put a rule set in force. If it already is, only write its file again if the file is lost or damaged.

    A rule that is in the previous set but not in this one is removed; nothing else removes a rule. Raises UserError if
    hosts use their own files, if all rules would be removed and `empty` is False, or if another process has just
    published another set.
    """
    if runtime.settings.rules_from != "published":
        raise UserError(
            "Each host uses its own rule files, so publishing has no effect. "
            "Set EVENTBRIDGE_RULES_FROM to published on every host first."
        )
    known = runtime.ledger.rules.get_in_force()
    if known is not None and known.rule_set == rules.hash:
        _restore(runtime, rules)
        return PublishedRules(rules.hash, len(rules.rules), (), ())
    if not rules.rules and known is not None and not empty:
        raise UserError("The rule files have no rule: publishing them would remove every rule. Use --empty to do that.")
    changes = put_in_force(runtime, rules, known)
    if changes is None:
        raise UserError("Another rule set was published at the same time. Check it, then run this again.")
    changed = tuple(sorted(name for name, version in changes.items() if version))
    removed = tuple(sorted(name for name, version in changes.items() if not version))
    return PublishedRules(rules.hash, len(rules.rules), changed, removed)


def _restore(runtime: Runtime, rules: RuleSet) -> None:
    try:
        frozen_rules(runtime.store, rules.hash)
    except (StoreFileMissing, StoreFileDamaged):
        freeze_rules(runtime.store, rules, over=True)
