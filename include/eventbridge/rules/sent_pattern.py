"""Patterns in requests: they have the size limits of a rule file in a request."""

from __future__ import annotations

from collections.abc import Mapping

from eventbridge.errors import EventError, PatternError
from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.rules.bounds import MOST_BYTES, MOST_VALUES


def parse_sent_pattern(text: str) -> Pattern:
    """Return the pattern that JSON text describes, as `parse_pattern` does; raises PatternError.

    A text of more than MOST_BYTES, or with more than MOST_VALUES keys and values, is refused before it is read as a
    pattern.
    """
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > MOST_BYTES:
        raise PatternError(
            f"the pattern has {len(content):,} bytes; the limit for a pattern that is sent is {MOST_BYTES:,}",
            remedy="Send a part of it",
        )
    try:
        count = _count(parse_document(content))
    except EventError:
        count = 0  # parse_pattern says what is wrong
    if count > MOST_VALUES:
        raise PatternError(
            f"the pattern has {count:,} keys and values; the limit for a pattern that is sent is {MOST_VALUES:,}",
            remedy="Send a part of it",
        )
    return parse_pattern(content)


def _count(document: object) -> int:
    """Return how many keys and values a JSON document holds."""
    count, rest = 0, [document]
    while rest:
        value = rest.pop()
        count += 1
        if isinstance(value, Mapping):
            count += len(value)
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return count
