"""Array consistency: whether leaves can be chosen that lie in no two elements of the same array.

Called with what is left of a pattern once each field knows its leaves. A `Want` is a field that needs a leaf: the
places of those that meet it. A `Lack` is an `exists: false`: the places of all leaves at its path. Arrays nest, so the
first pair of every place of one field names the same array; choosing an element of that array settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from eventbridge.match.leaves import Place

FREE: Place = ()
"""The place of a leaf in no element of an array: consistent with every other."""


@dataclass(frozen=True, slots=True)
class Want:
    """A leaf at one of these places is to be chosen."""

    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Lack:
    """No leaf at any of these places may be consistent with the chosen ones."""

    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Every:
    """All of these."""

    parts: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of these."""

    parts: tuple[Demand, ...]


Demand: TypeAlias = Want | Lack | Every | Some
MET = Every(())
UNMET = Some(())


def every(parts: Iterable[Demand]) -> Demand:
    """Return the conjunction, simplified."""
    kept: list[Demand] = []
    for part in parts:
        if part == UNMET:
            return UNMET
        kept += part.parts if isinstance(part, Every) else [part]
    return kept[0] if len(kept) == 1 else Every(tuple(kept))


def some(parts: Iterable[Demand]) -> Demand:
    """Return the disjunction, simplified; a part that is met does not make it so while others may be chosen too."""
    kept = [part for part in parts if part != UNMET]
    return kept[0] if len(kept) == 1 else Some(tuple(kept))


def can_be_met(demand: Demand) -> bool:
    """Tell whether there is a choice of leaves that meets the demand.

    Without `exists: false` the cost is that of trying each element of each array, independent arrays one by one.
    With it, alternatives whose wants can be met are tried in turn.
    """
    if not could_be_met(every([demand])):
        return False
    return not any(_lacks(demand)) or _search([], [demand])


def _search(chosen: list[Want | Lack], open_demands: list[Demand]) -> bool:
    """Choose an alternative of each `Some`, ahead of each checking that the wants can still be met."""
    while open_demands:
        demand, open_demands = open_demands[0], open_demands[1:]
        if isinstance(demand, Every):
            open_demands = [*demand.parts, *open_demands]
        elif isinstance(demand, Some):
            return any(
                could_be_met(every([*chosen, part, *open_demands])) and _search(chosen, [part, *open_demands])
                for part in demand.parts
            )
        else:
            chosen = [*chosen, demand]
    wants = [demand.places for demand in chosen if isinstance(demand, Want)]
    forbidden = frozenset(place for demand in chosen if isinstance(demand, Lack) for place in demand.places)
    return _choose(wants, forbidden)


def _choose(wants: list[frozenset[Place]], forbidden: frozenset[Place]) -> bool:
    """Tell whether one place of each want can be chosen so that no forbidden place is consistent with all of them."""
    if FREE in forbidden or frozenset() in wants:
        return False
    for number, places in enumerate(wants):
        if FREE in places and (len(places) == 1 or not forbidden):
            return _choose(wants[:number] + wants[number + 1 :], forbidden)
        if FREE in places:  # scalars beside containers in one array: choosing inside one rules out forbidden places
            rest = wants[:number] + wants[number + 1 :]
            return _choose(rest, forbidden) or _choose([*rest, places - {FREE}], forbidden)
    for array in {place[0][0] for places in [*wants, forbidden] for place in places}:
        inside = [places for places in wants if any(place[0][0] == array for place in places)]
        if not any(
            _choose([_enter(places, array, element) for places in inside], _enter(forbidden, array, element))
            for element in {place[0][1] for places in inside for place in places}
        ):
            return False
    return True


def _enter(places: frozenset[Place], array: int, element: int) -> frozenset[Place]:
    """Return the places that lie in this element, as seen from inside it."""
    return frozenset(place[1:] for place in places if place[0] == (array, element))


def could_be_met(demand: Demand) -> bool:
    """Tell whether the wants alone can be met: an upper bound, exact where no `exists: false` lies in an array."""
    demand = _without_lacks(demand)
    if demand in (MET, UNMET):
        return demand == MET
    parts = demand.parts if isinstance(demand, Every) else (demand,)
    return all(_component_can_be_met(component) for component in _components(parts))


def _component_can_be_met(parts: list[Demand]) -> bool:
    array = min(_arrays(parts[0]))
    elements = {place[0][1] for part in parts for place in _places(part) if place[0][0] == array}
    return any(could_be_met(every(_within(part, array, element) for part in parts)) for element in elements)


def _within(demand: Demand, array: int, element: int) -> Demand:
    """Return what is left of a demand once the element of an array is chosen."""
    if isinstance(demand, Every):
        return every(_within(part, array, element) for part in demand.parts)
    if isinstance(demand, Some):
        return some(_within(part, array, element) for part in demand.parts)
    others = frozenset(place for place in demand.places if place[0][0] != array)
    return _want(others | _enter(demand.places, array, element))


def _want(places: frozenset[Place]) -> Demand:
    return MET if FREE in places else Want(places) if places else UNMET


def _without_lacks(demand: Demand) -> Demand:
    if isinstance(demand, Every):
        return every(_without_lacks(part) for part in demand.parts)
    if isinstance(demand, Some):
        parts = [_without_lacks(part) for part in demand.parts]
        return MET if MET in parts else some(parts)
    return MET if isinstance(demand, Lack) else _want(demand.places)


def _components(parts: Iterable[Demand]) -> list[list[Demand]]:
    """Group demands that share an array: what two groups choose cannot conflict."""
    groups: list[tuple[set[int], list[Demand]]] = []
    for part in parts:
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
    return {place[0][0] for place in _places(demand)}


def _places(demand: Demand) -> Iterator[Place]:
    if isinstance(demand, (Every, Some)):
        for part in demand.parts:
            yield from _places(part)
    else:
        yield from demand.places


def _lacks(demand: Demand) -> Iterator[Lack]:
    if isinstance(demand, (Every, Some)):
        for part in demand.parts:
            yield from _lacks(part)
    elif isinstance(demand, Lack):
        yield demand
