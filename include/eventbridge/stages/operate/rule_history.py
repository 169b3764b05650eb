"""How rules came to be as they are: their versions, and what each said."""

from __future__ import annotations

from eventbridge.errors import NotFoundError
from eventbridge.model.rules_in_force import RuleChange
from eventbridge.rule import RuleSet
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.rule_sets import frozen_rules


def rule_history(work: Runtime, rule: str | None, limit: int) -> list[RuleChange]:
    """Return the changes of a rule, or of all, the newest first; raises NotFoundError for a rule without any."""
    found = work.ledger.rule_changes(rule, limit)
    if rule is not None and not found:
        raise NotFoundError(f"the rule {rule!r} has no history: no batch was planned with it")
    return found


def rules_at(work: Runtime, rule: str, version: str) -> RuleSet:
    """Return a rule set that had a rule in a version, given by its beginning; raises NotFoundError, naming them."""
    changes = [each for each in rule_history(work, rule, 1_000) if each.version]
    fitting = {each.version: each.rule_set for each in changes if version and each.version.startswith(version)}
    if len(fitting) != 1:
        versions = ", ".join(dict.fromkeys(each.version for each in changes))
        what = "several versions" if fitting else "no version"
        raise NotFoundError(f"the rule {rule!r} has {what} {version!r}. Versions, newest first: {versions}")
    return frozen_rules(work.store, next(iter(fitting.values())))
