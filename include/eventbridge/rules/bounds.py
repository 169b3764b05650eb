"""Limits the values, errors, bytes and CPU time of a rule file or pattern that a request contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from eventbridge.errors import EventError, PatternError, RuleError, RuleFileError
from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.rules.node import Location

#: The maximum number of keys and values in one file, enough for several hundred rules. It does not apply to files in
#: the rules folder.
MAX_VALUES: Final = 50_000
#: The maximum size of one file or pattern, in bytes.
MAX_BYTES: Final = 1 << 20
#: The maximum CPU time, in seconds, of a call that reads a file or pattern, because a short regular expression or
#: JSONata program may take very long.
MAX_SECONDS: Final = 10.0
#: The maximum number of reported errors, because each may require a search for the nearest name.
MAX_ERRORS: Final = 200
#: The maximum number of characters in the path of a value. A long key is repeated in the path of every value under it.
MAX_IN_PATH: Final = 1_000
#: The maximum number of characters in each string of an error or warning, because many may quote the same long name.
MAX_IN_TEXT: Final = 1_000
#: The maximum size of a file, in bytes, for which PyYAML's slow parser is used to improve an error message.
MAX_BYTES_FOR_LOCATIONS: Final = 1 << 16


class BoundedErrors(list[RuleError]):
    """The errors in rule files, one of which came with a request. Raises RuleFileError once it holds MAX_ERRORS."""

    def append(self, error: RuleError) -> None:
        """Add an error, with its strings cut to MAX_IN_TEXT characters."""
        path, message, remedy = map(cut, (error.path, error.message, error.remedy))
        super().append(replace(error, path=path, message=message, remedy=remedy))
        if len(self) >= MAX_ERRORS:
            raise RuleFileError(self)

    def extend(self, errors: Iterable[RuleError]) -> None:
        """Add errors one by one."""
        for each in errors:
            self.append(each)


def cut(text: str) -> str:
    """Return a string of an error or warning, cut to MAX_IN_TEXT characters."""
    return text if len(text) <= MAX_IN_TEXT else f"{text[:MAX_IN_TEXT]}..."


def too_long(content: bytes, file: str) -> RuleError | None:
    """Return the error for a file of more than MAX_BYTES bytes, or None for a smaller one."""
    if len(content) <= MAX_BYTES:
        return None
    message = f"the file has {len(content):,} bytes; the limit for a file that is sent is {MAX_BYTES:,}"
    return Location(file, 1, 1).error("$", message, "Split it, or check it with `eventbridge rules check`")


def too_many_values(location: Location) -> RuleError:
    """Return the error for a file with too many keys and values."""
    message = f"the file has more than {MAX_VALUES:,} keys and values, the limit for a file that is sent"
    return location.error("$", message, "Split it, or check it with `eventbridge rules check`")


def too_long_path(location: Location) -> RuleError:
    """Return the error for a value whose path is too long."""
    message = f"the path of this value has more than {MAX_IN_PATH:,} characters, the limit for a file that is sent"
    return location.error("$", message, "Write shorter keys, or check it with `eventbridge rules check`")


def parse_sent_pattern(text: str) -> Pattern:
    """Return the pattern that JSON text describes, as `parse_pattern` does. Raises PatternError.

    JSON text of more than MAX_BYTES bytes or MAX_VALUES keys and values is rejected before it is parsed as a pattern.
    """
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > MAX_BYTES:
        raise PatternError(
            f"the pattern has {len(content):,} bytes; the limit for a pattern that is sent is {MAX_BYTES:,}",
            remedy="Send a part of it",
        )
    try:
        count = _count(parse_document(content))
    except EventError:
        count = 0  # parse_pattern raises the error
    if count > MAX_VALUES:
        raise PatternError(
            f"the pattern has {count:,} keys and values; the limit for a pattern that is sent is {MAX_VALUES:,}",
            remedy="Send a part of it",
        )
    return parse_pattern(content)


def _count(document: object) -> int:
    """Return the number of keys and values in a JSON document."""
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
