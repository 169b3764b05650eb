"""Which branch gets which bit: like ones stand side by side.

Paths are ranked by how many branches they rule out, over all; branches are sorted by what they ask at the first path,
then at the second, and so on. What an event lets through then lies in few words, so the AND touches few. The result
does not depend on it.

A rule set of many paths has anchors besides. The *anchor* of a branch is one of its leaf lists that want a leaf: where
that path has none, the branch need not be checked. It is the one whose path lets the fewest branches through, and
branches of one anchor stand side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from eventbridge.matching.kernel.branches import Branch, NumberedBranch
from eventbridge.matching.pattern.nodes import Path

NO_ANCHOR: Final = -1
"""The anchor of a branch that no leaf need meet, and of all where there are no anchors."""


class OrderedBranch(NamedTuple):
    """A branch in its place; `anchor` is the number of the leaf list that is its anchor, or NO_ANCHOR."""

    rule: int
    branch: Branch
    anchor: int


def ordered(branches: Sequence[NumberedBranch], *, anchored: bool) -> list[OrderedBranch]:
    """Return the branches in an order that puts like ones together, with anchors if wanted."""
    # Most leaf lists stand in many branches, and those share one effect.
    effects = Counter(effect for _, branch in branches for effect in branch.effects)
    variety: defaultdict[tuple[Path, type], set[str]] = defaultdict(set)
    for effect in effects:
        for kind, text in effect.varied:
            variety[effect.path, kind].add(text)
    one_of = {key: 1 / len(texts) for key, texts in variety.items()}
    ruled_out: defaultdict[Path, float] = defaultdict(float)
    let_through: defaultdict[Path, float] = defaultdict(float)
    for effect, count in effects.items():
        path, share = effect.path, effect.certain_share
        for kind, _ in effect.varied:
            share += one_of[path, kind]
        ruled_out[path] += count * max(0.0, 1.0 - share)
        let_through[path] += count * min(1.0, share)
    ranked = sorted(ruled_out, key=lambda path: (-ruled_out[path], path))
    rank = {path: f"{place:07d} " for place, path in enumerate(ranked)}
    name_of = {effect: rank[effect.path] + effect.text for effect in effects}

    def anchor_of(branch: Branch) -> int:
        wanting = [number for number, effect in enumerate(branch.effects) if not effect.can_be_absent]
        if not wanting:
            return NO_ANCHOR
        return min(wanting, key=lambda number: (let_through[branch.effects[number].path], number))

    def key(one: OrderedBranch) -> str:
        # One text, not a list of pairs: Python's garbage collector counts lists and pairs, and looks at all there are.
        asked = [name_of[effect] for effect in one.branch.effects]
        first = [] if one.anchor == NO_ANCHOR else [asked[one.anchor]]
        return "\n".join(first + sorted(asked))

    found = [OrderedBranch(rule, branch, anchor_of(branch) if anchored else NO_ANCHOR) for rule, branch in branches]
    return sorted(found, key=key)
