"""Defines the rule-file fields of the target type `http`; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from eventbridge.config.quantities import write_duration
from eventbridge.event.json_document import Number
from eventbridge.rules.address import url_error
from eventbridge.rules.fields import Fields
from eventbridge.rules.frozen import FrozenModel
from eventbridge.rules.model import StatusRules, Target, Transform
from eventbridge.rules.types import BATCHED_CHUNK, SMALL_CHUNK, ChunkSize, Takes, TargetType
from eventbridge.rules.vocabulary import COMPRESSIONS, CONTENT_MODES, METHODS, SIGNATURE_HEADERS
from eventbridge.targets.http.header_names import read_headers
from eventbridge.transform.template import parse_template

#: The beginning of the names of the id, time and signature headers, by the word for the set.
PREFIXES: Final = {"standard": "webhook", "svix": "svix"}


class HttpFields(Target):
    """An HTTP endpoint that deliveries are sent to; without `url`, the connection contains the URL.

    `connect_seconds` is the part of an attempt's timeout that connecting may take.
    """

    LATER: ClassVar[tuple[str, ...]] = (
        "method",
        "headers",
        "statuses",
        "signature_headers",
        "compression",
        "handshake",
    )

    type: Literal["http"] = "http"
    url: str = ""
    connection: str | None = None
    connect_seconds: float = 5.0
    allow_http: bool = False
    batch: BatchLimits | None = None  # None: one request per delivery
    method: str = "POST"
    headers: Mapping[str, str] = Field(default_factory=dict)  # those of every request
    statuses: StatusRules = StatusRules()
    signature_headers: Literal["standard", "svix"] = "standard"
    compression: Literal["none", "gzip"] = "none"
    proxy: str | None = None  # the connection of an egress proxy
    handshake: str | None = None  # the origin in the handshake; None: there is none


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    allow_http = fields.flag("allow_http", default=False)
    # a connection may contain the URL; only a running task can read connections
    url = fields.text("url", required=not fields.has("connection"))
    if url and (problem := url_error(url, allow_http=allow_http)):
        fields.add_to("url", *problem)
    of_deliveries = {}
    if transform is not None:
        mode = fields.choice("content_mode", "structured", CONTENT_MODES)
        batch, origin = read_batch(fields, transform), _handshake_origin(fields)
        of_deliveries = {"content_mode": mode, "batch": batch, "handshake": origin}
    return {
        "url": url,
        "connection": fields.name("connection") or None,
        "proxy": fields.name("proxy") or None,
        **_timeouts(fields),
        "max_in_flight": fields.whole("max_in_flight", 32, 1, 10_000),
        "allow_http": allow_http,
        "method": _method(fields),
        "headers": read_headers(fields),
        "statuses": _statuses(fields),
        "signature_headers": _signature_headers(fields),
        "compression": fields.choice("compression", COMPRESSIONS[0], COMPRESSIONS),
        **of_deliveries,
    }


def _method(fields: Fields) -> Any:
    node = fields.get("method")
    if node is not None and node.value == "GET":
        message = "a GET request has no body, so the receiver would get no event"
        fields.add_to("method", message, f"Write {', '.join(METHODS[:-1])} or {METHODS[-1]}")
        return METHODS[0]
    return fields.choice("method", METHODS[0], METHODS)


def _signature_headers(fields: Fields) -> Any:
    if fields.get("signature") is None:
        return SIGNATURE_HEADERS[0]
    fields.refuse_empty("signature", "Write signature: {headers: svix}, or remove it")
    signature = fields.nested("signature", "a signature")
    signature.close()
    return signature.choice("headers", SIGNATURE_HEADERS[0], SIGNATURE_HEADERS)


_ORIGIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.I)


def _handshake_origin(fields: Fields) -> str | None:
    if fields.get("handshake") is None:
        return None
    handshake = fields.nested("handshake", "a handshake")
    handshake.close()
    origin = handshake.text("origin", required=True)
    if origin and not _ORIGIN.fullmatch(origin):
        message = f"{origin[:60]!r} is not a host name"
        handshake.add_to("origin", message, "Write the name of this installation, such as events.shop.example")
    return origin or None


_STATUS = re.compile(r"([3-5])(?:xx|[0-9]{2}(?:-([3-5][0-9]{2}))?)", re.ASCII)
_STATUS_EXAMPLE = "Write a status, a class or a range, such as 429, 5xx or 500-599"


def _statuses(fields: Fields) -> StatusRules:
    known: dict[range, str] = {}
    lists = {name: _status_list(fields, name, known) for name in ("retry_on", "dead_letter_on")}
    return StatusRules(**lists)


def _status_list(fields: Fields, name: str, known: dict[range, str]) -> tuple[str, ...]:
    """Return a list of statuses as ranges, and add the ranges to `known`. They may not overlap the ranges in
    `known`."""
    node = fields.get(name)
    if node is None:
        return ()
    if not isinstance(node.value, list) or not node.value:
        what = node.kind() if node.value else "empty"
        fields.add(node, f"{name} must be a list of statuses, but this is {what}", f"Write {name}: [429, 5xx]")
        return ()
    found = []
    for child in node.value:
        text = child.value.text if isinstance(child.value, Number) else child.value
        statuses = _status_range(text) if isinstance(text, str) else None
        if statuses is None:
            what = repr(text[:60]) if isinstance(text, str) else child.kind()
            fields.add(child, f"{what} is not a status from 300 to 599", _STATUS_EXAMPLE)
            continue
        double = next((each for each in known if statuses.start < each.stop and each.start < statuses.stop), None)
        if double is not None:
            fields.add(child, f"{text} overlaps {known[double]}", "List each status once")
            continue
        known[statuses] = f"{text} of {name}"
        found.append(f"{statuses.start}-{statuses.stop - 1}" if len(statuses) > 1 else str(statuses.start))
    return tuple(found)


def _status_range(text: str) -> range | None:
    parts = _STATUS.fullmatch(text)
    if parts is None:
        return None
    first = int(f"{parts[1]}00" if text.endswith("xx") else text[:3])
    last = first + 99 if text.endswith("xx") else int(parts[2] or first)
    return range(first, last + 1) if first <= last else None


def _timeouts(fields: Fields) -> dict[str, Any]:
    node = fields.get("timeout")
    if node is None or not isinstance(node.value, dict):
        return {"timeout_seconds": fields.duration("timeout", 10.0, 1.0, 30.0)}
    fields.refuse_empty("timeout", "Write total, connect or both, or remove it")
    both = fields.nested("timeout", "a timeout")
    both.close()
    total = both.duration("total", 10.0, 1.0, 30.0)
    connect = both.duration("connect", 5.0, 0.1, 30.0)
    if both.has("connect") and connect > total:
        message = f"connect is {write_duration(connect)}, but must not be longer than total, which includes it"
        both.add_to("connect", message, f"Write connect: {write_duration(total)} or less")
    return {"timeout_seconds": total, "connect_seconds": connect}


def _takes(target: HttpFields) -> Takes:
    return "batch_requests" if target.batch is not None else "deliveries"


def _chunk_size(target: HttpFields) -> ChunkSize:
    if target.batch is None:
        return SMALL_CHUNK
    # yields as many requests as without `batch`, as far as memory allows
    return ChunkSize(min(SMALL_CHUNK.deliveries * target.batch.count, BATCHED_CHUNK.deliveries), BATCHED_CHUNK.size)


HTTP = TargetType(
    "http",
    HttpFields,
    "eventbridge.targets.http.open:open_http",
    takes=_takes,
    chunk_size=_chunk_size,
    read=_read_fields,
    words=(
        "url",
        "connection",
        "timeout",
        "max_in_flight",
        "content_mode",
        "allow_http",
        "batch",
        "method",
        "headers",
        "retry_on",
        "dead_letter_on",
        "signature",
        "compression",
        "handshake",
        "proxy",
    ),
)


#: The maximum number of deliveries in a batch request. The ids of 200 make a header of 7.4 KB, and most servers accept
#: header lines of 8 KB.
_MAX_DELIVERIES = 200
_SMALLEST_BYTES, _LARGEST_BYTES = 1 << 10, 1 << 20
_EXAMPLE = "batch: {count: 100, bytes: 256KiB}"


class BatchLimits(FrozenModel):
    """The maximum number of deliveries, and of bytes of the body, in a batch request."""

    count: int = 100
    size_bytes: int = 256 << 10


def read_batch(fields: Fields, transform: Transform) -> BatchLimits | None:
    """Return the `batch` field of a target; rejects combinations that do not fit into one JSON array."""
    node = fields.get("batch")
    if node is None:
        return None
    tolerance, mode = fields.get("errors_tolerance"), fields.get("content_mode")
    if fields.has("ordering_key") or (tolerance is not None and tolerance.value == "none"):
        message = "{} cannot be used with an ordered target, whose deliveries are sent one at a time"
        fields.refuse(("batch",), message, "Remove it, or ordering_key and errors_tolerance")
    if mode is not None and mode.value == "binary":
        message = "{} puts deliveries into one JSON array, but content_mode binary needs headers for each"
        fields.refuse(("batch",), message, "Remove it, or write content_mode: structured or content_mode: data")
    if transform.form == "TEMPLATE" and not _produces_json(transform):
        message = "{} puts deliveries into one JSON array, but this template produces text"
        fields.refuse(("batch",), message, "Remove it, or write the template as JSON")
    size = fields.nested("batch", "a batch")
    size.close()
    fields.refuse_empty("batch", f"Write {_EXAMPLE}, or one of the two")
    default = BatchLimits()
    return BatchLimits(
        count=size.whole("count", default.count, 2, _MAX_DELIVERIES),
        size_bytes=size.size("bytes", default.size_bytes, _SMALLEST_BYTES, _LARGEST_BYTES),
    )


def _produces_json(transform: Transform) -> bool:
    return parse_template(transform.template or "", content_type=transform.content_type)[0].is_json
