"""Converts messages in the binary binding, and plain JSON with a mapping, to CloudEvents in structured JSON.

The buffer stage calls it. A refused message becomes a dead letter with the reason `malformed` and the error raised
here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from encodings.aliases import aliases
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventbridge.errors import EventError
from eventbridge.event.json_document import Number, parse_value

Headers = Sequence[tuple[str, bytes | None]]
#: The form of a message: an event in its body, an event in its headers and body, or a message not marked as an event.
Form = Literal["structured", "binary", "plain"]
#: The prefix of attribute headers in Kafka's binding of CloudEvents.
_PREFIX: Final = "ce_"
_STRUCTURED: Final = "application/cloudevents"
#: The type of the event for a message without a value.
TOMBSTONE: Final = "kafka.tombstone"
#: The prefix with which a mapping refers to a header of the message.
_OF_HEADER: Final = "$header."
_DECODER: Final = msgspec.json.Decoder()
_HALF: Final = re.compile("[\ud800-\udfff]")
_WHOLE: Final = re.compile("-?(?:0|[1-9][0-9]*)", re.ASCII)

# JSON format of CloudEvents, section 3.1.1: the subtype is json or ends with +json.
_JSON = re.compile(r"[^/;]+/(?:[^/;]*\+)?json", re.IGNORECASE)
# RFC 9110, 5.6.6: a parameter's value is a token or a quoted string.
_PARAMETER = re.compile(r'[ \t]*;[ \t]*(?:([^=;"\s]+)=("(?:[^"\\]|\\.)*"|[^;"\s]*))?[ \t]*', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# The allowed codecs. Some of Python's other codecs are not text encodings (rot13, zlib), and some take quadratic time
# (idna, punycode). An arbitrary name would make Python search for a module.
_CODECS: Final = frozenset(
    re.findall(
        "[a-z0-9_]+",
        """
        ascii big5 big5hkscs cp037 cp273 cp424 cp437 cp500 cp775 cp850 cp852 cp855 cp857 cp858 cp860 cp861 cp862
        cp863 cp864 cp865 cp866 cp869 cp932 cp949 cp950 cp1006 cp1026 cp1125 cp1140 cp1250 cp1251 cp1252 cp1253
        cp1254 cp1255 cp1256 cp1257 cp1258 euc_jis_2004 euc_jisx0213 euc_jp euc_kr gb18030 gb2312 gbk hp_roman8 hz
        iso2022_jp iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext iso2022_kr iso8859_2
        iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 iso8859_13
        iso8859_14 iso8859_15 iso8859_16 johab koi8_r koi8_u kz1048 latin_1 mac_cyrillic mac_greek mac_iceland
        mac_latin2 mac_roman mac_turkish ptcp154 shift_jis shift_jis_2004 shift_jisx0213 tis_620 utf_16 utf_16_be
        utf_16_le utf_32 utf_32_be utf_32_le utf_8
        """,
    )
)
_CODEC_OF: Final = {name: codec for name, codec in aliases.items() if codec in _CODECS} | {
    codec: codec for codec in _CODECS
}


class MessageOrigin(NamedTuple):
    """The id and publish time of a message, which are the defaults for attributes that a mapping does not give."""

    id: str
    published_at: datetime


def form_of(headers: Headers) -> Form:
    """Return the form of a message with these headers, whatever its body looks like."""
    media_type = _media_type(headers)
    if media_type.lower().startswith(_STRUCTURED):
        return "structured"
    return "binary" if any(name == f"{_PREFIX}specversion" for name, _ in headers) else "plain"


def event_from_binary(headers: Headers, body: bytes | None) -> bytes:
    """Return the event with the `ce_...` headers as attributes and the body as data; without a body, it has no data.

    A header without a value counts as absent. Data is JSON if the `content-type` header is a JSON type. It is text if
    the media type begins with `text/`, its charset is known, and encoding the text again gives the same bytes.
    Otherwise, for example without a media type, it is bytes. Raises EventError for an attribute that occurs twice, for
    a header that is not UTF-8, and for data that does not match its media type.
    """
    members: dict[str, str] = {}
    for header, value in headers:
        if not header.startswith(_PREFIX) or value is None:
            continue
        name = header.removeprefix(_PREFIX)
        if name in ("data", "data_base64", "datacontenttype"):
            raise EventError(f"header {header}: no attribute has this name in the binary binding")
        if name in members:
            raise EventError(f"header {header}: the attribute {name} occurs twice. Send it once")
        members[name] = _text(header, value)
    media_type = _media_type(headers)
    if media_type:
        members["datacontenttype"] = media_type
    return _event(members.items(), _data(media_type, body))


def event_from_plain(mapping: Mapping[str, str], body: bytes, origin: MessageOrigin, headers: Headers = ()) -> bytes:
    """Return the event that a mapping makes from a JSON value: the mapping gives the attributes, and the value is the
    data.

    The mapping gives an attribute as a literal, as a path to a member of the value (`$.`), or as a header (`$header.`).
    By default, the id is made from the message's position. Raises EventError for a value that is not
    JSON, for a path that leads to nothing, an object or an array, and for a missing header.
    """
    value = _json(body)
    members = [("specversion", "1.0"), *_mapped_members(mapping, value, headers)]
    if "id" not in mapping:
        members.append(("id", origin.id))
    if "time" not in mapping:
        members.append(("time", origin.published_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")))
    members.append(("datacontenttype", "application/json"))
    return _event(members, b'"data":' + body)


def event_from_tombstone(source: str, key: bytes | None, origin: MessageOrigin) -> bytes:
    """Return the event of a message without a value, which deletes its key: the key is the subject, and there is no
    data.

    A key that is not UTF-8, or is no text that an attribute can have, is the extension `keybase64` instead.
    """
    members = [("specversion", "1.0"), ("type", TOMBSTONE), ("source", source), ("id", origin.id)]
    members.append(("time", origin.published_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")))
    if key:
        text = _printable(key)
        members.append(("keybase64", base64.b64encode(key).decode()) if text is None else ("subject", text))
    return _event(members, b"")


def tombstone_problem(key: bytes | None) -> str:
    """Return why a message without a value is no event, with the beginning of its key."""
    if not key:
        return "a message without a value (a tombstone), without a key"
    text = _printable(key)
    shown = f"'{text:.200}'" if text is not None else f"{base64.b64encode(key).decode():.200} (base64)"
    return f"a message without a value (a tombstone), key {shown}"


def _printable(key: bytes) -> str | None:
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _mapped_members(mapping: Mapping[str, str], value: Any, headers: Headers) -> Iterator[tuple[str, str]]:
    for name, text in mapping.items():
        if text.startswith(_OF_HEADER):
            yield name, _header(headers, name, text.removeprefix(_OF_HEADER))
        else:
            yield name, _text_at(value, name, text) if text.startswith("$.") else text


def _header(headers: Headers, name: str, wanted: str) -> str:
    for found, value in headers:
        if found == wanted and value is not None:
            return _text(found, value)
    raise EventError(f"mapping of {name}: the message has no header {wanted}")


def _text_at(value: Any, name: str, path: str) -> str:
    for step in path.split(".")[1:]:
        if not isinstance(value, dict) or step not in value:
            raise EventError(f"mapping of {name}: there is nothing at {path}")
        value = value[step]
    text = _scalar(value)
    if text is None:
        raise EventError(f"mapping of {name}: the value at {path} is neither text nor a whole number")
    if not text.isascii() and (half := _HALF.search(text)):
        raise EventError(f"mapping of {name}: {path} holds U+{ord(half[0]):04X}, one half of a surrogate pair")
    return text


def _scalar(value: Any) -> str | None:
    """Return a value as the string of an attribute, whichever parser decoded it; None if an attribute cannot have
    it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int():
            return str(value)
        case Number() if _WHOLE.fullmatch(value.text):
            return value.text if value.text != "-0" else "0"
    return None


