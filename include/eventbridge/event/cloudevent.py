"""Parses CloudEvents 1.0 in structured JSON strictly, and recognises most of them at a quarter of that cost.

The buffer stage calls it once per event. A refused body becomes a dead letter with the reason `malformed` and the error
raised here. `parse_event` accepts every body that `recognise` accepts, with the same identity; tests compare the two. A
body that is not recognised may still be an event, for example one with numbers that a float cannot hold, halves of
surrogate pairs, many brackets, or extensions that are numbers.
"""

from __future__ import annotations

import binascii
import json
import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from eventbridge.errors import EventError
from eventbridge.event.json_document import MAXIMUM_DEPTH, JsonValue, Number, parse_document, type_name


@dataclass(frozen=True, slots=True)
class Event:
    """One CloudEvent: the attributes that identify and route it, the parsed document, and the bytes as they arrived.

    `document` holds every member as written, including `data` or `data_base64`; an attribute may be null there,
    which means absent in CloudEvents.
    """

    id: str
    source: str
    type: str
    document: dict[str, JsonValue]
    body: bytes


def parse_event(body: bytes, *, max_bytes: int) -> Event:
    """Return the CloudEvent that `body` holds.

    Raises EventError, which says what is wrong and where, if `body` is larger than `max_bytes`, is not a single strict
    JSON object, does not conform to CloudEvents 1.0 (https://github.com/cloudevents/spec, core and JSON format,
    v1.0.2), or has a member twice.
    """
    if len(body) > max_bytes:
        raise EventError(f"the event has {len(body):,} bytes; the largest allowed is {max_bytes:,}")
    document = parse_document(body)
    check_event(document)
    if (name := repeated_member(body)) is not None:
        raise EventError(f"$.{name}: the event has it twice, and readers may use either. Send it once")
    # The checks guarantee that these are strings. str() returns the same string and satisfies mypy.
    return Event(str(document["id"]), str(document["source"]), str(document["type"]), document, body)


def check_event(document: dict[str, JsonValue]) -> None:
    """Raise EventError, with the first error and its position, if a document is not a CloudEvent 1.0."""
    for error in errors_in(document):
        raise error


def errors_in(document: dict[str, JsonValue]) -> Iterator[EventError]:
    """Yield an error with its position for every reason why a document is not a CloudEvent 1.0."""
    for name, value in document.items():
        check = ATTRIBUTE_CHECKS.get(name)
        try:
            if check is None:
                check_extension(name, value)
            elif value is not None or name == "data_base64":
                check(value)
        except EventError as error:
            yield error
    for name in REQUIRED:
        if document.get(name) is None:
            yield EventError(f"$.{name}: a CloudEvent must have it, but it is {_absence(document, name)}")
    if "data_base64" in document and "data" in document:
        yield EventError("$.data_base64: an event holds data or data_base64, never both")


#: The required attributes.
REQUIRED = ("id", "source", "type", "specversion")

_NAME = re.compile(r"[a-z0-9]+")

# CloudEvents 1.0.2, section 3.1 (type String): control characters, unpaired surrogates and noncharacters are refused.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "]"
)

# RFC 3986, each part unrolled so that the search takes linear time for any input.
_ESCAPE = r"%[0-9A-Fa-f]{2}"
_PATH = rf"[\w\-.~!$&'()*+,;=:@/]*(?:{_ESCAPE}[\w\-.~!$&'()*+,;=:@/]*)*"
_TAIL = rf"[\w\-.~!$&'()*+,;=:@/?]*(?:{_ESCAPE}[\w\-.~!$&'()*+,;=:@/?]*)*"
_USER = rf"[\w\-.~!$&'()*+,;=:]*(?:{_ESCAPE}[\w\-.~!$&'()*+,;=:]*)*@"
_NAMED_HOST = rf"[\w\-.~!$&'()*+,;=]*(?:{_ESCAPE}[\w\-.~!$&'()*+,;=]*)*"
_HOST = rf"(?:\[[0-9A-Fa-f:.]+\]|\[v[0-9A-Fa-f]+\.[\w\-.~!$&'()*+,;=:]+\]|{_NAMED_HOST})"
_AUTHORITY = rf"//(?:{_USER})?{_HOST}(?::[0-9]*)?"
_HIERARCHY = rf"(?:{_AUTHORITY}(?:/{_PATH})?|(?!//){_PATH})"
_ENDS = rf"(?:\?{_TAIL})?(?:#{_TAIL})?"
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.\-]*:{_HIERARCHY}{_ENDS}", re.ASCII)
# The first segment of a relative reference has no colon, because the part before it would be read as a scheme.
_RELATIVE = re.compile(rf"(?![^/?#]*:){_HIERARCHY}{_ENDS}", re.ASCII)

