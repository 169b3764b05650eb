"""A pattern as branches, each a plain AND of leaf lists: the pattern matches if one of its branches holds.

`$or` is multiplied out, because the bitsets of the kernel can decide only an AND of leaf lists. A branch from below
`$not` is negative: if it holds, the rule does not match.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventbridge.matching.kernel.conditions import LeafListEffect, effect_of
from eventbridge.matching.pattern.nodes import And, AnythingBut, Exists, Field, Path, Pattern

MAXIMUM_BRANCHES: Final = 64
"""A pattern with more alternatives than this becomes one uncertain branch, which accepts too many events: the reference
matcher checks them."""


@dataclass(eq=False, slots=True)
class Branch:
    """One AND of leaf lists; if an `uncertain` branch holds, the reference matcher decides.

    `may_conflict`: leaves of two of the lists can be in one array, because their paths share the first key.
    """

    effects: tuple[LeafListEffect, ...]
    negative: bool
    uncertain: bool
    may_conflict: bool


class NumberedBranch(NamedTuple):
    """A branch with the number of its rule in the rule set."""

    rule: int
    branch: Branch


def branches_of(pattern: Pattern, effects: dict[Field, LeafListEffect]) -> list[Branch]:
    """Return the branches of a pattern, or one uncertain branch if it has more than MAXIMUM_BRANCHES.

    Equal leaf lists share one effect: `effects` caches them, and new ones are added to it.
    """
    where = _alternatives(pattern.where)
    unless = [] if pattern.unless is None else _alternatives(pattern.unless.pattern)
    if where is None or unless is None:
        plain = tuple(clause for clause in pattern.where.clauses if isinstance(clause, Field))
        simple = [field for field in plain if is_leaf_required(field) and len(_split_negations(field)) == 1]
        return [_make_branch(simple, effects, uncertain=True)]
    positive = [_make_branch(fields, effects) for fields in where]
    return positive + [_make_branch(fields, effects, negative=True) for fields in unless]


def _make_branch(
    fields: Sequence[Field], effects: dict[Field, LeafListEffect], *, negative: bool = False, uncertain: bool = False
) -> Branch:
    found = tuple(_effect_of(field, effects) for field in fields)
    firsts = {effect.path[0] for effect in found}
    uncertain = uncertain or any(effect.uncertain for effect in found)
    return Branch(found, negative, uncertain, len(firsts) < len(found))


def _effect_of(field: Field, effects: dict[Field, LeafListEffect]) -> LeafListEffect:
    effect = effects.get(field)
    if effect is None:
        effect = effects[field] = effect_of(field)
    return effect


def _alternatives(where: And) -> list[tuple[Field, ...]] | None:
    """Return ANDs of leaf lists, at least one of which must hold; None if there are more than MAXIMUM_BRANCHES."""
    found: list[tuple[Field, ...]] = [()]
    for clause in where.clauses:
        if isinstance(clause, Field):
            choices: list[tuple[Field, ...]] = [(part,) for part in _split_negations(clause)]
        else:
            choices = []
            for alternative in clause.alternatives:
                inner = _alternatives(alternative)
                if inner is None:
                    return None
                choices += inner
        if len(found) * len(choices) > MAXIMUM_BRANCHES:
            return None
        found = [(*fields, *choice) for fields in found for choice in choices]
    return found


def _split_negations(field: Field) -> list[Field]:
    """Return a leaf list as alternatives with at most one `anything-but` each: a class row has one bit per list."""
    negations = [condition for condition in field.conditions if isinstance(condition, AnythingBut)]
    if len(negations) < 2:
        return [field]
    others = tuple(condition for condition in field.conditions if not isinstance(condition, AnythingBut))
    return [Field(field.path, (*others, negations[0])), *(Field(field.path, (one,)) for one in negations[1:])]


def is_leaf_required(field: Field) -> bool:
    """Return whether only a leaf can meet a field.

    A field with `exists: false` may hold in the array element that another field chooses, so it cannot be decided
    without the other fields.
    """
    return Exists(False) not in field.conditions


NO_ANCHOR: Final = -1
"""The anchor of a branch that requires no leaf, and of every branch if anchors are not used."""


class OrderedBranch(NamedTuple):
    """A branch in the order of its bit; `anchor` is the number of its anchor among its leaf lists, or NO_ANCHOR."""

    rule: int
    branch: Branch
    anchor: int


def order_branches(branches: Sequence[NumberedBranch], *, anchored: bool) -> list[OrderedBranch]:
    """Return the branches, with similar ones adjacent, and with anchors if `anchored`."""
    # Each effect is evaluated once, because most leaf lists occur in many branches.
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
    rank = {path: f"{position:07d} " for position, path in enumerate(ranked)}
    name_of = {effect: rank[effect.path] + effect.text for effect in effects}

    def anchor_of(branch: Branch) -> int:
        wanting = [number for number, effect in enumerate(branch.effects) if not effect.can_be_absent]
        if not wanting:
            return NO_ANCHOR
        return min(wanting, key=lambda number: (let_through[branch.effects[number].path], number))

    def key(one: OrderedBranch) -> str:
        # This is one text instead of a list of pairs, because Python's garbage collector visits every list and pair.
        asked = [name_of[effect] for effect in one.branch.effects]
        first = [] if one.anchor == NO_ANCHOR else [asked[one.anchor]]
        return "\n".join(first + sorted(asked))

    found = [OrderedBranch(rule, branch, anchor_of(branch) if anchored else NO_ANCHOR) for rule, branch in branches]
    return sorted(found, key=key)
