"""Limits the arguments of calls whose time grows faster than the event, so that a call that would take too long fails.

Spark cannot stop Java while it applies a pattern to a string, compares each member of an array with every other one,
calls a lambda for each member, or parses the digits of a decimal. Without a limit, one event could occupy a Spark task
slot for minutes or hours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from eventbridge.transform.sql.bounds import PATTERNS
from eventbridge.transform.sql.growth import Growth
from eventbridge.transform.sql.lexer import quote
from eventbridge.transform.sql.patterns import MAXIMUM_TRIES, NO_LIMIT, pattern_limit, text_limit
from eventbridge.transform.sql.tree import Node

#: Functions that compare each member with every other one if Spark cannot hash them, each with the number of
#: arguments that it compares. Spark 4.2 (`TypeUtils.typeWithProperEquals`) hashes every type but binary, arrays,
#: structs and maps.
PAIRWISE: Final = {
    "array_distinct": 1,
    "array_except": 2,
    "array_intersect": 2,
    "array_union": 2,
    "arrays_overlap": 2,
    "map_zip_with": 2,
}
#: The maximum number of members that a function in PAIRWISE may compare pairwise. For an event of 1 MB that takes one
#: or two seconds.
MAXIMUM_COMPARED: Final = 2_000
#: The same maximum inside a lambda, which may be called for many arrays of an event.
COMPARED_INSIDE: Final = 200
#: Functions that look up each member in a hash table of Spark, and the maximum number of members. The sender of an
#: event can choose numbers and strings whose hashes are all equal, and then each lookup compares all of them.
_HASHED: Final = frozenset({"array_distinct", "array_except", "array_intersect", "array_union"})
MAXIMUM_HASHED: Final = 30_000
#: The maximum number of consecutive digits in a string that is cast to a decimal. Java takes time proportional to
#: the square of their number.
MAXIMUM_DIGITS: Final = 1_000
#: Matches more than MAXIMUM_DIGITS digits, or an exponent such as e-10000, for which Java divides by that power of ten.
#: The pattern itself cannot backtrack.
_SLOW_NUMBER: Final = (
    rf"(?<!\p{{Nd}})\p{{Nd}}{{{MAXIMUM_DIGITS + 1}}}|(?<![\p{{L}}\p{{Nd}}.])[\p{{Nd}}.]++[eE]-\p{{Nd}}{{5}}"
)
#: The argument of a function that Spark casts to a decimal.
_DECIMALS: Final = {
    **dict.fromkeys(("ceil", "ceiling", "decimal", "floor", "to_char", "to_varchar"), 0),
    **dict.fromkeys(("make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz"), 5),
    "make_dt_interval": 3,
    "make_interval": 6,
}
#: The argument of a function that has the characters to remove. The function compares each of them with each character
#: of the string.
_REMOVED: Final = {"btrim": 1, "ltrim": 0, "rtrim": 0, "trim": 0}
#: The maximum number of characters to remove.
MAXIMUM_REMOVED: Final = 100
#: The column with the size of the event, in bytes.
EVENT_SIZE: Final = "__size"
EVENT: Final = f"`{EVENT_SIZE}`"


def limit_call(name: str, arguments: list[Node], *, inside: bool) -> list[Node]:
    """Return the arguments of a call, with a limit around those for which the call might take too long.

    `inside` says whether the call is inside a lambda.
    """
    if name in PAIRWISE:
        compared, most = PAIRWISE[name], COMPARED_INSIDE if inside else MAXIMUM_COMPARED
        limited = [
            _limit_hashed_members(_limit_compared_members(each, name, most), name) for each in arguments[:compared]
        ]
        return [*limited, *arguments[compared:]]
    if name in _DECIMALS and (len(arguments) > 1 or name == "decimal"):
        return [limit_decimal(each) if at == _DECIMALS[name] else each for at, each in enumerate(arguments)]
    if name in ("variant_get", "try_variant_get") and len(arguments) > 2:
        return _limit_decimal_get(name, arguments)
    if name in _REMOVED and len(arguments) > 1:
        return [_limit_removed_characters(each) if at == _REMOVED[name] else each for at, each in enumerate(arguments)]
    texts = [arguments[at].literal_text() or "" for at in PATTERNS.get(name, ()) if at < len(arguments)]
    if name in ("parse_url", "try_parse_url"):  # Spark searches for the key with its own pattern
        texts = [f"(&|^){text}=([^&]*)" for text in texts]
    return [limit_for_patterns(arguments[0], texts), *arguments[1:]] if texts else arguments


def limit_for_patterns(value: Node, patterns: Sequence[str]) -> Node:
    """Return a node with the value of a string, which fails if it is too long for one of the regular expressions."""
    return _limit_length(value, min(map(pattern_limit, patterns)))


def limit_decimal(value: Node) -> Node:
    """Return a node with the value of a cast's operand, which fails if its digits take too long to convert."""
    if value.kind in ("number", "constant"):
        return value
    message = (
        f"a number has more than {MAXIMUM_DIGITS} digits or an exponent below -9999, and its conversion to a decimal "
        "may take too long: use left(x, 100), or a double"
    )
    return _fail_with_message(value, f"CAST(`__it` AS STRING) RLIKE {quote(_SLOW_NUMBER)}", message)


