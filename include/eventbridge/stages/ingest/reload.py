"""Takes up changed rule files for a new batch; with errors in them the last good ones go on."""

from __future__ import annotations

import logging
from typing import NamedTuple

from eventbridge.decision.operational_event import of_rule_errors
from eventbridge.errors import RuleFileError, StoreFileDamaged, StoreFileMissing
from eventbridge.model.rules_in_force import RulesInForce
from eventbridge.rule import RuleSet
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules, frozen_rules

log = logging.getLogger(__name__)

#: Changes of rules that are read at most where the file of the rules before is lost: the newest ones.
_MOST_CHANGES = 1_000_000


class TakenRules(NamedTuple):
    """The rules that a new batch takes, all runners', and the hash of the files that they are of."""

    rules: RuleSet
    rule_set: str


def take_up_rules(runtime: Runtime) -> TakenRules:
    """Return the rules that a new batch takes: today's, put in force if they are new, else the last good ones.

    Errors are noted, and told by an operational event, once. Raises RuleFileError if no files ever were good.
    """
    if runtime.settings.rules_from == "published":
        known = runtime.ledger.rules_in_force()
        return TakenRules(runtime.rule_set(), "") if known is None else _of(runtime, known)
    try:
        today = runtime.rule_files()
    except RuleFileError as error:
        _note(runtime, error)
        known = runtime.ledger.rules_in_force()
        if known is None:
            raise
        return _of(runtime, known)
    known = runtime.ledger.rules_in_force()
    if known is None or known.rule_set != today.hash:
        put_in_force(runtime, today, known)
    elif known.errors:
        runtime.ledger.note_errors([])
    return TakenRules(runtime.in_force(today), today.hash)


def _of(runtime: Runtime, known: RulesInForce) -> TakenRules:
    return TakenRules(runtime.in_force(frozen_rules(runtime.store, known.rule_set)), known.rule_set)


def put_in_force(runtime: Runtime, today: RuleSet, known: RulesInForce | None) -> dict[str, str] | None:
    """Freeze today's rules, then say that they are in force; of two that do it at once one does.

    Returns the version of each rule that changed ("": it is gone), None if another set is in force by now.
    """
    rule_set = freeze_rules(runtime.store, today)
    before = _versions(runtime, known) if known is not None else {}
    changes = {name: rule.version for name, rule in today.rules.items() if before.get(name) != rule.version}
    changes |= dict.fromkeys(before.keys() - today.rules.keys(), "")
    of = rule_set, today.runners(), known.rule_set if known else None, changes
    if runtime.ledger.put_rules_in_force(*of, streaming_task_seconds=today.streaming_task_seconds()):
        log.info("rule set %s is in force: %d rules changed", rule_set, len(changes))
        return changes
    return None


def _versions(runtime: Runtime, known: RulesInForce) -> dict[str, str]:
    """Return the versions of the rules in force; where their file cannot be read, as the ledger noted the changes."""
    try:
        return {name: rule.version for name, rule in frozen_rules(runtime.store, known.rule_set).rules.items()}
    except (StoreFileMissing, StoreFileDamaged) as error:
        log.warning("what changed is told by the ledger, as the rule set before is lost: %s", error)
    newest: dict[str, str] = {}
    for change in runtime.ledger.rule_changes(limit=_MOST_CHANGES):
        newest.setdefault(change.rule, change.version)
    return {name: version for name, version in newest.items() if version}


def _note(runtime: Runtime, error: RuleFileError) -> None:
    known = runtime.ledger.rules_in_force()
    if known is None:
        return
    log.error("ALARM: batches go on with the rules of %s: %s", known.since.isoformat(), error)
    errors = [str(each) for each in error.errors]
    runtime.ledger.note_errors(errors, [of_rule_errors(errors, known.rule_set, runtime.ledger.now())])
