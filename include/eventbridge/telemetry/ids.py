"""Ids of traces and spans, derived from what they describe: a repeated export has the same ids."""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from uuid import UUID


class TraceParent(NamedTuple):
    """The trace of a delivery, its parent span (0: none), and whether it is sampled."""

    trace_id: int
    span_id: int
    sampled: bool


def batch_trace(batch_id: str) -> int:
    """Return the id of a batch's trace."""
    return UUID(batch_id).int


def span_id(*words: object) -> int:
    """Return the id of a span, derived from `words`; never 0."""
    text = "\0".join(map(str, words)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1


def trace_of(delivery_id: bytes, traceparent: str | None, ratio: float) -> TraceParent:
    """Return the trace of a delivery: the one in its event, sampled by the publisher, else a trace of its own.

    A trace of its own has the delivery's id, like the header that the target receives; the share `ratio` of them is
    sampled, always the same ones.
    """
    if traceparent is not None:
        _, trace, parent, flags = traceparent.split("-")
        return TraceParent(int(trace, 16), int(parent, 16), bool(int(flags, 16) & 1))
    # the top two bits of the lower half are the same in every delivery id
    low = int.from_bytes(delivery_id[8:], "big") & ((1 << 62) - 1)
    return TraceParent(int.from_bytes(delivery_id, "big"), 0, low < ratio * (1 << 62))
