"""What is a CloudEvent and what is not, with the reason that goes into the dead letter."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.json_document import Number

SMALLEST: dict[str, Any] = {"id": "1", "source": "/s", "type": "t", "specversion": "1.0"}
LIMIT = 1024 * 1024


def parse(**members: Any) -> Event:
    """Parse the smallest event with members added or replaced."""
    return parse_event(json.dumps(SMALLEST | members).encode(), max_bytes=LIMIT)


def refusal(body: bytes, max_bytes: int = LIMIT) -> str:
    """Return the reason for which a body is refused."""
    with pytest.raises(EventError) as caught:
        parse_event(body, max_bytes=max_bytes)
    return str(caught.value)


def reason(**members: Any) -> str:
    """Return the reason for which the smallest event with these members is refused."""
    return refusal(json.dumps(SMALLEST | members).encode())


def test_an_event_keeps_what_arrived() -> None:
    """Identity, the whole document with numbers as written, and the very bytes."""
    body = b'{ "specversion":"1.0", "id":"A/1", "source":"/airports/JFK", "type":"t", "data":{"delay":-1.50} }'
    event = parse_event(body, max_bytes=LIMIT)

    assert (event.id, event.source, event.type) == ("A/1", "/airports/JFK", "t")
    assert event.body is body
    assert list(event.document) == ["specversion", "id", "source", "type", "data"]
    assert event.document["data"] == {"delay": Number("-1.50")}


def test_an_event_cannot_be_changed() -> None:
    """An event is a value."""
    with pytest.raises(AttributeError):
        parse().id = "2"  # type: ignore[misc]


@pytest.mark.parametrize(
    "members",
    [
        {"subject": "UA1545", "time": "2013-01-01T10:17:00Z", "datacontenttype": "application/json"},
        {"dataschema": "https://example.com/flight.json#/definitions/departed"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "partitionkey": "", "x1": "ü"},
        {"sampledrate": 2147483647, "lowest": -2147483648, "zero": 0, "sampled": True, "dropped": False},
        {"subject": None, "time": None, "datacontenttype": None, "dataschema": None, "myextension": None},
        {"data": None},
        {"data": "text", "datacontenttype": "text/plain; charset=utf-8"},
        {"data": [1, {"id": None}]},
        {"data_base64": ""},
        {"data_base64": "AAECAw==", "datacontenttype": "application/octet-stream"},
        {"data": {"UPPER_case": "\x00"}},
    ],
)
def test_a_cloudevent_is_accepted(members: dict[str, Any]) -> None:
    """Attributes of every type, nulls for absent ones, and any data."""
    assert list(parse(**members).document) == [*SMALLEST, *members]


@pytest.mark.parametrize("name", ["id", "source", "type", "specversion"])
def test_a_required_attribute_must_be_there(name: str) -> None:
    """Missing, null, empty or of another type: four reasons that name the attribute."""
    without = {key: value for key, value in SMALLEST.items() if key != name}

    assert refusal(json.dumps(without).encode()) == f"$.{name}: a CloudEvent must have it, but it is missing"
    assert reason(**{name: None}) == f"$.{name}: a CloudEvent must have it, but it is null"
    assert reason(**{name: ""}).startswith(f"$.{name}: must ")
    assert reason(**{name: 7}).startswith(f"$.{name}: must be ")
    assert reason(**{name: {}}).endswith("is an object")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"specversion": "0.3"}, "$.specversion: must be '1.0', but is '0.3'"),
        ({"subject": ""}, "$.subject: must not be empty"),
        ({"subject": True}, "$.subject: must be a string, but is true"),
        ({"Subject": "x"}, "$: 'Subject' is not an attribute name"),
        ({"my_extension": "x"}, "$: 'my_extension' is not an attribute name"),
        ({"größe": "x"}, "$: 'größe' is not an attribute name"),
        ({"": "x"}, "$: '' is not an attribute name"),
        ({"MyExtension": None}, "$: 'MyExtension' is not an attribute name"),
        ({"comexample": {"a": 1}}, "$.comexample: an attribute must be a string, boolean or integer, but is an object"),
        ({"comexample": [1]}, "$.comexample: an attribute must be a string, boolean or integer, but is a list"),
        ({"rate": 1.5}, "$.rate: a number in an attribute must be an integer of 32 bits, but is 1.5"),
        ({"rate": 2147483648}, "$.rate: a number in an attribute must be an integer of 32 bits, but is 2147483648"),
        ({"rate": -2147483649}, "$.rate: a number in an attribute must be"),
        ({"data": 1, "data_base64": ""}, "$.data_base64: an event holds data or data_base64, never both"),
        ({"data": None, "data_base64": ""}, "$.data_base64: an event holds data or data_base64, never both"),
        ({"data_base64": None}, "$.data_base64: must be a string, but is null"),
        ({"data_base64": "AAE"}, "$.data_base64: is not base64 (RFC 4648): Incorrect padding"),
        ({"data_base64": "AA E="}, "$.data_base64: is not base64"),
        ({"data_base64": "_-8="}, "$.data_base64: is not base64"),
        ({"data_base64": "äöüß"}, "$.data_base64: is not base64"),
        ({"id": "a\nb"}, "$.id: the character U+000A at position 1 is not allowed in an attribute"),
        ({"subject": "\x7f"}, "$.subject: the character U+007F at position 0"),
        ({"subject": "\x85"}, "$.subject: the character U+0085 at position 0"),
        ({"type": "t\ud800"}, "$.type: the character U+D800 at position 1"),
        ({"x": "\uffff"}, "$.x: the character U+FFFF at position 0"),
        ({"x": "ab\U0001fffe"}, "$.x: the character U+1FFFE at position 2"),
    ],
)
def test_an_invalid_cloudevent_is_refused(members: dict[str, Any], expected: str) -> None:
    """The reason names the attribute, what it must be and what it is."""
    assert reason(**members).startswith(expected)


def test_an_integer_is_written_as_one() -> None:
    """CloudEvents allows digits and a sign only, whatever the value."""
    for text in ("1.0", "1e2", "-0.0", "12345678901234567890", "1" * 100_000):
        body = f'{{"id":"1","source":"/s","type":"t","specversion":"1.0","rate":{text}}}'.encode()

        assert refusal(body).startswith("$.rate: a number in an attribute must be an integer of 32 bits")
        assert len(refusal(body)) < 150


@pytest.mark.parametrize(
    "source",
    [
        "/airports/JFK",
        "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
        "https://user:pw@example.com:8443/a/b;v=1/?q=a/b?c#frag",
        "mailto:cncf-wg-serverless@lists.cncf.io",
        "1-555-123-4567",
        "myservice",
        "a%20b/c%C3%A4",
        "//example.com",
        "//[2001:db8::1]:80/x",
        "../up",
        ".",
        "?query",
        "#fragment",
        "./a:b",
        "file:///etc/hosts",
        "com.example.app",
        "a" * 10_000,
    ],
)
def test_a_source_is_a_uri_reference(source: str) -> None:
    """Absolute and relative references of RFC 3986 pass."""
    assert parse(source=source).source == source


@pytest.mark.parametrize(
    "source",
    [
        "a b",
        "<x>",
        "a%2",
        "a%zz",
        "ä",
        "1a:b",
        ":a",
        "a#b#c",
        "http://[::1",
        "a|b",
        'a"b',
        "a\\b",
        "a{b}",
        "//a:b:c/",
        "^",
    ],
)
def test_a_source_that_is_none_is_refused(source: str) -> None:
    """Spaces, broken escapes, non-ASCII characters, a colon in the wrong place."""
    assert reason(source=source) == (f"$.source: {source!r} is not a URI reference (RFC 3986), such as '/airports/JFK'")


@pytest.mark.parametrize("schema", ["/relative", "schema.json", "http://a b/", "x"])
def test_a_schema_is_an_absolute_uri(schema: str) -> None:
    """A reference without a scheme is not enough for dataschema."""
    assert reason(dataschema=schema) == f"$.dataschema: {schema!r} is not an absolute URI (RFC 3986)"


@pytest.mark.parametrize(
    "moment",
    [
        "2013-01-01T10:17:00Z",
        "2013-01-01t10:17:00z",
        "1985-04-12T23:20:50.52Z",
        "2013-06-30T23:59:59.123456789012-04:00",
        "2024-02-29T00:00:00+23:59",
        "0000-02-29T00:00:00Z",
        "1990-12-31T23:59:60Z",
        "1990-12-31T15:59:60-08:00",
        "1991-01-01T00:29:60+00:30",
        "1937-01-01T12:00:27.87-00:00",
    ],
)
def test_a_time_is_one_of_rfc_3339(moment: str) -> None:
    """Either case of T and Z, any precision, any offset, leap days and leap seconds."""
    assert parse(time=moment).document["time"] == moment


@pytest.mark.parametrize(
    "moment",
    [
        "2013-01-01",
        "2013-01-01T10:17:00",
        "2013-01-01 10:17:00Z",
        "2013-1-1T10:17:00Z",
        "2013-13-01T10:17:00Z",
        "2013-00-01T10:17:00Z",
        "2013-02-29T10:17:00Z",
        "1900-02-29T10:17:00Z",
        "2013-04-31T10:17:00Z",
        "2013-01-00T10:17:00Z",
        "2013-01-01T24:00:00Z",
        "2013-01-01T10:60:00Z",
        "2013-01-01T10:17:61Z",
        "2013-01-01T10:17:60Z",
        "1990-12-31T23:59:60-08:00",
        "2013-01-01T10:17:00.Z",
        "2013-01-01T10:17:00+0400",
        "2013-01-01T10:17:00+24:00",
        "2013-01-01T10:17Z",
        "2013-01-01T10:17:00Z ",
        "٢٠١٣-01-01T10:17:00Z",
        "1357035420",
    ],
)
def test_a_time_that_is_none_is_refused(moment: str) -> None:
    """Other spellings, days and seconds that do not exist."""
    assert reason(time=moment) == (f"$.time: {moment!r} is not a time such as '2013-01-01T10:17:00Z' (RFC 3339)")


@pytest.mark.parametrize(
    ("media_type", "good"),
    [
        ("application/json", True),
        ("application/cloudevents+json; charset=UTF-8", True),
        ('text/plain;charset="utf-8"; x="a\\"b"', True),
        ("multipart/mixed;boundary=a", True),
        ("json", False),
        ("application/", False),
        ("application/json; charset", False),
        ("application json", False),
        ("application/json, text/plain", False),
    ],
)
def test_a_content_type_is_a_media_type(media_type: str, good: bool) -> None:
    """RFC 2045's grammar, parameters included."""
    if good:
        assert parse(datacontenttype=media_type).document["datacontenttype"] == media_type
    else:
        assert reason(datacontenttype=media_type).startswith(f"$.datacontenttype: {media_type!r} is not a media type")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "not JSON"),
        (b"not json", "not JSON"),
        (b"[]", "a list, not a JSON object"),
        (b'{"id":1}{}', "not JSON"),
        (b'{"id": NaN}', "not JSON"),
        (b'{"id": "\xff"}', "not"),
        (b"\xef\xbb\xbf{}", "not"),
        (b'{"data":' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper than 128"),
    ],
)
def test_an_event_that_is_not_one_strict_object_is_refused(body: bytes, expected: str) -> None:
    """The reasons of `parse_document` pass through."""
    assert expected in refusal(body)


