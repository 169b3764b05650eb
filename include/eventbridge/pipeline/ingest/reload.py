"""Loads changed rule files for a new batch. While they have errors, the last valid rules stay in force."""

from __future__ import annotations

import logging
from typing import NamedTuple

from eventbridge.errors import RuleFileError, StoreFileDamaged, StoreFileMissing
from eventbridge.model.rule_state import RulesInForce
from eventbridge.policy.operational_event import rule_errors_event
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules, frozen_rules

log = logging.getLogger(__name__)

#: The maximum number of rule changes to read, newest first, if the file of the previous rule set is lost.
_MAX_CHANGES = 1_000_000


class TakenRules(NamedTuple):
    """The rules of all runners for a new batch, and the hash of their rule set."""

    rules: RuleSet
    rule_set: str


def take_up_rules(runtime: Runtime) -> TakenRules:
    """Return the rules for a new batch: those of the current files, which come into force if they changed, or the last
    valid ones.

    If the `rules_from` setting is `published`, the rules in force are used without reading files. Errors are recorded
    and published once as an operational event. Raises RuleFileError if no rule files were ever valid.
    """
    if runtime.settings.rules_from == "published":
        known = runtime.ledger.rules.get_in_force()
        return TakenRules(runtime.rule_set(), "") if known is None else _taken_rules(runtime, known)
    try:
        today = runtime.rule_files()
    except RuleFileError as error:
        _record_errors(runtime, error)
        known = runtime.ledger.rules.get_in_force()
        if known is None:
            raise
        return _taken_rules(runtime, known)
    known = runtime.ledger.rules.get_in_force()
    if known is None or known.rule_set != today.hash:
        put_in_force(runtime, today, known)
    elif known.errors:
        runtime.ledger.rules.record_errors([])
    return TakenRules(runtime.without_disabled(today), today.hash)


def _taken_rules(runtime: Runtime, known: RulesInForce) -> TakenRules:
    return TakenRules(runtime.without_disabled(frozen_rules(runtime.store, known.rule_set)), known.rule_set)


def put_in_force(runtime: Runtime, today: RuleSet, known: RulesInForce | None) -> dict[str, str] | None:
    """Freeze the current rules, then put them in force.

    If two processes do this at the same time, only one succeeds. Returns the new version of each changed rule ("" if it
    was removed), or None if another rule set has come into force.
    """
    rule_set = freeze_rules(runtime.store, today)
    before = _versions(runtime, known) if known is not None else {}
    changes = {name: rule.version for name, rule in today.rules.items() if before.get(name) != rule.version}
    changes |= dict.fromkeys(before.keys() - today.rules.keys(), "")
    of = rule_set, today.runners(), known.rule_set if known else None, changes
    if runtime.ledger.rules.put_in_force(*of, streaming_task_seconds=today.streaming_task_seconds()):
        log.info("rule set %s is in force; number of rules changed: %d", rule_set, len(changes))
        return changes
    return None


def _versions(runtime: Runtime, known: RulesInForce) -> dict[str, str]:
    """Return the versions of the rules in force, from their file or, if it cannot be read, from the changes in the
    ledger."""
    try:
        return {name: rule.version for name, rule in frozen_rules(runtime.store, known.rule_set).rules.items()}
    except (StoreFileMissing, StoreFileDamaged) as error:
        log.warning("the previous rule set is lost, so rule changes are read from the ledger: %s", error)
    newest: dict[str, str] = {}
    for change in runtime.ledger.rules.changes(limit=_MAX_CHANGES):
        newest.setdefault(change.rule, change.version)
    return {name: version for name, version in newest.items() if version}


def _record_errors(runtime: Runtime, error: RuleFileError) -> None:
    known = runtime.ledger.rules.get_in_force()
    if known is None:
        return
    log.error("ALARM the rule files have errors, so the rules of %s stay in force: %s", known.since.isoformat(), error)
    errors = [str(each) for each in error.errors]
    runtime.ledger.rules.record_errors(errors, [rule_errors_event(errors, known.rule_set, runtime.ledger.now())])
