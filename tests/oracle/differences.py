"""In which ways Event Ruler is known to respond differently: the rows of docs/reference/patterns.md, as predicates.

A predicate looks at a pair, never at the results: the pattern has to use the feature and the event has to hold what
triggers it. A pair that triggers nothing must be decided alike. `oracle.compare` counts both.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from oracle.pair import Conjunction, Pair, accept, conditions_by_path, conjunctions

from eventbridge.event.json_document import Number
from eventbridge.matching.consistency import ArrayPosition, Leaf
from eventbridge.matching.pattern.nodes import (
    And,
    Cidr,
    Condition,
    EqualsIgnoreCase,
    Exactly,
    Numeric,
    Or,
    Path,
    Pattern,
    Prefix,
    Suffix,
)
from eventbridge.matching.reference import matches_leaves

HEX_DIGITS: Final = "0123456789ABCDEF"


@dataclass(frozen=True)
class Difference:
    """A class of differences: its name in the table and the predicate that decides whether a pair is of it."""

    name: str
    applies: Callable[[Pair], bool]


# Numbers


def beyond(number: Number) -> bool:
    """Return whether a number has more than 15 digits or is beyond what a double holds."""
    sign, position, digits = number.order
    return sign != 0 and (len(digits.rstrip(":")) > 15 or not -300 < position < 300)


def numbers_of(condition: Condition) -> list[Number]:
    """Return the numbers that a condition compares with."""
    if isinstance(condition, Numeric):
        return [number for _, number in condition.bounds]
    return [condition.value] if isinstance(condition, Exactly) and isinstance(condition.value, Number) else []


def number_beyond(pair: Pair) -> bool:
    """A number is compared with another, one of them is beyond, and it matters that they are not compared there."""
    return any(
        isinstance(value, Number)
        and (beyond(value) or any(map(beyond, numbers_of(condition))))
        and _by_spelling(condition, value) != accept(condition)(value)
        for condition, value in pair.meetings()
        if numbers_of(condition)
    )


def _by_spelling(condition: Condition, value: Number) -> bool:
    """Respond as Event Ruler does where it does not compare: an equal spelling is equal, nothing else is known."""
    return isinstance(condition, Exactly) and isinstance(condition.value, Number) and condition.value.text == value.text


# Strings


def quote_at_end(pair: Pair) -> bool:
    """A prefix or suffix with a quote in it takes the quotes around the string for a part of it, or the reverse."""
    return any(
        isinstance(condition, (Prefix, Suffix))
        and '"' in condition.text
        and isinstance(value, str)
        and _quoted_end(condition, value) != accept(condition)(value)
        for condition, value in pair.meetings()
    )


def _quoted_end(condition: Prefix | Suffix, value: str) -> bool:
    fold = str.casefold if condition.ignore_case else str
    text, quoted = fold(condition.text), f'"{fold(value)}"'
    return quoted.startswith(f'"{text}') if isinstance(condition, Prefix) else quoted.endswith(f'{text}"')


def case_folding(pair: Pair) -> bool:
    """Letters are compared by the upper and lower case of each UTF-16 unit of the pattern, not by their folding."""
    return any(
        isinstance(value, str)
        and not (value.isascii() and condition.text.isascii())
        and _unit_by_unit(condition, value) != accept(condition)(value)
        for condition, value in pair.meetings()
        if isinstance(condition, EqualsIgnoreCase)
        or (isinstance(condition, (Prefix, Suffix)) and condition.ignore_case)
    )


def _unit_by_unit(condition: EqualsIgnoreCase | Prefix | Suffix, value: str) -> bool:
    """Respond as Event Ruler does: each unit of the text stands for itself in upper and in lower case."""
    backwards = isinstance(condition, Suffix)
    reached = {0}
    for character in reversed(condition.text) if backwards else condition.text:
        cases = {character.lower(), character.upper()} if ord(character) < 0x10000 else {"??"}
        if backwards:
            reached = {at + len(case) for at in reached for case in cases if value[: len(value) - at].endswith(case)}
        else:
            reached = {at + len(case) for at in reached for case in cases if value.startswith(case, at)}
    return len(value) in reached if isinstance(condition, EqualsIgnoreCase) else bool(reached)


# Addresses


def plain_address(pair: Pair) -> bool:
    """A plain value is an IP address, and the leaf another spelling of it."""
    return any(
        isinstance(condition, Exactly)
        and isinstance(condition.value, str)
        and isinstance(value, str)
        and value != condition.value
        and (wanted := loose_address(condition.value)) is not None
        and (loose_address(value) or "").startswith(wanted)
        for condition, value in pair.meetings(inside=False)
    )


def block_membership(pair: Pair) -> bool:
    """An address lies in a block by its loose spelling across families, or only as a mapped one; or a number does."""
    return _number_in_block(pair) or any(
        isinstance(condition, Cidr)
        and isinstance(value, str)
        and _loosely_in(condition.block, value) != accept(condition)(value)
        for condition, value in pair.meetings()
    )


def _number_in_block(pair: Pair) -> bool:
    """Return whether a number's digits lie in a block; beside a condition that compares numbers its value is taken."""
    for path, conditions in conditions_by_path(pair.pattern):
        blocks = [condition.block for condition in conditions if isinstance(condition, Cidr)]
        compared = any(not beyond(number) for condition in conditions for number in numbers_of(condition))
        for leaf in pair.leaves.get(path, ()) if blocks else ():
            if isinstance(leaf.value, Number) and (not compared or beyond(leaf.value)):
                found = leaf.value
                if any(_loosely_in(block, found) for block in blocks):
                    return True
    return False


