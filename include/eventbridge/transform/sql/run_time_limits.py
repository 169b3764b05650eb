"""Limits the arguments of a call whose time grows faster than its event, so that the call fails at run time instead.

Spark cannot stop Java while it applies a pattern to a text, or compares each member of an array with each other:
without a limit, one event would keep a task slot of Spark for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eventbridge.transform.sql.bounds import PATTERNS
from eventbridge.transform.sql.lexer import quoted
from eventbridge.transform.sql.pattern_cost import NO_LIMIT, text_limit
from eventbridge.transform.sql.patterns import pattern_limit
from eventbridge.transform.sql.tree import Node

#: Functions that compare each member with each other where Spark cannot hash members, and how many arguments they
#: compare. Spark 4.2 (`TypeUtils.typeWithProperEquals`) hashes every type but binary, arrays, structs and maps.
PAIRWISE: Final = {
    "array_distinct": 1,
    "array_except": 2,
    "array_intersect": 2,
    "array_union": 2,
    "arrays_overlap": 2,
    "map_zip_with": 2,
}
#: The most members that such a function may compare so: it then takes a second or two for an event of 1 MB.
MAXIMUM_COMPARED: Final = 2_000


def for_call(name: str, arguments: list[Node]) -> list[Node]:
    """Return the arguments of a call, those limited that the call might take too long for."""
    if name in PAIRWISE:
        compared = PAIRWISE[name]
        return [*(_compared(each, name) for each in arguments[:compared]), *arguments[compared:]]
    texts = [arguments[at].literal_text() or "" for at in PATTERNS.get(name, ()) if at < len(arguments)]
    if name in ("parse_url", "try_parse_url"):  # Spark looks for the key by a pattern of its own
        texts = [f"(&|^){text}=([^&]*)" for text in texts]
    return [for_patterns(arguments[0], texts), *arguments[1:]] if texts else arguments


def for_patterns(value: Node, patterns: Sequence[str]) -> Node:
    """Return a text as a node that fails if it is too long for one of some allowed regular expressions."""
    return _limited(value, min(map(pattern_limit, patterns)))


def for_like(value: Node, patterns: Sequence[str]) -> Node:
    """Return a text as a node that fails if it is too long for one of some allowed patterns of LIKE."""
    return _limited(value, min(map(like_limit, patterns)))


def like_limit(pattern: str) -> int:
    """Return how many characters a text may have that a pattern of LIKE is applied to; 0 if the pattern is refused.

    Every % may end in several places, but for one at the end of the pattern.
    """
    return text_limit(re.sub("%+", "%", pattern).removesuffix("%").count("%"))


def _limited(value: Node, most: int) -> Node:
    if most >= NO_LIMIT:
        return value
    said = f"the text has more than {most} characters, and the pattern may take too long: use left(x, {most})"
    return _unless(value, f"length(`__it`) > {most}", said)


def _compared(value: Node, name: str) -> Node:
    what, remedy = (
        ("map", "map_filter(...)") if name == "map_zip_with" else ("array", f"slice(x, 1, {MAXIMUM_COMPARED})")
    )
    said = (
        f"the {what} has more than {MAXIMUM_COMPARED} members, and {name} compares each array, struct or binary value "
        f"with each other: use {remedy}, or compare texts or numbers"
    )
    nested = "typeof(`__it`) RLIKE '^(array|map)<(array|struct|binary)'"
    return _unless(value, f"size(`__it`) > {MAXIMUM_COMPARED} AND {nested}", said)


def _unless(value: Node, problem: str, said: str) -> Node:
    parts = ("transform(array(", value, f"), `__it` -> if({problem}, raise_error({quoted(said)}), `__it`))[0]")
    return Node("limited", value.at, parts)
