"""What every rule of a bus says to an event: as the batch had the rules, and where those of today differ."""

from __future__ import annotations

from collections.abc import Mapping

from eventbridge.event.json_document import Document
from eventbridge.match.leaves import flatten
from eventbridge.match.reference import check_each, matches_leaves
from eventbridge.model.why import ComparedToday, RuleAnswer, SeenCondition
from eventbridge.pattern.parse import parse_pattern
from eventbridge.rule import Rule


def rule_answers(then: Mapping[str, Rule], today: Mapping[str, Rule] | None, document: Document) -> list[RuleAnswer]:
    """Return what the rules of then say to an event, then what rules do that came later; `today` None: not known."""
    found = [_answer(rule, _compared(rule, today), today, document) for rule in then.values()]
    if today is not None:
        added = (rule for name, rule in today.items() if name not in then)
        found += [_answer(rule, "added", today, document) for rule in added]
    return sorted(found, key=lambda each: (each.today == "added", not each.matched, each.rule))


def _answer(rule: Rule, compared: ComparedToday, today: Mapping[str, Rule] | None, document: Document) -> RuleAnswer:
    pattern = parse_pattern(rule.pattern)
    matched = matches_leaves(pattern, flatten(document))
    changed = compared in ("changed", "added") and today is not None
    return RuleAnswer(
        rule=rule.name,
        version=rule.version,
        runner=rule.runner,
        enabled=rule.enabled,
        matched=matched,
        conditions=tuple(
            SeenCondition(
                each.met, each.finding.path, each.finding.condition, each.finding.values, each.finding.message
            )
            for each in check_each(pattern, document)
        ),
        where=rule.where,
        today=compared,
        matches_today=_matches(today[rule.name], document) if changed and today is not None else None,
    )


def _compared(rule: Rule, today: Mapping[str, Rule] | None) -> ComparedToday:
    if today is None:
        return "unknown"
    now = today.get(rule.name)
    if now is None:
        return "removed"
    return "same" if (now.version, now.enabled) == (rule.version, rule.enabled) else "changed"


def _matches(rule: Rule, document: Document) -> bool:
    return rule.enabled and matches_leaves(parse_pattern(rule.pattern), flatten(document))
