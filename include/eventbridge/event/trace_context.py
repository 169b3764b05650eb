"""Reads the W3C trace context of an event from its CloudEvents extensions `traceparent` and `tracestate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: The names of the extensions, and of the headers.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_WHOLE = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

# W3C Trace Context, 3.3.1.3: `key=value` or `tenant@system=value`; a value is printable ASCII without commas and equals
# signs.
_MEMBER = re.compile(
    r"(?:[a-z0-9][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MAX_MEMBERS = 32
#: The maximum length of a `tracestate` to pass on (3.3.1.5), and the length above which a member is omitted first.
_LONGEST_STATE = 512
_LONG_MEMBER = 128


def is_traceparent(text: object) -> bool:
    """Return whether a value is a W3C `traceparent` of version 00."""
    return isinstance(text, str) and _WHOLE.fullmatch(text) is not None


def forwarded_state(text: object) -> str | None:
    """Return the `tracestate` to pass on, with at most 512 characters; None if nothing is passed on.

    A value that is not a W3C `tracestate` is dropped. One that is too long first loses its members of more than 128
    characters, and then its last members.
    """
    if not isinstance(text, str):
        return None
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    if len(keys) != len(members) or len(members) > _MAX_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return None
    if len(",".join(members)) > _LONGEST_STATE:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > _LONGEST_STATE:
        members.pop()
    return ",".join(members) or None


def trace_headers(event: Mapping[str, object]) -> dict[str, str]:
    """Return the headers with the trace context of an event, or none if it has no `traceparent` of version 00."""
    parent = event.get(TRACEPARENT)
    if not isinstance(parent, str) or not is_traceparent(parent):
        return {}
    state = forwarded_state(event.get(TRACESTATE))
    return {TRACEPARENT: parent} if state is None else {TRACEPARENT: parent, TRACESTATE: state}
