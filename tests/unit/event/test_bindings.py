"""Messages in the binary binding, or plain JSON by a mapping, become events in structured JSON."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest

from eventbridge.errors import EventError
from eventbridge.event.bindings import (
    Headers,
    MessageOrigin,
    event_from_binary,
    event_from_plain,
    event_from_tombstone,
    form_of,
)
from eventbridge.event.cloudevent import parse_event

ATTRIBUTES: Headers = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"7"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order.placed"),
    ("ce_traceid", 'ü"'.encode()),
    ("app", b"\xff"),
]
ORIGIN = MessageOrigin("orders-3-17", datetime(2026, 3, 1, 12, 0, 0, 5_000, tzinfo=UTC))


def typed(media_type: str) -> Headers:
    """Return the attributes, and a media type."""
    return [*ATTRIBUTES, ("Content-Type", media_type.encode())]


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        ([], "plain"),
        ([("content-type", b"application/json")], "plain"),
        ([("content-type", b"Application/CloudEvents+json; charset=utf-8"), ("ce_specversion", b"1.0")], "structured"),
        (typed("application/json"), "binary"),
        ([("ce_specversion", None)], "binary"),
    ],
)
def test_headers_say_what_a_message_is(headers: Headers, form: str) -> None:
    """The media type of whole events goes before attributes in headers."""
    assert form_of(headers) == form


@pytest.mark.parametrize(
    ("media_type", "body", "data"),
    [
        ("application/json", b' {"n": 12345678901234567890.10}\n', '"data": {"n": 12345678901234567890.10}\n'),
        ("application/vnd.shop+json;v=1", b"[1]", '"data":[1]'),
        ("text/plain", 'Zürich "1"'.encode(), '"data":"Zürich \\"1\\""'),
        ("text/plain; charset=iso-8859-1", b"caf\xe9", '"data":"café"'),
        ("text/plain; charset=iso-8859-1", b"\xc3\xa9", '"data":"Ã©"'),
        ('text/plain; x="; charset=ascii"; Charset="ISO-8859-1"', b"\xe9", '"data":"é"'),
        ("text/plain; charset=shift_jis", b"\x93\xfa\x96{", '"data":"日本"'),
        ("text/plain; charset=klingon", b"caf\xe9", '"data_base64":"Y2Fm6Q=="'),
        ("text/plain; charset=zlib", b"x", '"data_base64":"eA=="'),
        ("text/plain; charset=idna", b"x", '"data_base64":"eA=="'),
        ("text/plain", b"caf\xe9", '"data_base64":"Y2Fm6Q=="'),
        ("text/plain; charset=utf-16", b"\xfe\xff\x00a", '"data_base64":"/v8AYQ=="'),
        ("image/png", b"\x00\xff", '"data_base64":"AP8="'),
        ("application/json", None, None),
    ],
)
def test_data_is_what_its_media_type_says(media_type: str, body: bytes | None, data: str | None) -> None:
    """JSON goes in as written, text as a string by its charset, all else as base64; without a body there is no data.

    Text is base64 too where its charset is not known, or where the same text would be written with other bytes.
    """
    made = event_from_binary(typed(media_type), body).decode()
    event = parse_event(made.encode(), max_bytes=1_000)

    assert (event.id, event.source, event.type) == ("7", "/shop", "order.placed")
    assert event.document["traceid"] == 'ü"'
    assert event.document["datacontenttype"] == media_type
    assert "app" not in event.document
    assert made.endswith(f"{data}}}") if data else "data" not in event.document


@pytest.mark.parametrize("body", [b"hello", b'{"a": 1}', b"\x00\xff"])
def test_a_body_without_a_media_type_is_bytes(body: bytes) -> None:
    """Nothing says what they are, and nothing is guessed: the event has them, and no datacontenttype."""
    document = json.loads(event_from_binary(ATTRIBUTES, body))

    assert document["data_base64"] == base64.b64encode(body).decode()
    assert document.keys().isdisjoint({"data", "datacontenttype"})


@pytest.mark.parametrize("body", [None, b""])
def test_no_body_and_no_media_type_are_no_data(body: bytes | None) -> None:
    """An event that leaves as an empty body comes back as it was."""
    assert json.loads(event_from_binary(ATTRIBUTES, body)).keys() == {"specversion", "id", "source", "type", "traceid"}


def test_a_header_without_a_value_is_not_there() -> None:
    """A header of Kafka may be null, which CloudEvents takes as absent."""
    headers: Headers = [("ce_subject", None), ("content-type", None), *typed("text/plain"), ("ce_subject", b"a")]

    assert json.loads(event_from_binary(headers, b"x"))["subject"] == "a"


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        (typed("application/json"), b'1, "id": "8"', "data: not JSON"),
        (typed("application/json"), b"", "data: not JSON"),
        ([*ATTRIBUTES, ("ce_id", b"7")], b"1", "header ce_id: the attribute id occurs twice"),
        ([*typed("text/xml"), ("content-type", b"text/xml")], b"1", "header content-type: it occurs twice"),
        ([*ATTRIBUTES, ("ce_subject", b"\xff")], b"1", "header ce_subject: it is not UTF-8 at byte 0"),
        ([*ATTRIBUTES, ("ce_data", b"1")], b"1", "header ce_data: no attribute has this name"),
        (typed("text/plain; charset=utf-8"), b"a\xff", "text/plain; charset=utf-8, but byte 1 is not utf-8"),
        (typed("text/plain; charset=us-ascii"), b"\xe9", "but byte 0 is not us-ascii"),
    ],
)
def test_an_invalid_body_is_reported(headers: Headers, body: bytes, said: str) -> None:
    """Nothing of a body becomes a member of the event beside its data."""
    with pytest.raises(EventError, match=said):
        event_from_binary(headers, body)


def test_a_mapping_makes_an_event_of_plain_json() -> None:
    """Texts and paths give attributes, the position and the time of the message what the mapping does not."""
    mapping = {"type": "order.changed", "source": "$.shop", "subject": "$.customer.number"}
    made = event_from_plain(mapping, b'{"shop": "/shop", "customer": {"number": 12}, "id": 1.50}', ORIGIN)

    parse_event(made, max_bytes=1_000)
    assert json.loads(made) == {
        "specversion": "1.0",
        "type": "order.changed",
        "source": "/shop",
        "subject": "12",
        "id": "orders-3-17",
        "time": "2026-03-01T12:00:00.005Z",
        "datacontenttype": "application/json",
        "data": {"shop": "/shop", "customer": {"number": 12}, "id": 1.5},
    }
    assert b'"id": 1.50' in made


@pytest.mark.parametrize(
    ("key", "attributes"),
    [
        (b"A-17", {"subject": "A-17"}),
        ("Köln".encode(), {"subject": "Köln"}),
        (b"\xff\x00", {"keybase64": "/wA="}),
        (b"a\nb", {"keybase64": "YQpi"}),
        (b"", {}),
        (None, {}),
    ],
)
def test_a_tombstone_is_an_event_of_its_key(key: bytes | None, attributes: dict[str, str]) -> None:
    """It is valid whatever the key is, and has no data."""
    made = event_from_tombstone("/kafka/orders", key, ORIGIN)

    parse_event(made, max_bytes=1_000)
    assert json.loads(made) == {
        "specversion": "1.0",
        "type": "kafka.tombstone",
        "source": "/kafka/orders",
        "id": "orders-3-17",
        "time": "2026-03-01T12:00:00.005Z",
        **attributes,
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "data: not JSON"),
        (b"3", "mapping of id: there is nothing at \\$.n"),
        (b'{"n": {}}', "mapping of id: the value at \\$.n is neither text nor a whole number"),
        (b'{"n": 1.5}', "mapping of id: the value at \\$.n is neither text nor a whole number"),
        (b'{"n": 1.5, "x": 1e400}', "mapping of id: the value at \\$.n is neither text nor a whole number"),
        (b'{"n": "cut \\ud83d"}', "mapping of id: \\$.n holds U\\+D83D, one half of a surrogate pair"),
    ],
)
def test_a_missing_attribute_of_a_mapping_is_reported(body: bytes, said: str) -> None:
    """With the attribute and the path."""
    with pytest.raises(EventError, match=said):
        event_from_plain({"type": "t", "source": "/s", "id": "$.n"}, body, ORIGIN)


@pytest.mark.parametrize("other", ["1", "1e400", '"cut \\ud83d"', "[" * 100 + "]" * 100])
@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("5", "5"),
        ("-0", "0"),
        ("-12", "-12"),
        ("true", "true"),
        ('"a"', "a"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1" * 5_000, "1" * 5_000),
    ],
)
def test_a_mapping_reads_its_value_whatever_lies_beside_it(written: str, text: str, other: str) -> None:
    """A number that a float does not hold, or half of a surrogate pair, is a fault of what is read only."""
    body = f'{{"n": {written}, "other": {other}}}'.encode()

    assert (
        parse_event(event_from_plain({"type": "t", "source": "/s", "id": "$.n"}, body, ORIGIN), max_bytes=20_000).id
        == text
    )


def test_a_mapping_may_name_headers() -> None:
    """The first of a name that has a value; a missing one, or invalid UTF-8, is reported."""
    mapping = {"type": "$header.TAGS", "source": "/s", "id": "$header.KEYS"}
    headers: Headers = [("TAGS", None), ("TAGS", b"late"), ("TAGS", b"later"), ("KEYS", "ü".encode())]
    made = json.loads(event_from_plain(mapping, b"{}", ORIGIN, headers))

    assert (made["type"], made["id"]) == ("late", "ü")
    with pytest.raises(EventError, match="mapping of id: the message has no header KEYS"):
        event_from_plain(mapping, b"{}", ORIGIN, headers[:3])
    with pytest.raises(EventError, match="header KEYS: it is not UTF-8"):
        event_from_plain(mapping, b"{}", ORIGIN, [*headers[:3], ("KEYS", b"\xff")])
