"""Adds headers to deliveries: the trace context of the event, and the id of a replay.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import Event
from eventbridge.event.json_document import parse_document
from eventbridge.event.trace_context import TRACEPARENT, trace_headers
from eventbridge.model.redelivery import REPLAY_ID_HEADER
from eventbridge.transform import Rendered

_NAME = f'"{TRACEPARENT}"'.encode()
_NAMED = re.compile(_NAME)


class _TracedEvent(msgspec.Struct):
    traceparent: object = None
    tracestate: object = None


_DECODER = msgspec.json.Decoder(_TracedEvent)


def traces_of(bodies: pa.ChunkedArray) -> dict[int, dict[str, str]]:
    """Return the trace headers of events, by number.

    If no event has any, the function only searches all bodies once.
    """
    if not any(_has_trace_header(chunk) for chunk in bodies.chunks):
        return {}
    return dict(_find_traces(bodies))


def has_traceparent(content: bytes | memoryview) -> bool:
    """Return whether any event in the concatenated JSON of events may have a `traceparent`."""
    return _NAMED.search(content) is not None


def _has_trace_header(chunk: pa.Array) -> bool:
    content = chunk.buffers()[2]
    return content is not None and has_traceparent(memoryview(content))


def _find_traces(bodies: pa.ChunkedArray) -> Iterator[tuple[int, dict[str, str]]]:
    for number, body in enumerate(bodies.to_pylist()):
        if _NAME in body and (found := trace_headers(_attributes(body))):
            yield number, found


def _attributes(body: bytes) -> Mapping[str, object]:
    try:
        found = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):  # for example half of a surrogate pair, which JSON may contain
        try:
            return parse_document(body)
        except EventError:  # malformed, so not delivered
            return {}
    return {"traceparent": found.traceparent, "tracestate": found.tracestate}


def with_headers(headers: str | None, more: Mapping[str, str]) -> str | None:
    """Return a delivery's additional headers (a JSON object or None), extended with `more`."""
    if not more:
        return headers
    return json.dumps({**(json.loads(headers) if headers else {}), **more})


def delivery_headers(rendered: Rendered, event: Event) -> dict[str, str]:
    """Return the additional headers of a delivery: those of its transform, and the trace context of its event."""
    return {**(rendered.headers or {}), **trace_headers(event.document)}


def with_replay_id(headers: str | None, replay_id: str) -> str | None:
    """Return a delivery's additional headers (a JSON object or None), extended with its replay id, if any."""
    if not replay_id:
        return headers
    return json.dumps({**(json.loads(headers) if headers else {}), REPLAY_ID_HEADER: replay_id})
