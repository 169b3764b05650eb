"""Batch requests: which deliveries of a target are sent together, and under which id. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from eventbridge.event.ids import delivery_id_text

#: The kinds of items of a JSON array: whole events, or other JSON values; one array never has both.
Kind = Literal["events", "values"]

#: The content type of an array, by kind (CloudEvents HTTP binding 1.0.2, 3.3).
MEDIA_TYPES: Final[dict[Kind, str]] = {"events": "application/cloudevents-batch+json", "values": "application/json"}

_EVENT = "application/cloudevents+json"
_JSON = re.compile(r"[^/;\s]+/(?:[^;\s]*\+)?json", re.IGNORECASE)
_UTF8 = re.compile(r'charset="?utf-?8"?', re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """The most deliveries and bytes of a batch request; a single delivery may be larger."""

    count: int
    size_bytes: int


class Candidate(NamedTuple):
    """A delivery that is next: with `kind` None it is sent alone; `most` limits the size of its batch request."""

    kind: Kind | None
    size_bytes: int
    most: int


def kind_of(content_type: str) -> Kind | None:
    """Return the kind of item that a payload of this content type is, if the payload conforms; None: it is not an item.

    Parameters other than `charset=utf-8` would be lost in the array's content type: a delivery with any is sent alone.
    """
    media_type, *parameters = (part.strip() for part in content_type.split(";"))
    if not _JSON.fullmatch(media_type) or not all(_UTF8.fullmatch(each) for each in parameters):
        return None
    return "events" if media_type.lower() == _EVENT else "values"


def together(candidates: Iterable[Candidate], limits: Limits) -> int:
    """Return how many of the next deliveries, in order, are sent in one request: at least one.

    At most one more candidate than that is consumed. Returns 0 if there is none.
    """
    count, size_bytes, most = 0, 1, limits.count
    first: Kind | None = None
    for candidate in candidates:
        size_bytes += candidate.size_bytes + 1  # including the comma before it, or the brackets
        if count == 0:
            first = candidate.kind
            if first is None:
                return 1
        elif candidate.kind != first or size_bytes > limits.size_bytes:
            break
        most = min(most, candidate.most)
        if count >= most:
            break
        count += 1
    return count


def after_refusal(limits: Limits, code: int | None, count: int, size_bytes: int) -> Limits:
    """Return the limits after a batch request of `count` deliveries and a body of `size_bytes` was refused with `code`.

    413: the next requests have at most half the bytes; 431 (too many ids for a header): half the deliveries.
    """
    if count > 1 and code == 413:
        return Limits(limits.count, min(limits.size_bytes, size_bytes // 2))
    if count > 1 and code == 431:
        return Limits(min(limits.count, max(1, count // 2)), limits.size_bytes)
    return limits


def joined(payloads: Sequence[bytes]) -> bytes:
    """Return JSON values as one JSON array, each byte for byte."""
    return b"[" + b",".join(payloads) + b"]"


def ids_text(ids: Sequence[str]) -> str:
    """Return delivery ids as the value of header `webhook-ids`: in the order of the items, separated by commas."""
    return ",".join(ids)


def batch_request_id(ids: Sequence[str]) -> str:
    """Return the `webhook-id` of a batch request: the id of a single delivery, else a UUIDv8 of 16 bytes of SHA-256.

    It is the hash of `ids_text`: the same deliveries in the same order have the same id, and a signature, which covers
    `webhook-id`, covers the list too.
    """
    if len(ids) == 1:
        return ids[0]
    raw = bytearray(hashlib.sha256(ids_text(ids).encode()).digest()[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    return delivery_id_text(bytes(raw))
