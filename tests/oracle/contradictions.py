"""Whether Event Ruler contradicts itself: its result to a rule is not what it responds to the rule's parts.

The conditions of one path, in a leaf list or in alternatives of `$or`, share one automaton with one another as they
would with those of other rules, and change one another's results. This predicate asks for each choice of one condition
per leaf list and one alternative per `$or` in a machine of its own: the rule matches if one of these parts does.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from oracle import ruler
from oracle.pair import Conjunction, Pair, conjunctions

from eventbridge.event.json_document import write_document
from eventbridge.matching.pattern import Pattern, write_pattern
from eventbridge.matching.pattern.nodes import And, Field

MAX_PARTS: Final = 3_000


def parts(pattern: Pattern) -> list[Pattern]:
    """Return patterns without alternatives, of which an event meets one just if it meets the pattern."""
    return [part for conjunction in conjunctions(pattern) for part in _parts(conjunction)]


def _parts(conjunction: Conjunction) -> list[Pattern]:
    choices = itertools.product(*(field.conditions for field in conjunction))
    return [
        Pattern(And(tuple(Field(field.path, (chosen,)) for field, chosen in zip(conjunction, choice, strict=True))))
        for choice in choices
    ]


def results_of_parts(pairs: list[Pair]) -> list[str]:
    """Return what Event Ruler responds with by parts: `1`, `0`, or `?` if they are too many or it refuses one."""
    counts = [
        sum(math.prod(len(field.conditions) for field in each) for each in conjunctions(p.pattern)) for p in pairs
    ]
    divided = [parts(pair.pattern) if count <= MAX_PARTS else [] for pair, count in zip(pairs, counts, strict=True)]
    asked = ruler.Asked(
        (write_document(write_pattern(part)), [pair.text])
        for pair, patterns in zip(pairs, divided, strict=True)
        for part in patterns
    )
    results = iter(asked.results())
    return [_any([next(results) for _ in patterns]) for patterns in divided]


def _any(results: list[str]) -> str:
    if not results or not {"0", "1"}.issuperset(results):
        return "?"
    return "1" if "1" in results else "0"
