"""Messages in the binary binding, or plain JSON by a mapping, become events in structured JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from eventbridge.errors import EventError
from eventbridge.event.bindings import Headers, Place, form_of, of_binary, of_plain
from eventbridge.event.cloudevent import parse_event

ATTRIBUTES: Headers = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"7"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order.placed"),
    ("ce_traceid", 'ü"'.encode()),
    ("app", b"\xff"),
]
PLACE = Place("orders-3-17", datetime(2026, 3, 1, 12, 0, 0, 5_000, tzinfo=UTC))


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
        ("image/png", b"\x00\xff", '"data_base64":"AP8="'),
        ("application/json", None, None),
    ],
)
def test_data_is_what_its_media_type_says(media_type: str, body: bytes | None, data: str | None) -> None:
    """JSON goes in as it was written, text as a string, all else as base64; a message without a body has no data."""
    made = of_binary(typed(media_type), body).decode()
    event = parse_event(made.encode(), max_bytes=1_000)

    assert (event.id, event.source, event.type) == ("7", "/shop", "order.placed")
    assert event.document["traceid"] == 'ü"'
    assert event.document["datacontenttype"] == media_type
    assert "app" not in event.document
    assert made.endswith(f"{data}}}") if data else "data" not in event.document


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        (ATTRIBUTES, b'1, "id": "8"', "data: not JSON"),
        (ATTRIBUTES, b"", "data: not JSON"),
        ([*ATTRIBUTES, ("ce_subject", b"\xff")], b"1", "header ce_subject: it is not UTF-8 at byte 0"),
        ([*ATTRIBUTES, ("ce_data", b"1")], b"1", "header ce_data: no attribute has this name"),
        (typed("text/plain"), b"a\xff", "data: it is text/plain and not UTF-8 at byte 1"),
    ],
)
def test_what_a_body_is_not_is_told(headers: Headers, body: bytes, said: str) -> None:
    """Nothing of a body becomes a member of the event beside its data."""
    with pytest.raises(EventError, match=said):
        of_binary(headers, body)


def test_a_mapping_makes_an_event_of_plain_json() -> None:
    """Texts and paths give attributes, the place and the time of the message what the mapping does not."""
    mapping = {"type": "order.changed", "source": "$.shop", "subject": "$.customer.number"}
    made = of_plain(mapping, b'{"shop": "/shop", "customer": {"number": 12}, "id": 1.50}', PLACE)

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
    ("body", "said"),
    [
        (b"{", "data: not JSON"),
        (b"3", "mapping of id: there is nothing at \\$.n"),
        (b'{"n": {}}', "mapping of id: \\$.n leads to neither text nor a whole number"),
        (b'{"n": 1.5}', "mapping of id: \\$.n leads to neither text nor a whole number"),
        (None, "the message has no body"),
    ],
)
def test_what_a_mapping_does_not_find_is_told(body: bytes | None, said: str) -> None:
    """With the attribute and the path."""
    with pytest.raises(EventError, match=said):
        of_plain({"type": "t", "source": "/s", "id": "$.n"}, body, PLACE)


def test_a_mapping_may_name_headers() -> None:
    """The first of a name that has a value; one that is not there, or no UTF-8, is told."""
    mapping = {"type": "$header.TAGS", "source": "/s", "id": "$header.KEYS"}
    headers: Headers = [("TAGS", None), ("TAGS", b"late"), ("TAGS", b"later"), ("KEYS", "ü".encode())]
    made = json.loads(of_plain(mapping, b"{}", PLACE, headers))

    assert (made["type"], made["id"]) == ("late", "ü")
    with pytest.raises(EventError, match="mapping of id: the message has no header KEYS"):
        of_plain(mapping, b"{}", PLACE, headers[:3])
    with pytest.raises(EventError, match="header KEYS: it is not UTF-8"):
        of_plain(mapping, b"{}", PLACE, [*headers[:3], ("KEYS", b"\xff")])
