"""Renders the ORIGINAL form, the unchanged event, in the structured, binary or data content mode."""

from __future__ import annotations

import base64
import re
from typing import Final

from eventbridge.errors import TransformFailed
from eventbridge.event.bindings import charset_of, codec_of, is_json
from eventbridge.event.cloudevent import Event
from eventbridge.event.json_document import JsonValue, type_name, write_document
from eventbridge.transform.rendered import Rendered, Scope

JSON: Final = "application/json"
STRUCTURED: Final = "application/cloudevents+json"
BYTES: Final = "application/octet-stream"

# The characters to encode: all except printable ASCII, and space, double quote and percent (HTTP binding, 3.1.3.2).
_ENCODED = re.compile(r"[^!#$&-~]")


class StructuredRenderer:
    """Sends the event's own bytes as they arrived."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the event's own bytes."""
        return Rendered(event.body, STRUCTURED)


class DataRenderer:
    """Sends the data alone, as JSON, text or bytes, depending on `datacontenttype`."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the data. Raises TransformFailed if it does not fit `datacontenttype`.

        Without `datacontenttype`, `data` is sent as JSON and `data_base64` as application/octet-stream. The output of
        an event without data has no content type.
        """
        media_type = _media_type_of(event.document)
        return Rendered(_data(event.document, media_type), media_type)


def _media_type_of(document: dict[str, JsonValue]) -> str:
    content_type = document.get("datacontenttype")
    if isinstance(content_type, str):
        return content_type
    if "data" in document:
        return JSON
    return BYTES if "data_base64" in document else ""


class BinaryRenderer:
    """Sends the data as the body, and all other attributes but `datacontenttype` as headers `ce-<name>`."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return data and headers. Raises TransformFailed if the data does not fit `datacontenttype`."""
        payload, media_type, _ = DataRenderer().render(event, scope)
        headers = {
            f"ce-{name}": _percent_encoded(value if isinstance(value, str) else write_document(value))
            for name, value in event.document.items()
            if name not in _NO_HEADER and value is not None
        }
        return Rendered(payload, media_type, headers)


_NO_HEADER = frozenset(("data", "data_base64", "datacontenttype"))


def _percent_encoded(value: str) -> str:
    """Return a value encoded for a header: UTF-8 bytes as upper-case %XY (HTTP binding, section 3.1.3.2)."""
    return _ENCODED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), value)


def _data(document: dict[str, JsonValue], media_type: str) -> bytes:
    """Return the body for the members `data` and `data_base64` (JSON format, section 3.1.2)."""
    encoded = document.get("data_base64")
    if isinstance(encoded, str):
        return base64.b64decode(encoded)
    if "data" not in document:
        return b""
    data = document["data"]
    if is_json(media_type):
        return write_document(data).encode()
    if isinstance(data, str):
        return _text(data, media_type)
    raise TransformFailed(
        f"datacontenttype is {media_type!r}, so data must be a string, but it is {type_name(data)}: "
        "only content_mode: structured can deliver that"
    )


def _text(data: str, media_type: str) -> bytes:
    codec = codec_of(media_type)
    if codec is None:
        raise TransformFailed(
            f"datacontenttype is {media_type!r}, and the charset {charset_of(media_type)!r} is unknown: "
            "publish the data as data_base64, or use content_mode: structured"
        )
    try:
        return data.encode(codec)
    except ValueError as error:
        raise TransformFailed(f"data cannot be encoded as datacontenttype {media_type!r} requires: {error}") from None
