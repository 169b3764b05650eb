"""Recognises definite CloudEvents at a quarter of the cost of `parse_event`, which decides about all other bodies.

`parse_event` accepts every body that is recognised here, with the same identity; tests compare the two. A body that is
not recognised may still be an event: with numbers that a float cannot hold, halves of surrogate pairs, many brackets,
or extensions that are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import ATTRIBUTE_CHECKS, REQUIRED, check_extension
from eventbridge.event.json_document import MAXIMUM_DEPTH
from eventbridge.event.repeated import has_each_once


def recognise(body: bytes, *, max_bytes: int) -> tuple[str, str, str] | None:
    """Return id, source and type of a definite event of at most `max_bytes`; None: `parse_event` must decide."""
    document = recognised(body, max_bytes=max_bytes)
    return None if document is None else (document["id"], document["source"], document["type"])


def recognised(body: bytes, *, max_bytes: int) -> dict[str, Any] | None:
    """Return the members of a definite event, with Python's numbers; None: `parse_event` must decide."""
    if len(body) > max_bytes or body.count(b"{") + body.count(b"[") > MAXIMUM_DEPTH:
        return None
    try:
        # The decoder is as strict as RFC 8259: UTF-8, no control characters, no NaN, nothing after the document.
        document = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if type(document) is not dict:
        return None
    for name, value in document.items():
        if name in _PLAIN and type(value) is str and value.isascii() and value.isprintable() and value:
            continue
        if name != "data" and not _is_sure(name, value):
            return None
    for name in REQUIRED:
        if document.get(name) is None:
            return None
    if "data_base64" in document and "data" in document:
        return None
    return document if has_each_once(body) else None


_DECODER: Final = msgspec.json.Decoder()

#: Attributes whose texts repeat are checked once per text; texts longer than this are not cached.
_KEPT_LENGTH: Final = 256
_PLAIN: Final = frozenset(("id", "type", "subject"))
_REPEATED: Final = frozenset(("source", "specversion", "datacontenttype", "dataschema"))


def _is_sure(name: str, value: Any) -> bool:
    """Return whether a member of a document, other than data, is definitely allowed."""
    if type(value) is str:
        if name not in ATTRIBUTE_CHECKS and value.isascii() and value.isprintable():
            return _is_extension(name)
        if name in _REPEATED and len(value) <= _KEPT_LENGTH:
            return _passes_again(name, value)
        return _passes(name, value)
    # null counts as absent, and a boolean is a valid extension; a number must be checked as written
    return (value is None or (type(value) is bool and name not in ATTRIBUTE_CHECKS)) and _passes(name, value)


def _passes(name: str, value: str | bool | None) -> bool:
    check: Callable[[Any], None] | None = ATTRIBUTE_CHECKS.get(name)
    if value is None and check is not None:
        return name != "data_base64"
    try:
        if check is None:
            check_extension(name, value)
        else:
            check(value)
    except EventError:
        return False
    return True


@lru_cache(maxsize=1_024)
def _is_extension(name: str) -> bool:
    return len(name) <= _KEPT_LENGTH and _passes(name, "")


_passes_again: Final = lru_cache(maxsize=4_096)(_passes)
