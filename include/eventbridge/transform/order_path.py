"""The ordering key of deliveries: `ordering_key` is a path, as in transforms."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from eventbridge.errors import TransformError
from eventbridge.event.canonical_json import canonical_text
from eventbridge.event.json_document import JsonValue
from eventbridge.transform.jsonpath import MISSING, Path, parse_path

#: Characters of a key; of a longer value, an object or a list perhaps, a hash is the key.
_LONGEST_KEY: Final = 200
#: What is another value for every event: nothing would ever wait for anything.
_UNIQUE: Final = ("id",)


def order_path_problem(text: str) -> tuple[str, str] | None:
    """Return what is wrong with an `ordering_key` that is not `partition`, and the remedy; None if nothing is."""
    if not text.startswith("$"):
        return f"{text!r} is not a path", "Write a path, such as $.data.customer, or partition"
    try:
        path = parse_path(text)
    except TransformError as error:
        return error.message, error.remedy.removesuffix(".")
    if path.steps == _UNIQUE:
        return (
            "every event has an id of its own: no two deliveries would have the same key, and none any order",
            "Name what those share that belong together, such as $.data.customer or $.subject",
        )
    return None


def find_order_key(text: str, document: JsonValue) -> str | None:
    """Return the value at a path as canonical JSON text; None where the path leads to nothing.

    7 and 7.0 are one key, and 7 and "7" are two, as in patterns.
    """
    value = _path(text).find(document)
    if value is MISSING:
        return None
    key = canonical_text(value)
    return key if len(key) <= _LONGEST_KEY else hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1_000)
def _path(text: str) -> Path:
    return parse_path(text)
