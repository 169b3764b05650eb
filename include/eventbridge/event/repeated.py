"""Whether a JSON object has a member twice: parsers keep one of the two, and not every parser the same one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec


def has_each_once(body: bytes) -> bool:
    """Return whether a JSON object surely has no member twice at its top; its members are not looked into.

    A decoder drops one of two members, and with it at least the quotes of its name: then the quotes of what is left
    are fewer than those of `body`. False also for a name with escaped quotes, and for what the decoder refuses.
    """
    try:
        members = _MEMBERS.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return body.count(b'"') == 2 * len(members) + b"".join(members.values()).count(b'"')


def repeated_member(body: bytes) -> str | None:
    """Return the name of a member that a JSON object of `parse_document` has twice at its top; None without one."""
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
# The object at the top is the last one that is finished.
_NAMES: Final = json.JSONDecoder(object_pairs_hook=_names_of, parse_int=str, parse_float=str)
