"""Makes a pair that is judged wrongly as small as it gets, asking about all smaller ones of a size at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from oracle.pair import Pair

from eventbridge.errors import PatternError
from eventbridge.event.json_document import Number, parse_document, write_document
from eventbridge.matching.pattern import parse_pattern, write_pattern

ROUNDS: Final = 40


def shrink(pair: Pair, wrong: Callable[[list[Pair]], list[bool]]) -> Pair:
    """Return the smallest pair found, by removing parts, that `wrong` still finds judged wrongly."""
    for _ in range(ROUNDS):
        candidates = sorted(_smaller_pairs(pair), key=_size)
        found = next((each for each, still in zip(candidates, wrong(candidates), strict=True) if still), None)
        if found is None:
            return pair
        pair = found
    return pair


def _size(pair: Pair) -> int:
    return len(write_document(write_pattern(pair.pattern))) + len(pair.text)


def _smaller_pairs(pair: Pair) -> Iterator[Pair]:
    for tree in _smaller(write_pattern(pair.pattern)):
        try:
            yield Pair(parse_pattern(tree), pair.text)
        except PatternError:
            continue
    for tree in _smaller(parse_document(pair.text)):
        yield Pair(pair.pattern, write_document(tree))


def _smaller(value: Any) -> Iterator[Any]:
    """Yield a value with one part less, or with a text shortened."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: kept for other, kept in value.items() if other != key}
            if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], (dict, list)):
                yield {**value, key: inner[0]}  # an object for an array of one
            yield from ({**value, key: smaller} for smaller in _smaller(inner))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            yield from ([*value[:index], smaller, *value[index + 1 :]] for smaller in _smaller(inner))
    elif isinstance(value, str):
        yield from (value[:at] + value[at + 1 :] for at in range(len(value)))
    elif isinstance(value, Number) and value.text != "1":
        yield Number("1")
