"""Refuses, at run time, a text that is too long for the patterns that an expression applies to it.

Java cannot be stopped while it applies a pattern: without this, one event would keep a task slot of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eventbridge.transform.sql.bounds import PATTERNS
from eventbridge.transform.sql.lexer import quoted
from eventbridge.transform.sql.pattern_cost import NO_LIMIT, text_limit
from eventbridge.transform.sql.patterns import pattern_limit
from eventbridge.transform.sql.tree import Node


def for_call(name: str, arguments: list[Node]) -> list[Node]:
    """Return the arguments of a call, the first one limited to what the call's patterns may be applied to."""
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
    parts = (
        "transform(array(",
        value,
        f"), `__text` -> if(length(`__text`) > {most}, raise_error({quoted(said)}), `__text`))[0]",
    )
    return Node("limited", value.at, parts, most)
