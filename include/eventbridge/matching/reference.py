"""The reference matcher: the executable form of docs/pattern-language.md, against which every faster one is judged.

Short and obviously right before it is fast. A rule's result depends on that rule and the event alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventbridge.event.json_document import as_document, parse_document
from eventbridge.matching.compiled import CompiledAnd, compile_pattern
from eventbridge.matching.consistency import can_be_met
from eventbridge.matching.explain import CheckedCondition, UnmetCondition, check_each, explain
from eventbridge.matching.leaves import Leaves, flatten
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.pattern.parse import parse_pattern

__all__ = [
    "CheckedCondition",
    "Leaves",
    "UnmetCondition",
    "check_each",
    "explain",
    "flatten",
    "matches",
    "matches_leaves",
]


def matches(pattern: Pattern | str | bytes | Mapping[Any, Any], event: str | bytes | Mapping[Any, Any]) -> bool:
    """Return whether a pattern matches an event, given as JSON text or as a mapping.

    `EventError` if the event is not one strict JSON object, `PatternError` if a pattern that is given as text or
    mapping is not in the language.
    """
    parsed = pattern if isinstance(pattern, Pattern) else parse_pattern(pattern)
    document = parse_document(event) if isinstance(event, (str, bytes)) else as_document(event)
    return matches_leaves(parsed, flatten(document))


def matches_leaves(pattern: Pattern, leaves: Leaves) -> bool:
    """Return whether a pattern matches the event that `leaves` were flattened from: for many patterns on one event."""
    compiled = compile_pattern(pattern)
    if not _met(compiled.where, leaves):
        return False
    return compiled.unless is None or not _met(compiled.unless, leaves)


def _met(where: CompiledAnd, leaves: Leaves) -> bool:
    if not leaves.nested:
        return where.holds(leaves.by_path)
    return can_be_met(where.demand(leaves.by_path))
