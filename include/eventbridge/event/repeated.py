"""Detects a repeated member of a JSON object: parsers keep one of the two, and differ in which one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec


def has_each_once(body: bytes) -> bool:
    """Return whether a JSON object definitely has no repeated member at its top level; nested objects are not checked.

    A decoder drops one of two members, and with it at least the quotes of its name: the decoded value then has fewer
    quotes than `body`. Returns False also for a name with escaped quotes, and for a body that the decoder refuses.
    """
    try:
        members = _MEMBERS.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return body.count(b'"') == 2 * len(members) + b"".join(members.values()).count(b'"')


def repeated_member(body: bytes) -> str | None:
    """Return the name of a member that is repeated at the top level of a `parse_document` JSON object, else None."""
    if has_each_once(body):
        return None
    seen: set[str] = set()
    for name in _NAMES.decode(body.decode()):
        if name in seen:
            return str(name)
        seen.add(name)
    return None


def _names_of(pairs: Sequence[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in pairs]


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
# The top-level object is the last one to be completed.
_NAMES: Final = json.JSONDecoder(object_pairs_hook=_names_of, parse_int=str, parse_float=str)