def test_a_large_event_is_refused_before_it_is_read() -> None:
    """The limit counts bytes and includes itself; what is beyond it is not even parsed."""
    body = json.dumps(SMALLEST | {"data": "ä"}, ensure_ascii=False).encode()

    assert parse_event(body, max_bytes=len(body)).id == "1"
    assert refusal(body, len(body) - 1) == f"the event has {len(body)} bytes; the largest allowed is {len(body) - 1}"
    assert refusal(b"[" * 2_000_000, LIMIT) == "the event has 2,000,000 bytes; the largest allowed is 1,048,576"


def test_a_long_value_is_cut_in_the_reason() -> None:
    """A reason is a readable line, whatever an attribute contains."""
    text = reason(time="x" * 100_000)

    assert len(text) < 200
    assert "xxx...'" in text


@pytest.mark.parametrize("piece", ["a", "%41", "a:", "a@", "a/", "/", "?", "a%41@:"])
def test_no_attribute_makes_the_check_slow(piece: str) -> None:
    """A megabyte of anything is refused in a time that grows with its length only."""
    half, whole = ("/s" + piece * (size // len(piece)) + "<" for size in (150_000, 300_000))

    def seconds(source: str) -> float:
        body = json.dumps(SMALLEST | {"source": source, "time": source, "datacontenttype": "a/b;" + source}).encode()
        taken = []
        for _ in range(3):  # a full collection of garbage in a worker of many tests takes longer than the check itself
            start = time.process_time()
            refusal(body)
            taken.append(time.process_time() - start)
        return min(taken)

    assert seconds(whole) < 4 * seconds(half) + 0.05


def test_of_two_members_of_one_name_the_last_counts() -> None:
    """Below the top, in data: JSON's rule as the pattern language has it."""
    text = b'{"id":"1","source":"/s","type":"t","specversion":"1.0","data":{"a":"1","a":"2"}}'

    assert parse_event(text, max_bytes=LIMIT).document["data"] == {"a": "2"}