def loose_address(text: str) -> str | None:
    """Return the hexadecimal digits by which Event Ruler compares an address, 8 or 32; `None` if it sees none."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text):
        parts = [int(part) for part in text.split(".")]
        return bytes(parts).hex().upper() if max(parts) < 256 else None
    try:
        is_address = re.fullmatch(r"[0-9a-fA-F:]*:[0-9a-fA-F:]*", text)
        address = ipaddress.IPv6Address(re.sub(r"\b0+\B", "", text)) if is_address else None
    except ValueError:
        return None
    return None if address is None else (address.ipv4_mapped or address).packed.hex().upper()


def _loosely_in(block: str, value: str | Number) -> bool:
    """Respond as Event Ruler does: by digits, also a number's, until they lie between those of the block's ends."""
    digits = value.text if isinstance(value, Number) else loose_address(value)
    low, high = _ends(block)
    above = below = False  # whether the digits so far are above those of the lower end, and below those of the upper
    for digit, least, most in zip(digits or "", low, high, strict=False):
        if digit not in HEX_DIGITS or (not above and digit < least) or (not below and digit > most):
            return False
        above, below = above or digit > least, below or digit < most
        if above and below:
            return True
    return digits is not None and len(digits) >= len(low)


@lru_cache
def _ends(block: str) -> tuple[str, str]:
    network = ipaddress.ip_network(block, strict=False)
    return network[0].packed.hex().upper(), network[-1].packed.hex().upper()


# Keys


def dotted_key(pair: Pair) -> bool:
    """A path of the event, or another of the pattern, is a path of the pattern only if a dot ends a key."""
    wanted = {path for path, _ in conditions_by_path(pair.pattern)}
    joined = {".".join(path): path for path in wanted}
    return len(joined) < len(wanted) or any(joined.get(".".join(path), path) != path for path in pair.leaves)


def key_twice(pair: Pair) -> bool:
    """An object of the event has a key twice that the pattern names."""
    named = {part for path, _ in conditions_by_path(pair.pattern) for key in path for part in (key, *key.split("."))}
    return not named.isdisjoint(_repeated_keys(pair.text))


def _repeated_keys(text: str) -> set[str]:
    repeated: set[str] = set()

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            (repeated if key in seen else seen).add(key)

    json.loads(text, object_pairs_hook=note, parse_int=str, parse_float=str)
    return repeated


# Structure


def repeated_condition(pair: Pair) -> bool:
    """A leaf list of the same path as a later one counts, or that it is replaced by that one: the result differs."""
    replaced = _with_last_only(pair.pattern)
    return replaced is not None and matches_leaves(replaced, pair.flat) != matches_leaves(pair.pattern, pair.flat)


@lru_cache(maxsize=4096)
def _with_last_only(pattern: Pattern) -> Pattern | None:
    """Return the pattern as Event Ruler reads it, the last leaf list of each path replacing others; `None` if equal."""
    last = [tuple({field.path: field for field in each}.values()) for each in conjunctions(pattern)]
    if [len(each) for each in last] == [len(each) for each in conjunctions(pattern)]:
        return None
    return Pattern(And((Or((), tuple(map(And, last))),)), pattern.unless)


def absence_before_choice(pair: Pair) -> bool:
    """It matters that `exists: false` is asked in the order of the keys, before later ones chose elements of arrays."""
    if not pair.flat.nested or not _has_absence(pair.pattern):
        return False
    pattern = _with_last_only(pair.pattern) or pair.pattern
    in_order = any(_chosen_in_order(each, pair.leaves, {}) for each in _in_key_order(pattern))
    return in_order != matches_leaves(pattern, pair.flat)


def _chosen_in_order(fields: Conjunction, leaves: dict[Path, list[Leaf]], elements: dict[int, int]) -> bool:
    """Respond as Event Ruler does: field by field, each consistent with what the earlier ones chose."""
    if not fields:
        return True
    field, *later = fields
    consistent = [leaf for leaf in leaves.get(field.path, ()) if _in_elements(leaf.position, elements)]
    if not consistent and field.can_be_absent and _chosen_in_order(tuple(later), leaves, elements):
        return True
    return any(
        _chosen_in_order(tuple(later), leaves, elements | dict(leaf.position))
        for leaf in consistent
        if any(accept(condition)(leaf.value) for condition in field.conditions)
    )


def _in_elements(position: ArrayPosition, elements: dict[int, int]) -> bool:
    return all(elements.get(array, element) == element for array, element in position)


@lru_cache(maxsize=4096)
def _has_absence(pattern: Pattern) -> bool:
    return any(field.can_be_absent for each in conjunctions(pattern) for field in each)


@lru_cache(maxsize=4096)
def _in_key_order(pattern: Pattern) -> tuple[Conjunction, ...]:
    return tuple(tuple(sorted(each, key=lambda field: _order(field.path))) for each in conjunctions(pattern))


def _order(path: Path) -> bytes:
    return ".".join(path).encode("utf-16-be")  # Java compares UTF-16 units


DIFFERENCES: Final = (
    Difference("exists: false among other keys", absence_before_choice),
    Difference("numbers of more than 15 digits, large exponents", number_beyond),
    Difference("a quote inside a prefix or suffix", quote_at_end),
    Difference("a condition outside $or and inside", repeated_condition),
    Difference("ß, final sigma, ligatures, outside the basic plane", case_folding),
    Difference("an IP address as a plain value", plain_address),
    Difference("cidr", block_membership),
    Difference("a key with a dot", dotted_key),
    Difference("a key twice in an event", key_twice),
)
"""All classes, in the order of the page's table."""
