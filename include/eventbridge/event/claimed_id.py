"""The id that a message claims to have, whether it is a CloudEvent or not; people search for messages by it."""

from __future__ import annotations

import hashlib
import json
import re

from eventbridge.errors import EventError
from eventbridge.event.json_document import parse_document

_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


def claimed_id(body: bytes) -> str | None:
    """Return the text of `id` in a message; if the message is not a JSON object, the text after its first `"id":`.

    None if there is none.
    """
    try:
        found = parse_document(body).get("id")
    except EventError:
        return _first_written(body)
    return found if isinstance(found, str) else None


def _first_written(body: bytes) -> str | None:
    found = _ID.search(body)
    if found is None:
        return None
    try:
        return str(json.loads(found[1]))
    except ValueError:  # not UTF-8, or an unknown escape
        return None


def hash_of(event_id: str) -> int:
    """Return the 64-bit hash, as a signed number, by which the index of event ids finds an id."""
    encoded = event_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little", signed=True)
