"""Which patterns Event Ruler does not take: what only our language can say, and what it cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from oracle.differences import beyond, numbers_of
from oracle.pair import conditions_by_path

from eventbridge.matching.pattern.nodes import (
    All,
    And,
    AnythingBut,
    Cidr,
    Condition,
    Contains,
    Exactly,
    Numeric,
    Or,
    Pattern,
    Regex,
)

RESERVED: Final = frozenset(
    (
        *("exactly", "equals-ignore-case", "prefix", "suffix", "anything-but", "exists", "wildcard", "numeric", "cidr"),
        *("=", "<", "<=", ">", ">=", "regex", "not-wildcard", "not-equals-ignore-case", "date-after", "date-before"),
        *("date-on-or-after", "date-on-or-before", "in-date-range", "ip-address-in-range", "ip-address-not-in-range"),
    )
)
"""Keys that have a meaning of their own for Event Ruler inside `$or`."""


@dataclass(frozen=True)
class Refusal:
    """A class of patterns that Event Ruler refuses: its name in the table and the predicate."""

    name: str
    applies: Callable[[Pattern], bool]


def holds(test: Callable[[Condition], bool]) -> Callable[[Pattern], bool]:
    """Return the predicate of patterns one of whose conditions passes a test."""
    return lambda pattern: any(
        test(condition) for _, conditions in conditions_by_path(pattern) for condition in conditions
    )


def unlike(condition: Condition) -> bool:
    """Return whether a condition compares by `!=`."""
    return isinstance(condition, Numeric) and any(comparison == "!=" for comparison, _ in condition.bounds)


def excludes_more(condition: Condition) -> bool:
    """Return whether anything-but holds what it cannot in Event Ruler: mixed types, true, null, other operators."""
    if not isinstance(condition, AnythingBut):
        return False
    kinds = {type(inner.value) if isinstance(inner, Exactly) else type(inner) for inner in condition.none_of}
    return len(kinds) > 1 or not kinds.isdisjoint({bool, type(None), Contains, Cidr, Regex})


def single_number(condition: Condition) -> bool:
    """Return whether a range holds just one number."""
    return (
        isinstance(condition, Numeric)
        and len(condition.bounds) == 2
        and condition.bounds[0][1] == condition.bounds[1][1]
    )


def number_beyond(condition: Condition) -> bool:
    """Return whether a condition, other than a plain value, compares with a number that a double does not hold."""
    inner = condition.none_of if isinstance(condition, AnythingBut) else (condition,)
    return not isinstance(condition, Exactly) and any(beyond(number) for each in inner for number in numbers_of(each))


def block_refused(condition: Condition) -> bool:
    """Return whether a block is one address, or of mapped ones."""
    if not isinstance(condition, Cidr):
        return False
    address, mask = condition.block.split("/")
    return int(mask) == (128 if ":" in address else 32) or address.lower().startswith("::ffff:")


def reserved_key(pattern: Pattern) -> bool:
    """Return whether a key inside `$or` is called like an operator."""
    return any(not RESERVED.isdisjoint(key_path) for key_path in _inside_or(pattern.where))


def _inside_or(where: And, depth: int | None = None) -> Iterator[tuple[str, ...]]:
    for clause in where.clauses:
        if isinstance(clause, Or):
            for alternative in clause.alternatives:
                yield from _inside_or(alternative, len(clause.path) if depth is None else depth)
        elif depth is not None:
            yield clause.path[depth:]


REFUSALS: Final = (
    Refusal("contains, regex, all", holds(lambda condition: isinstance(condition, (Contains, Regex, All)))),
    Refusal("anything-but of mixed types, of true, null, contains, cidr, regex", holds(excludes_more)),
    Refusal("!=", holds(unlike)),
    Refusal("a range of one number", holds(single_number)),
    Refusal("a field called like an operator inside $or", reserved_key),
    Refusal("a number of more than 15 digits or with a large exponent", holds(number_beyond)),
    Refusal("cidr of one address, or of mapped ones", holds(block_refused)),
    Refusal("{} as the whole pattern", lambda pattern: not pattern.where.clauses),
)
"""All classes of refused patterns."""