# RFC 3339, section 5.6; the ranges of the digits are checked below.
_TIME = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)

# RFC 2045, section 5.1.
_TOKEN = r"[\w!#$%&'*+\-.^`|{}~]+"
_MEDIA_TYPE = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\\r\n]|\\.)*"))*[ \t]*;?', re.ASCII
)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,9})", re.ASCII)


def _absence(document: dict[str, JsonValue], name: str) -> str:
    return "null" if name in document else "missing"


def _format_value(value: JsonValue) -> str:
    match value:
        case str():
            text = repr(value)
            return text if len(text) <= 80 else f"{text[:76]}...'"
        case Number():
            return value.text if len(value.text) <= 40 else f"{value.text[:40]}..."
        case bool():
            return "true" if value else "false"
        case _:
            return type_name(value)


def _check_text(name: str, value: JsonValue) -> str:
    if not isinstance(value, str):
        raise EventError(f"$.{name}: must be a string, but is {_format_value(value)}")
    if not value:
        raise EventError(f"$.{name}: must not be empty")
    _check_characters(name, value)
    return value


def _check_characters(name: str, value: str) -> None:
    found = _FORBIDDEN.search(value)
    if found:
        raise EventError(
            f"$.{name}: the character U+{ord(found[0]):04X} at position {found.start()} is not allowed in an attribute"
        )


def _check_named(name: str) -> Callable[[JsonValue], None]:
    def check(value: JsonValue) -> None:
        _check_text(name, value)

    return check


def _check_version(value: JsonValue) -> None:
    if value != "1.0":
        raise EventError(f"$.specversion: must be '1.0', but is {_format_value(value)}")


def _check_source(value: JsonValue) -> None:
    text = _check_text("source", value)
    if not (_URI.fullmatch(text) or _RELATIVE.fullmatch(text)):
        raise EventError(f"$.source: {_format_value(value)} is not a URI reference (RFC 3986), such as '/airports/JFK'")


def _check_schema(value: JsonValue) -> None:
    # RFC 3986's absolute-URI has no fragment, but the CloudEvents JSON schema allows one, and JSON Schemas use it.
    if not _URI.fullmatch(_check_text("dataschema", value)):
        raise EventError(f"$.dataschema: {_format_value(value)} is not an absolute URI (RFC 3986)")


def _check_media_type(value: JsonValue) -> None:
    if not _MEDIA_TYPE.fullmatch(_check_text("datacontenttype", value)):
        raise EventError(f"$.datacontenttype: {_format_value(value)} is not a media type such as 'application/json'")


def _check_time(value: JsonValue) -> None:
    text = _check_text("time", value)
    found = _TIME.fullmatch(text)
    if found is None or not _is_real_time(found):
        raise EventError(f"$.time: {_format_value(value)} is not a time such as '2013-01-01T10:17:00Z' (RFC 3339)")


def _is_real_time(time: re.Match[str]) -> bool:
    year, month, day, hour, minute, second, sign, hours, minutes = time.groups()
    if day > "28" and int(day) > monthrange(int(year) or 2000, int(month))[1]:
        return False
    if second != "60":
        return True
    # A leap second is the last second of a UTC day.
    offset = 0 if sign is None else int(f"{sign}1") * (int(hours) * 60 + int(minutes))
    return (int(hour) * 60 + int(minute) - offset) % 1440 == 1439


def _check_base64(value: JsonValue) -> None:
    if not isinstance(value, str):
        raise EventError(f"$.data_base64: must be a string, but is {_format_value(value)}")
    try:
        binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise EventError(f"$.data_base64: is not base64 (RFC 4648): {error}") from None


def _check_nothing(_: JsonValue) -> None:
    """Accept any JSON as data."""


def check_extension(name: str, value: JsonValue) -> None:
    """Raise EventError if a member that CloudEvents does not define is not a valid extension."""
    if not _NAME.fullmatch(name):
        raise EventError(
            f"$: {_format_value(name)} is not an attribute name: only lower-case letters a-z and digits are allowed. "
            "Put everything else into data"
        )
    match value:
        case str():
            _check_characters(name, value)
        case Number():
            if not (_INTEGER.fullmatch(value.text) and -(2**31) <= int(value.text) < 2**31):
                raise EventError(
                    f"$.{name}: a number in an attribute must be an integer of 32 bits, but is {_format_value(value)}"
                )
        case dict() | list():
            raise EventError(
                f"$.{name}: an attribute must be a string, boolean or integer, but is {_format_value(value)}"
            )


