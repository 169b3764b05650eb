"""Finds the events for which a target may have no output, for all targets at once, without rendering.

A compiled transform fails where a part that must be there is missing, or where one holds half of a surrogate pair,
which is text that no output can hold; that one can only be written as an escape, as events are UTF-8, and be in a
string with an escape, or inside an object or array. So most events of most targets need no look at their parts.

This module must not import the ledger or Spark: Spark workers import it and must start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.leaves import ESCAPED
from eventbridge.matching.scan.parts import ARRAY, MISSING, OBJECT, find_parts, part_paths
from eventbridge.matching.scan.texts import Texts
from eventbridge.matching.scan.tree import Step
from eventbridge.routing.events import SliceEvents
from eventbridge.routing.program import RouteProgram
from eventbridge.transform.kernel.program import ARRIVAL, BODY, DELIVERY_ID, LITERAL, PART

#: Operations that never fail.
_SURE: Final = frozenset({LITERAL, BODY, DELIVERY_ID, ARRIVAL})
#: Kinds of parts that must be rendered to detect half of a surrogate pair.
_UNSURE: Final = (ESCAPED, OBJECT, ARRAY)
_BACKSLASH, _U, _D, _LOWER = ord("\\"), ord("u"), ord("d"), 0x20
#: Paths that are looked for at a time: an event's parts are bytes in a row each.
_MOST_PATHS: Final = 256


def is_decided_by_parts(program: RouteProgram, route: int) -> bool:
    """Return whether a target's named parts decide whether an event may have no output."""
    each = program.routes[route]
    steps = each.program.operations
    return each.waiting is None and all(step.code in _SURE or (step.code == PART and step.path) for step in steps)


def can_fail(program: RouteProgram, route: int) -> bool:
    """Return whether a target may have no output for some event."""
    each = program.routes[route]
    return each.waiting is not None or any(step.code not in _SURE for step in each.program.operations)


class NamedParts:
    """The parts that transforms of a program's targets name, for all of which `is_decided_by_parts` is true."""

    def __init__(self, program: RouteProgram, routes: Sequence[int]) -> None:
        steps = {
            route: [step for step in program.routes[route].program.operations if step.path is not None]
            for route in routes
        }
        self.routes = [route for route, named in steps.items() if named]
        self.rules: npt.NDArray[np.int64] = program.rule_of_route[self.routes]
        number_of: dict[tuple[Step, ...], int] = {}
        for named in steps.values():
            for step in named:
                number_of.setdefault(step.path or (), len(number_of))
        self._paths = part_paths(list(number_of))
        self._width = len(number_of)
        self._named, self._required = np.zeros((2, len(self.routes), self._width), np.bool_)
        for target, route in enumerate(self.routes):
            for step in steps[route]:
                self._named[target, number_of[step.path or ()]] = True
                self._required[target, number_of[step.path or ()]] |= step.failure is not None

        self._requires: npt.NDArray[np.bool_] = np.asarray(self._required.any(axis=1))

    @property
    def is_small(self) -> bool:
        """Return whether there are few enough paths to extract all of them at once."""
        return self._width <= _MOST_PATHS

    def unsure(
        self, events: SliceEvents, numbers: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which pairs of event and target (a place in `routes`) have to be rendered to know of a failure."""
        found = np.zeros(len(numbers), np.bool_)
        looked_at = np.flatnonzero(with_surrogates(events.texts)[numbers] | self._requires[targets])
        if not len(looked_at):
            return found
        found[looked_at] = self._unsure(events, numbers[looked_at], targets[looked_at])
        return found

    def _unsure(
        self, events: SliceEvents, numbers: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        wanted = np.zeros(len(events), np.bool_)
        wanted[numbers] = True
        rows = (np.cumsum(wanted, dtype=np.int64) - 1)[numbers]
        kinds = find_parts(events.texts, np.flatnonzero(wanted), self._paths).kind[:, : self._width]
        found = np.zeros(len(numbers), np.bool_)
        for asked, of_kind in ((self._required, kinds == MISSING), (self._named, np.isin(kinds, _UNSURE))):
            if of_kind.any():
                found |= (of_kind[rows] & asked[targets]).any(axis=1)
        return found


def with_surrogates(texts: Texts) -> npt.NDArray[np.bool_]:
    """Return which JSON texts may have half of a surrogate pair in them: those with an escape such as `\\ud83d`."""
    buffer = texts.buffer
    found = np.zeros(len(texts.start), np.bool_)
    places = np.flatnonzero(buffer[:-3] == _BACKSLASH)
    places = places[(buffer[places + 1] == _U) & (buffer[places + 2] | _LOWER == _D)]
    places = places[(places >= texts.start[0]) & (places < texts.end[-1])] if len(found) else places[:0]
    if len(places):
        found[np.searchsorted(texts.start, places, side="right") - 1] = True
    return found
