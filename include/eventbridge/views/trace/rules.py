"""The result of every rule of a bus for an event: in the version of the batch, and today's if it differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventbridge.event.json_document import Document
from eventbridge.matching.consistency import Leaves, flatten
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.matching.reference import CheckedCondition, check_each, matches_leaves
from eventbridge.model.why import ComparedToday, RuleResult, SeenCondition
from eventbridge.rules import Rule

#: Cached patterns, by the rule's name and version: parsing them takes longer than evaluating them.
_MOST_PATTERNS: Final = 50_000
_patterns: dict[tuple[str, str], Pattern] = {}


def rule_results(
    then: Mapping[str, Rule],
    today: Mapping[str, Rule] | None,
    document: Document,
    most_unmatched: int | None = None,
) -> list[RuleResult]:
    """Return the results of the batch's rules for an event, then of rules added later; `today` None: unknown.

    `most_unmatched`: the maximum number of rules that match neither then nor now, in the order of their names.
    """
    leaves = flatten(document)
    asked: list[tuple[Rule, ComparedToday]] = [(rule, _compared(rule, today)) for rule in then.values()]
    if today is not None:
        asked += [(rule, "added") for name, rule in today.items() if name not in then]
    found, unmatched = [], 0
    for rule, compared in sorted(asked, key=lambda each: (each[1] == "added", each[0].name)):
        pattern = _pattern_of(rule)
        matched = matches_leaves(pattern, leaves)
        changed = compared in ("changed", "added") and today is not None
        now = _matches(today[rule.name], leaves) if changed and today is not None else None
        if not matched and not now:
            unmatched += 1
            if most_unmatched is not None and unmatched > most_unmatched:
                continue
        conditions = tuple(_seen(each) for each in check_each(pattern, document))
        found.append(
            RuleResult(
                rule=rule.name,
                version=rule.version,
                runner=rule.runner,
                enabled=rule.enabled,
                matched=matched,
                conditions=conditions,
                where=rule.where,
                today=compared,
                matches_today=now,
            )
        )
    return sorted(found, key=lambda each: (each.today == "added", not each.matched, each.rule))


def _seen(checked: CheckedCondition) -> SeenCondition:
    said = checked.finding
    return SeenCondition(checked.met, said.path, said.condition, said.values, said.message)


def _compared(rule: Rule, today: Mapping[str, Rule] | None) -> ComparedToday:
    if today is None:
        return "unknown"
    now = today.get(rule.name)
    if now is None:
        return "removed"
    return "same" if (now.version, now.enabled) == (rule.version, rule.enabled) else "changed"


def _matches(rule: Rule, leaves: Leaves) -> bool:
    return rule.enabled and matches_leaves(_pattern_of(rule), leaves)


def _pattern_of(rule: Rule) -> Pattern:
    key = (rule.name, rule.version)  # the version is a hash of the rule's content
    found = _patterns.get(key)
    if found is None:
        if len(_patterns) >= _MOST_PATTERNS:
            _patterns.clear()
        found = _patterns[key] = parse_pattern(rule.pattern)
    return found
