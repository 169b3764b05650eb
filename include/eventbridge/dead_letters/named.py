"""Checks the rule and target of a request for dead letters: they are in rule files, or have dead letters."""

from __future__ import annotations

from eventbridge.dead_letters.reader import letters
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import NotFoundError, RuleFileError
from eventbridge.runtime.runtime import Runtime
from eventbridge.similar_names import suggest


def refuse_unknown_names(runtime: Runtime, rule: str | None, target: str | None) -> None:
    """Raise NotFoundError, with the nearest name, for a rule or target that neither rule files nor dead letters have.

    A removed rule may have dead letters. They are searched only for a name that today's files lack.
    """
    try:
        rules = runtime.rule_set().rules
    except RuleFileError:  # dead letters can be delivered while somebody edits the rule files
        rules = {}
    targets = {name for each in rules.values() for name in each.destinations}
    if rule is not None and rule not in rules and not _has_dead_letters(runtime, Selection(rule=rule)):
        raise NotFoundError(
            f"no rule file names a rule {rule!r}, and no dead letter does. {suggest('Rules', rule, rules)}"
        )
    if rule is not None and rule in rules and target is not None:
        targets = set(rules[rule].destinations)
    if (
        target is not None
        and target not in targets
        and not _has_dead_letters(runtime, Selection(rule=rule, target=target))
    ):
        of = f"the rule {rule!r} has no" if rule is not None else "no rule file names a"
        raise NotFoundError(f"{of} target {target!r}, and no dead letter does. {suggest('Targets', target, targets)}")


def _has_dead_letters(runtime: Runtime, selection: Selection) -> bool:
    return next(iter(letters(runtime, selection, damaged={})), None) is not None
