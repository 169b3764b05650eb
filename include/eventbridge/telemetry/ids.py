"""Ids of traces and spans, made of what they are of: whoever tells of it again says the same."""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from uuid import UUID


class TraceParent(NamedTuple):
    """The trace that a delivery is part of, the span above it (0: none), and whether it is to be recorded."""

    trace_id: int
    span_id: int
    sampled: bool


def batch_trace(batch_id: str) -> int:
    """Return the id of a batch's trace."""
    return UUID(batch_id).int


def span_id(*words: object) -> int:
    """Return the id of a span by what it is of; never 0."""
    text = "\0".join(map(str, words)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1


def trace_of(delivery_id: bytes, brought: str | None, ratio: float) -> TraceParent:
    """Return the trace of a delivery: the one its event brought, whose publisher samples, else one of its own.

    One of its own has the delivery's id, as the header of its target has; `ratio` of them are sampled, always the same.
    """
    if brought is not None:
        _, trace, parent, flags = brought.split("-")
        return TraceParent(int(trace, 16), int(parent, 16), bool(int(flags, 16) & 1))
    # the top two bits of its lower half are the same in every delivery id
    low = int.from_bytes(delivery_id[8:], "big") & ((1 << 62) - 1)
    return TraceParent(int.from_bytes(delivery_id, "big"), 0, low < ratio * (1 << 62))
