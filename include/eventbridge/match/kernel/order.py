"""Which branch gets which bit: like ones stand side by side.

Paths are ranked by how many branches they rule out, over all; branches are sorted by what they ask at the first path,
then at the second, and so on. What an event lets through then lies in few words, so the AND touches few. The answer
does not depend on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from eventbridge.match.kernel.branches import Branch
from eventbridge.pattern.nodes import All, AnythingBut, Condition, Exactly, Exists, Field, Numeric, Path

_WEAK: Final = {AnythingBut: 0.8, Exists: 0.6}
_RANGE, _HALF_LINE = 0.05, 0.4


def clustered(branches: Sequence[Branch]) -> list[Branch]:
    """Return the branches in an order that puts like ones together."""
    variety: defaultdict[tuple[Path, type], set[Condition]] = defaultdict(set)
    for branch in branches:
        for field in branch.fields:
            for condition in field.conditions:
                variety[field.path, type(condition)].add(condition)
    numbers = {key: len(conditions) for key, conditions in variety.items()}
    text = {condition: repr(condition) for conditions in variety.values() for condition in conditions}

    def share(field: Field) -> float:
        """Guess the share of events that meet a field."""
        total = 0.0
        for condition in field.conditions:
            if isinstance(condition, Numeric):
                total += _RANGE if len(condition.bounds) == 2 else _HALF_LINE
            elif isinstance(condition, Exactly) and not isinstance(condition.value, str):
                total += 0.5
            else:
                kind = type(condition)
                total += _WEAK.get(kind, 1 / numbers[field.path, kind] if kind is not All else 0.3)
        return total

    weight: defaultdict[Path, float] = defaultdict(float)
    for branch in branches:
        for field in branch.fields:
            weight[field.path] += 1 - min(share(field), 1.0)
    rank = {path: place for place, path in enumerate(sorted(weight, key=lambda path: (-weight[path], path)))}

    def key(branch: Branch) -> list[tuple[int, str]]:
        return sorted(
            (rank[field.path], "".join(sorted(map(text.__getitem__, field.conditions)))) for field in branch.fields
        )

    return sorted(branches, key=key)