def _limit_decimal_get(name: str, arguments: list[Node]) -> list[Node]:
    value, path, wanted = arguments
    if not re.search("dec|numeric", (wanted.literal_text() or "").lower()):
        return arguments
    part = Node("call", value.at, (f"{name}(", value, ", ", path, ", 'variant')"), name)
    return [limit_decimal(part), Node("text", path.at, (quote("$"),), "$"), wanted]


def _limit_removed_characters(value: Node) -> Node:
    message = f"more than {MAXIMUM_REMOVED} characters to remove may take too long: use left(x, {MAXIMUM_REMOVED})"
    return _fail_with_message(value, f"length(`__it`) > {MAXIMUM_REMOVED}", message)


def _limit_hashed_members(value: Node, name: str) -> Node:
    if name not in _HASHED:
        return value
    message = (
        f"the array has more than {MAXIMUM_HASHED} members, and {name} takes too long if their hashes are equal: use "
        f"slice(x, 1, {MAXIMUM_HASHED})"
    )
    return _fail_with_message(value, f"size(`__it`) > {MAXIMUM_HASHED}", message)


class MemberTime(NamedTuple):
    """The time of a call's lambdas in nanoseconds, as polynomials.

    `each` is the time for one member, a polynomial in `read`, the number of bytes that the lambdas read, as SQL.
    `together` is the time for all members together, a polynomial in the size of the event. `most` is the limit.
    """

    each: Growth
    together: Growth
    most: int
    read: str


def limit_members(value: Node, name: str, time: MemberTime) -> Node:
    """Return a node with the value of an array or map, which fails if a call's lambdas would take too long."""
    left = f"({time.most}D - {_run_time_expression(time.together, EVENT)})" if any(time.together) else f"{time.most}D"
    read = EVENT if time.read == EVENT else "`__read`"
    allowed = f"greatest(1D, floor({left} / {_run_time_expression(time.each, read)}))"
    if time.read != EVENT:
        allowed = f"transform(array({time.read}), `__read` -> {allowed})[0]"
    parts = (
        quote(f"the lambda of {name} takes too long for "),
        "size(`__it`)",
        quote(" members in an event of "),
        EVENT,
        quote(" bytes, as it reads other values of the event for each member: use slice(x, 1, "),
        f"CAST({allowed} AS BIGINT)",
        quote("), or let it read only its own member"),
    )
    return _fail_if(value, f"size(`__it`) > 1 AND size(`__it`) > {allowed}", f"concat({', '.join(parts)})")


def _run_time_expression(time: Growth, size: str) -> str:
    terms = [f"{factor}D{f' * {size}' * power}" for power, factor in enumerate(time) if factor]
    return f"({' + '.join(terms)})"


def tries_of_text(node: Node) -> int | None:
    """Return how often a node tries its patterns for each character of its string, or None if it has no patterns."""
    if node.kind == "call" and node.value not in PATTERNS:
        return None
    if node.kind == "call" and len(node.children) <= PATTERNS[str(node.value)][0]:
        return None if node.value in ("parse_url", "try_parse_url") else 1
    if node.kind == "operator" and node.value not in ("rlike", "regexp", "like", "ilike"):
        return None
    if node.kind not in ("call", "operator"):
        return None
    text = node.children[0]
    limited = text.kind == "limited" and isinstance(text.value, str)
    return -(-MAXIMUM_TRIES // int(str(text.value))) if limited else -(-MAXIMUM_TRIES // NO_LIMIT)


def limit_for_like(value: Node, patterns: Sequence[str]) -> Node:
    """Return a node with the value of a string, which fails if it is too long for one of the LIKE patterns."""
    return _limit_length(value, min(map(like_limit, patterns)))


def like_limit(pattern: str) -> int:
    """Return the maximum number of characters in a string for a LIKE pattern, 0 if the pattern is rejected.

    Every % may end at several positions, except one at the end of the pattern.
    """
    return text_limit(re.sub("%+", "%", pattern).removesuffix("%").count("%"))


def _limit_length(value: Node, limit: int) -> Node:
    if limit >= NO_LIMIT:
        return value
    message = f"the text has more than {limit} characters, and the pattern may take too long: use left(x, {limit})"
    return _fail_with_message(value, f"length(`__it`) > {limit}", message, str(limit))


def _limit_compared_members(value: Node, name: str, limit: int) -> Node:
    what, remedy = ("map", "map_filter(...)") if name == "map_zip_with" else ("array", f"slice(x, 1, {limit})")
    message = (
        f"the {what} has more than {limit} members, and {name} compares each array, struct or binary value "
        f"with every other one: use {remedy}, or compare texts or numbers"
    )
    nested = "typeof(`__it`) RLIKE '^(array|map)<(array|struct|binary)'"
    return _fail_with_message(value, f"size(`__it`) > {limit} AND {nested}", message)


def _fail_with_message(value: Node, problem: str, message: str, longest: str | None = None) -> Node:
    return _fail_if(value, problem, quote(message), longest)


def _fail_if(value: Node, problem: str, message: str, longest: str | None = None) -> Node:
    """Return a node that fails with a message, given as SQL; `longest` is the maximum length for a pattern."""
    parts = ("transform(array(", value, f"), `__it` -> if({problem}, raise_error({message}), `__it`))[0]")
    return Node("limited", value.at, parts, longest)
