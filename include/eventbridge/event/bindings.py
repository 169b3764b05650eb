"""Other forms of messages as CloudEvents in structured JSON: the binary binding, and plain JSON by a mapping.

Called by the buffer stage; what it refuses becomes a dead letter `Malformed` with the reason given here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventbridge.errors import EventError
from eventbridge.event.json_document import parse_value

Headers = Sequence[tuple[str, bytes | None]]
#: How a message says that it is an event: in its body, in its headers, or not at all.
Form = Literal["structured", "binary", "plain"]

#: What the headers of attributes begin with, in Kafka's binding of CloudEvents.
_PREFIX: Final = "ce_"
_STRUCTURED: Final = "application/cloudevents"

#: What a mapping says where it means a header of the message.
_OF_HEADER: Final = "$header."


class Place(NamedTuple):
    """Where a message lies and since when: what an event gets of which its body does not say so."""

    id: str
    published_at: datetime


def form_of(headers: Headers) -> Form:
    """Return how a message with these headers says that it is an event; headers go before what a body looks like."""
    media_type = _media_type(headers)
    if media_type.lower().startswith(_STRUCTURED):
        return "structured"
    return "binary" if any(name == f"{_PREFIX}specversion" for name, _ in headers) else "plain"


def of_binary(headers: Headers, body: bytes | None) -> bytes:
    """Return the event whose attributes are headers `ce_...` and whose data is the body; no body: it has no data.

    Data is JSON where the header `content-type` says so or is not there, text where it begins with `text/`, else
    binary. Raises EventError for a header that is not UTF-8, and for data that is not what its media type says.
    """
    members = [(name.removeprefix(_PREFIX), _text(name, value)) for name, value in headers if name.startswith(_PREFIX)]
    for name, _ in members:
        if name in ("data", "data_base64", "datacontenttype"):
            raise EventError(f"header {_PREFIX}{name}: no attribute has this name in the binary binding")
    media_type = _media_type(headers)
    if media_type:
        members.append(("datacontenttype", media_type))
    return _event(members, _data(media_type, body))


def of_plain(mapping: Mapping[str, str], body: bytes | None, place: Place, headers: Headers = ()) -> bytes:
    """Return the event that a mapping makes of a JSON value: attributes as it says, and the value as data.

    An attribute is a text, or, beginning with `$.`, the path of a member of the value, or, with `$header.`, a header.
    The id is the message's place and the time when it was published unless the mapping says otherwise. Raises
    EventError for a value that is not JSON, for a path that leads to nothing, an object or an array, and for a header
    that is not there.
    """
    if body is None:
        raise EventError("the message has no body: it is a tombstone, which holds no event")
    value = _json(body)
    members = [("specversion", "1.0"), *_mapped(mapping, value, headers)]
    if "id" not in mapping:
        members.append(("id", place.id))
    if "time" not in mapping:
        members.append(("time", place.published_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")))
    members.append(("datacontenttype", "application/json"))
    return _event(members, b'"data":' + body)


def _mapped(mapping: Mapping[str, str], value: Any, headers: Headers) -> Iterator[tuple[str, str]]:
    for name, said in mapping.items():
        if said.startswith(_OF_HEADER):
            yield name, _header(headers, name, said.removeprefix(_OF_HEADER))
        else:
            yield name, _found(value, name, said) if said.startswith("$.") else said


def _header(headers: Headers, name: str, wanted: str) -> str:
    for found, value in headers:
        if found == wanted and value is not None:
            return _text(found, value)
    raise EventError(f"mapping of {name}: the message has no header {wanted}")


def _found(value: Any, name: str, path: str) -> str:
    for step in path.split(".")[1:]:
        if not isinstance(value, dict) or step not in value:
            raise EventError(f"mapping of {name}: there is nothing at {path}")
        value = value[step]
    match value:
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case _:
            raise EventError(f"mapping of {name}: {path} leads to neither text nor a whole number")


def _data(media_type: str, body: bytes | None) -> bytes:
    if body is None:
        return b""
    kind = media_type.partition(";")[0].strip().lower()
    if not kind or kind.endswith(("/json", "+json")):
        _json(body)
        return b'"data":' + body
    if kind.startswith("text/"):
        try:
            return b'"data":' + msgspec.json.encode(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise EventError(f"data: it is {kind} and not UTF-8 at byte {error.start}") from None
    return b'"data_base64":"' + base64.b64encode(body) + b'"'


def _json(body: bytes) -> Any:
    """Return a JSON value; what holds a number that a float does not is read again, strictly."""
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            return parse_value(body)
        except EventError as error:
            raise EventError(f"data: {error}") from None


def _event(members: Sequence[tuple[str, str]], data: bytes) -> bytes:
    parts = [msgspec.json.encode(name) + b":" + msgspec.json.encode(value) for name, value in members]
    return b"{" + b",".join([*parts, data] if data else parts) + b"}"


def _media_type(headers: Headers) -> str:
    for name, value in headers:
        if name.lower() == "content-type":
            return _text(name, value)
    return ""


def _text(name: str, value: bytes | None) -> str:
    try:
        return (value or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise EventError(f"header {name}: it is not UTF-8 at byte {error.start}") from None


_DECODER: Final = msgspec.json.Decoder()
