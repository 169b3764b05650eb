"""Finds the leaves of an event with their positions in arrays, and decides array consistency.

Chosen leaves are consistent if no two of them are in different elements of the same array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

from eventbridge.event.json_document import Document, JsonValue
from eventbridge.matching.pattern.nodes import Path, Scalar
from eventbridge.processes import check_cancelled

ArrayPosition: TypeAlias = tuple[tuple[int, int], ...]
"""The (array, element) pairs that contain a leaf, outermost first; the arrays of an event are numbered.

A scalar that is itself an element adds no pair, because it conflicts with nothing.
"""


class Leaf(NamedTuple):
    """A scalar and its position."""

    value: Scalar
    position: ArrayPosition


@dataclass(frozen=True, slots=True)
class Leaves:
    """All leaves of one event by path; `nested` is true if an array contains an object or another array."""

    by_path: dict[Path, list[Leaf]]
    nested: bool


def flatten(document: Document) -> Leaves:
    """Return the leaves of an event, given as `parse_document` returns it; one call per event serves all rules."""
    by_path: dict[Path, list[Leaf]] = {}
    arrays = count()
    _collect(document, (), (), by_path, arrays)
    return Leaves(by_path, nested=next(arrays) > 0)


def _collect(
    value: JsonValue, path: Path, position: ArrayPosition, by_path: dict[Path, list[Leaf]], arrays: count[int]
) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(inner, (*path, key), position, by_path, arrays)
    elif isinstance(value, list):
        array = -1
        for index, inner in enumerate(value):
            if not isinstance(inner, (dict, list)):
                _collect(inner, path, position, by_path, arrays)
                continue
            if array < 0:
                array = next(arrays)
            _collect(inner, path, (*position, (array, index)), by_path, arrays)
    else:
        found = by_path.get(path)
        if found is None:
            by_path[path] = [Leaf(value, position)]
        else:
            found.append(Leaf(value, position))


FREE: ArrayPosition = ()
"""The position of a leaf that is in no array element: it is consistent with every other position."""


@dataclass(frozen=True, slots=True)
class LeafRequired:
    """One leaf at one of these positions must be chosen."""

    positions: frozenset[ArrayPosition]


@dataclass(frozen=True, slots=True)
class LeafExcluded:
    """No leaf at any of these positions may be consistent with the chosen ones."""

    positions: frozenset[ArrayPosition]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of these demands must be met."""

    parts: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these demands must be met."""

    parts: tuple[Demand, ...]


Demand: TypeAlias = LeafRequired | LeafExcluded | AllOf | AnyOf
MET = AllOf(())
UNMET = AnyOf(())


def every(parts: Iterable[Demand]) -> Demand:
    """Return the conjunction of demands, simplified."""
    kept: list[Demand] = []
    for part in parts:
        if part == UNMET:
            return UNMET
        kept += part.parts if isinstance(part, AllOf) else [part]
    return kept[0] if len(kept) == 1 else AllOf(tuple(kept))


def some(parts: Iterable[Demand]) -> Demand:
    """Return the disjunction of demands, simplified.

    A part that is met does not simplify it to MET: the choice of another part can exclude leaves for a `LeafExcluded`.
    """
    kept = [part for part in parts if part != UNMET]
    return kept[0] if len(kept) == 1 else AnyOf(tuple(kept))


def some_wanted(parts: Iterable[Demand]) -> Demand:
    """Return the disjunction of demands without excluded leaves, simplified: it is MET if one part is."""
    kept = list(parts)
    return MET if MET in kept else some(kept)


def want(positions: frozenset[ArrayPosition]) -> Demand:
    """Return the demand that a leaf at one of the positions is chosen, simplified."""
    return MET if positions == {FREE} else LeafRequired(positions) if positions else UNMET


def lack(positions: frozenset[ArrayPosition]) -> Demand:
    """Return the demand that no leaf at these positions be consistent with the chosen ones, simplified."""
    return UNMET if FREE in positions else LeafExcluded(positions) if positions else MET


def can_be_met(demand: Demand) -> bool:
    """Return whether there is a choice of leaves that meets the demand.

    Independent arrays are decided one by one, so each element of each array is tried once. Only a `$or` across several
    arrays multiplies the elements of these arrays, because it can express any logical formula. `time_limit` ends
    such a search.
    """
    demand = every([demand])
    if not can_leaves_be_met(demand):
        return False
    with_lacks = filter(_has_lack, _components(_conjuncts(demand)))
    return all(map(_lacks_can_be_met, with_lacks))


def can_leaves_be_met(demand: Demand) -> bool:
    """Return whether the required leaves alone can be chosen.

    If this is false, the demand cannot be met. The converse holds if no array has a leaf that `exists: false` excludes.
    """
    check_cancelled()
    demand = drop_excluded(demand)
    if demand in (MET, UNMET):
        return demand == MET
    return all(map(_wants_can_be_met, _components(_conjuncts(demand))))


def _wants_can_be_met(parts: list[Demand]) -> bool:
    array = min(_arrays(parts[0]))
    by_element, _ = _split_by_element(every(parts), array)
    return any(map(can_leaves_be_met, by_element.values()))


def _lacks_can_be_met(parts: list[Demand]) -> bool:
    """Decide an array that contains an excluded leaf. Either no leaf is chosen from it, or the choice of one rules out
    the other elements."""
    array = next(position[0][0] for part in parts for found in _lacks(part) for position in found.positions)
    if can_be_met(every(_exclude(part, array) for part in parts)):
        return True
    if any(
        isinstance(part, LeafRequired) and all(_lies_in(position, array) for position in part.positions)
        for part in parts
    ):
        by_element, _ = _split_by_element(every(parts), array)
        return any(map(can_be_met, by_element.values()))
    return any(
        can_be_met(every([*parts[:number], chosen, *parts[number + 1 :]]))
        for number, part in enumerate(parts)
        for chosen in _choices_in(part, array)
    )


def _choices_in(part: Demand, array: int) -> list[Demand]:
    """Return the ways to meet a demand with a leaf of the array."""
    if isinstance(part, LeafRequired) and any(_lies_in(position, array) for position in part.positions):
        return [LeafRequired(part.positions - {FREE})]
    return [inner for inner in part.parts if _wants_from(inner, array)] if isinstance(part, AnyOf) else []


def _wants_from(demand: Demand, array: int) -> bool:
    if isinstance(demand, (AllOf, AnyOf)):
        return any(_wants_from(part, array) for part in demand.parts)
    return isinstance(demand, LeafRequired) and any(_lies_in(position, array) for position in demand.positions)


def _split_by_element(demand: Demand, array: int) -> tuple[dict[int, Demand], Demand]:
    """Return the remaining demand for each element of the array that the demand refers to, and for any other element.

    One pass serves all elements, because an array may have a hundred thousand.
    """
    if isinstance(demand, (AllOf, AnyOf)):
        combine = every if isinstance(demand, AllOf) else some
        splits = [_split_by_element(part, array) for part in demand.parts]
        elements = dict.fromkeys(element for by_element, _ in splits for element in by_element)
        return (
            {element: combine(by_element.get(element, other) for by_element, other in splits) for element in elements},
            combine(other for _, other in splits),
        )
    make = want if isinstance(demand, LeafRequired) else lack
    inside: dict[int, list[ArrayPosition]] = {}
    outside = []
    for position in demand.positions:
        if _lies_in(position, array):
            inside.setdefault(position[0][1], []).append(position[1:])
        else:
            outside.append(position)
    return {element: make(frozenset([*left, *outside])) for element, left in inside.items()}, make(frozenset(outside))


def _exclude(demand: Demand, array: int) -> Demand:
    """Return the remaining demand if no leaf is chosen from the array; a demand to exclude a leaf in it then fails."""
    if isinstance(demand, AllOf):
        return every(_exclude(part, array) for part in demand.parts)
    if isinstance(demand, AnyOf):
        return some(_exclude(part, array) for part in demand.parts)
    outside = frozenset(position for position in demand.positions if not _lies_in(position, array))
    if isinstance(demand, LeafExcluded):
        return demand if outside == demand.positions else UNMET
    return want(outside)


def drop_excluded(demand: Demand) -> Demand:
    """Return a demand without its excluded leaves, simplified."""
    if isinstance(demand, AllOf):
        return every(drop_excluded(part) for part in demand.parts)
    if isinstance(demand, AnyOf):
        return some_wanted(drop_excluded(part) for part in demand.parts)
    return MET if isinstance(demand, LeafExcluded) or FREE in demand.positions else demand


def _conjuncts(demand: Demand) -> Sequence[Demand]:
    return demand.parts if isinstance(demand, AllOf) else (demand,)


def _lies_in(position: ArrayPosition, array: int) -> bool:
    return position != FREE and position[0][0] == array


def _components(parts: Iterable[Demand]) -> list[list[Demand]]:
    """Return the demands grouped by shared arrays; choices of leaves in different groups cannot conflict."""
    groups: list[tuple[set[int], list[Demand]]] = []
    for part in parts:
        check_cancelled()
        arrays, members = _arrays(part), [part]
        apart = []
        for group in groups:
            if group[0].isdisjoint(arrays):
                apart.append(group)
            else:
                arrays, members = arrays | group[0], group[1] + members
        groups = [*apart, (arrays, members)]
    return [members for _, members in groups]


def _arrays(demand: Demand) -> set[int]:
    return {position[0][0] for position in _positions(demand) if position != FREE}


def _positions(demand: Demand) -> Iterator[ArrayPosition]:
    if isinstance(demand, (AllOf, AnyOf)):
        for part in demand.parts:
            yield from _positions(part)
    else:
        yield from demand.positions


def _lacks(demand: Demand) -> Iterator[LeafExcluded]:
    if isinstance(demand, (AllOf, AnyOf)):
        for part in demand.parts:
            yield from _lacks(part)
    elif isinstance(demand, LeafExcluded):
        yield demand


def _has_lack(parts: Iterable[Demand]) -> bool:
    return any(True for part in parts for _ in _lacks(part))
