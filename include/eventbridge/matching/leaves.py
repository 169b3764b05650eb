"""The leaves of an event: every scalar with the path of keys that reaches it and its place in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

from eventbridge.event.json_document import Document, JsonValue
from eventbridge.matching.pattern.nodes import Path, Scalar

ArrayPlace: TypeAlias = tuple[tuple[int, int], ...]
"""The (array, element) pairs a leaf lies in, outermost first. An array is one occurrence in the event, numbered.

A scalar that is itself an element adds no pair: it conflicts with nothing.
"""


class Leaf(NamedTuple):
    """A scalar and its place."""

    value: Scalar
    place: ArrayPlace


@dataclass(frozen=True, slots=True)
class Leaves:
    """All leaves of one event by path; `nested`: whether any is in an element of an array."""

    by_path: dict[Path, list[Leaf]]
    nested: bool


def flatten(document: Document) -> Leaves:
    """Return the leaves of an event as `parse_document` gives it; once for an event, for any number of rules."""
    by_path: dict[Path, list[Leaf]] = {}
    arrays = count()
    _collect(document, (), (), by_path, arrays)
    return Leaves(by_path, nested=next(arrays) > 0)


def _collect(
    value: JsonValue, path: Path, place: ArrayPlace, by_path: dict[Path, list[Leaf]], arrays: count[int]
) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(inner, (*path, key), place, by_path, arrays)
    elif isinstance(value, list):
        array = -1
        for index, inner in enumerate(value):
            if not isinstance(inner, (dict, list)):
                _collect(inner, path, place, by_path, arrays)
                continue
            if array < 0:
                array = next(arrays)
            _collect(inner, path, (*place, (array, index)), by_path, arrays)
    else:
        found = by_path.get(path)
        if found is None:
            by_path[path] = [Leaf(value, place)]
        else:
            found.append(Leaf(value, place))
