"""The header that passes the trace of an event on to its targets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from eventbridge.event.traceparent import TRACEPARENT, is_traceparent

_NAME = f'"{TRACEPARENT}"'.encode()
_NAMED = re.compile(_NAME)


class _Traced(msgspec.Struct):
    traceparent: object = None


_DECODER = msgspec.json.Decoder(_Traced)


def traceparents(bodies: pa.ChunkedArray) -> dict[int, str]:
    """Return what events bring as `traceparent`, by number; those without one cost one search over all of them."""
    if not any(_named(chunk) for chunk in bodies.chunks):
        return {}
    return dict(_brought(bodies))


def names_traceparent(content: bytes | memoryview) -> bool:
    """Return whether some event of a text of events may bring a `traceparent`."""
    return _NAMED.search(content) is not None


def _named(chunk: pa.Array) -> bool:
    content = chunk.buffers()[2]
    return content is not None and names_traceparent(memoryview(content))


def _brought(bodies: pa.ChunkedArray) -> Iterator[tuple[int, str]]:
    for number, body in enumerate(bodies.to_pylist()):
        if _NAME in body:
            try:
                found = _DECODER.decode(body).traceparent
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # of a text that only our own parser takes
            if isinstance(found, str) and is_traceparent(found):
                yield number, found


def with_traceparent(headers: str | None, brought: str | None) -> str | None:
    """Return a delivery's further headers, a JSON object or None, with what its event brought, if there is none."""
    if brought is None:
        return headers
    known = json.loads(headers) if headers else {}
    if TRACEPARENT in known or f"ce-{TRACEPARENT}" in known:
        return headers
    return json.dumps({**known, TRACEPARENT: brought})