#: The check of each member that CloudEvents defines. It raises EventError. A null is checked only in `data_base64`.
ATTRIBUTE_CHECKS: dict[str, Callable[[JsonValue], None]] = {
    "id": _check_named("id"),
    "source": _check_source,
    "specversion": _check_version,
    "type": _check_named("type"),
    "subject": _check_named("subject"),
    "time": _check_time,
    "datacontenttype": _check_media_type,
    "dataschema": _check_schema,
    "data": _check_nothing,
    "data_base64": _check_base64,
}


def recognise(body: bytes, *, max_bytes: int) -> tuple[str, str, str] | None:
    """Return the id, source and type of a body that is certainly an event; None if `parse_event` must decide."""
    document = recognised(body, max_bytes=max_bytes)
    return None if document is None else (document["id"], document["source"], document["type"])


def recognised(body: bytes, *, max_bytes: int) -> dict[str, Any] | None:
    """Return the members of a body that is certainly an event, with Python's numbers; None if `parse_event` must
    decide."""
    if len(body) > max_bytes or body.count(b"{") + body.count(b"[") > MAXIMUM_DEPTH:
        return None
    try:
        # The decoder is as strict as RFC 8259: UTF-8, no control characters, no NaN, nothing after the document.
        document = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if type(document) is not dict:
        return None
    for name, value in document.items():
        if name in _PLAIN and type(value) is str and value.isascii() and value.isprintable() and value:
            continue
        if name != "data" and not _is_sure(name, value):
            return None
    for name in REQUIRED:
        if document.get(name) is None:
            return None
    if "data_base64" in document and "data" in document:
        return None
    return document if has_each_once(body) else None


_DECODER: Final = msgspec.json.Decoder()

#: The maximum length of a cached value. Attributes whose values repeat are checked once per value.
_KEPT_LENGTH: Final = 256
_PLAIN: Final = frozenset(("id", "type", "subject"))
_REPEATED: Final = frozenset(("source", "specversion", "datacontenttype", "dataschema"))


def _is_sure(name: str, value: Any) -> bool:
    """Return whether a member of a document, other than data, is certainly allowed."""
    if type(value) is str:
        if name not in ATTRIBUTE_CHECKS and value.isascii() and value.isprintable():
            return _is_extension(name)
        if name in _REPEATED and len(value) <= _KEPT_LENGTH:
            return _passes_again(name, value)
        return _passes(name, value)
    # null counts as absent, and a boolean is valid in an extension; a number must be checked as written
    return (value is None or (type(value) is bool and name not in ATTRIBUTE_CHECKS)) and _passes(name, value)


def _passes(name: str, value: str | bool | None) -> bool:
    check: Callable[[Any], None] | None = ATTRIBUTE_CHECKS.get(name)
    if value is None and check is not None:
        return name != "data_base64"
    try:
        if check is None:
            check_extension(name, value)
        else:
            check(value)
    except EventError:
        return False
    return True


@lru_cache(maxsize=1_024)
def _is_extension(name: str) -> bool:
    return len(name) <= _KEPT_LENGTH and _passes(name, "")


_passes_again: Final = lru_cache(maxsize=4_096)(_passes)


def has_each_once(body: bytes) -> bool:
    """Return whether a JSON object certainly has no repeated member at its top level; nested objects are not checked.

    A decoder drops one of two members, and with it at least the quotes of its name, so the decoded value has fewer
    quotes than `body`. Also returns False for a name with escaped quotes, and for a body that the decoder refuses.
    """
    try:
        members = _MEMBERS.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return body.count(b'"') == 2 * len(members) + b"".join(members.values()).count(b'"')


def repeated_member(body: bytes) -> str | None:
    """Return the name of a repeated top-level member of a JSON object that `parse_document` accepts; None if there is
    none."""
    if has_each_once(body):
        return None
    seen: set[str] = set()
    for name in _NAMES.decode(body.decode()):
        if name in seen:
            return str(name)
        seen.add(name)
    return None


def _names_of(pairs: Sequence[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in pairs]


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
# The top-level object is completed last, so its names are what `decode` returns.
_NAMES: Final = json.JSONDecoder(object_pairs_hook=_names_of, parse_int=str, parse_float=str)
