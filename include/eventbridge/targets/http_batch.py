"""Reads the field `batch`: whether several deliveries of a target share a request, and how many."""

from __future__ import annotations

from eventbridge.rules.fields import Fields
from eventbridge.rules.frozen import FrozenModel
from eventbridge.rules.model import Transform
from eventbridge.transform.template import parse_template

#: 200 delivery ids are a header of 7.4 KB: what most servers still take as one line, 8 KB.
_MOST = 200
_SMALLEST_BYTES, _LARGEST_BYTES = 1 << 10, 1 << 20
_EXAMPLE = "batch: {count: 100, bytes: 256KiB}"


class BatchLimits(FrozenModel):
    """The maximum size of a batch request: deliveries, and bytes of the request's body."""

    count: int = 100
    size_bytes: int = 256 << 10


def read_batch(fields: Fields, transform: Transform) -> BatchLimits | None:
    """Return the field `batch` of a target; rejects combinations that do not fit into one JSON array."""
    node = fields.get("batch")
    if node is None:
        return None
    tolerance, mode = fields.get("errors_tolerance"), fields.get("content_mode")
    if fields.has("ordering_key") or (tolerance is not None and tolerance.value == "none"):
        message = "{} is not for an ordered target: its deliveries are sent one after the other"
        fields.refuse(("batch",), message, "Remove it, or ordering_key and errors_tolerance")
    if mode is not None and mode.value == "binary":
        message = "{} puts deliveries into one JSON array, but content_mode binary needs headers for each"
        fields.refuse(("batch",), message, "Remove it, or write content_mode: structured or content_mode: data")
    if transform.form == "TEMPLATE" and not parse_template(transform.template or "")[0].is_json:
        message = "{} puts deliveries into one JSON array, but this template produces text"
        fields.refuse(("batch",), message, "Remove it, or write the template as JSON")
    size = fields.below("batch", "a batch")
    size.close()
    fields.refuse_empty("batch", f"Write {_EXAMPLE}, or one of the two")
    default = BatchLimits()
    return BatchLimits(
        count=size.whole("count", default.count, 2, _MOST),
        size_bytes=size.size("bytes", default.size_bytes, _SMALLEST_BYTES, _LARGEST_BYTES),
    )