def _data(media_type: str, body: bytes | None) -> bytes:
    if body is None or (not body and not media_type):
        return b""
    if is_json(media_type):
        _json(body)
        return b'"data":' + body
    text = _text_data(media_type, body) if kind_of(media_type).startswith("text/") else None
    if text is not None:
        return b'"data":' + msgspec.json.encode(text)
    return b'"data_base64":"' + base64.b64encode(body) + b'"'


def _text_data(media_type: str, body: bytes) -> str | None:
    """Return data as text; None if it must stay bytes."""
    codec = codec_of(media_type)
    if codec is None:
        return None
    try:
        return text_of(body, codec)
    except UnicodeDecodeError as error:
        charset = charset_of(media_type)
        if not charset:  # without a charset, the encoding is unknown
            return None
        raise EventError(f"data: its media type is {media_type}, but byte {error.start} is not {charset}") from None


def _json(body: bytes) -> Any:
    """Return a JSON value; a body that the fast decoder refuses, such as a number beyond a float's range, is parsed
    again."""
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            return parse_value(body)
        except EventError as error:
            raise EventError(f"data: {error}") from None


def _event(members: Iterable[tuple[str, str]], data: bytes) -> bytes:
    parts = [msgspec.json.encode(name) + b":" + msgspec.json.encode(value) for name, value in members]
    return b"{" + b",".join([*parts, data] if data else parts) + b"}"


def _media_type(headers: Headers) -> str:
    found = [(name, value) for name, value in headers if name.lower() == "content-type" and value is not None]
    if len(found) > 1:
        raise EventError("header content-type: it occurs twice. Send it once")
    return _text(*found[0]) if found else ""


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EventError(f"header {name}: it is not UTF-8 at byte {error.start}") from None


#: The codecs with which decoding and then encoding always gives the original bytes.
_REVERSIBLE: Final = frozenset(("ascii", "latin_1", "utf_8"))


def kind_of(media_type: str) -> str:
    """Return a media type in lower case and without parameters; "" if there is none."""
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Return whether data of a media type is JSON. Its charset is ignored because JSON is UTF-8 (RFC 8259, 8.1)."""
    return _JSON.fullmatch(kind_of(media_type)) is not None


def charset_of(media_type: str) -> str:
    """Return the `charset` parameter of a media type as written; "" if it has none."""
    position = media_type.find(";")
    while position >= 0 and (found := _PARAMETER.match(media_type, position)):
        if (found[1] or "").lower() == "charset":
            value = found[2]
            return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
        position = found.end() if found.end() < len(media_type) else -1
    return ""


def codec_of(media_type: str) -> str | None:
    """Return Python's name of a media type's encoding: UTF-8 if it has no charset, None if its charset is not
    allowed."""
    charset = charset_of(media_type)
    return _CODEC_OF.get(re.sub("[^a-z0-9]+", "_", charset.lower())) if charset else "utf_8"


def text_of(body: bytes, codec: str) -> str | None:
    """Return bytes as text; None if encoding that text gives other bytes. Raises UnicodeDecodeError."""
    text = body.decode(codec)
    if codec in _REVERSIBLE:
        return text
    try:
        return text if text.encode(codec) == body else None
    except UnicodeEncodeError:
        return None
