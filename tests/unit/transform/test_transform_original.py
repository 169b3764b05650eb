"""ORIGINAL: structured, binary and data, as the CloudEvents HTTP binding and JSON format 1.0.2 have them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eventbridge.errors import EventError, TransformFailed
from eventbridge.event.bindings import event_from_binary
from eventbridge.event.cloudevent import parse_event
from eventbridge.rules import Transform
from eventbridge.transform import Rendered, Scope, compile_transform

SCOPE = Scope("r", "b", "t", "0190aaaa-0000-8000-8000-000000000001", datetime(2026, 5, 1, 12, tzinfo=UTC))


def rendered(content_mode: str, body: str) -> Rendered:
    """Return what ORIGINAL makes of an event."""
    renderer = compile_transform(Transform(), content_mode=content_mode)
    return renderer.render(parse_event(body.encode(), max_bytes=1_000_000), SCOPE)


def event(**members: Any) -> str:
    """Return a CloudEvent with these members besides the four that it must have."""
    return json.dumps({"specversion": "1.0", "id": "C234", "source": "/mycontext", "type": "some", **members})


def test_structured_is_the_event_untouched() -> None:
    """Spaces, order, escapes, digits, doubled keys: the very bytes that arrived."""
    body = (
        ' {"id":"a","specversion" : "1.0",\n"type":"\\u0074","source":"/s","data":{"n":1.0e0,"n":1.00,"ü":"\\u00fc"}}\n'
    )

    assert rendered("structured", body) == (body.encode(), "application/cloudevents+json", None)


def test_the_json_formats_own_examples_in_binary_mode() -> None:
    """The four examples of the specification's section 3.2 come out as it shows them."""
    extensions = {"time": "2018-04-05T17:31:00Z", "comexampleextension1": "value", "comexampleothervalue": 5}
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "C234",
        "ce-source": "/mycontext",
        "ce-type": "some",
        "ce-time": "2018-04-05T17:31:00Z",
        "ce-comexampleextension1": "value",
        "ce-comexampleothervalue": "5",
    }
    examples: list[tuple[dict[str, Any], bytes, str]] = [
        ({"datacontenttype": "application/vnd.apache.thrift.binary", "data_base64": "AAH/"}, b"\x00\x01\xff", ""),
        ({"datacontenttype": "application/xml", "data": '<much wow="xml"/>'}, b'<much wow="xml"/>', ""),
        ({"datacontenttype": "application/json", "data": {"appinfoB": 123}}, b'{"appinfoB":123}', ""),
        ({"data": "I'm just a string"}, b'"I\'m just a string"', "application/json"),
    ]
    for members, payload, content_type in examples:
        body = event(**extensions, unsetextension=None, subject=None, **members)

        assert rendered("binary", body) == (payload, members.get("datacontenttype", content_type), headers)
        assert rendered("data", body) == (payload, members.get("datacontenttype", content_type), None)


def test_the_http_bindings_own_example_of_percent_encoding() -> None:
    """Space, euro sign and emoji are encoded as the specification's section 3.1.3.2 shows."""
    result = rendered("binary", event(subject="Euro € 😀"))

    assert result.headers is not None
    assert result.headers["ce-subject"] == "Euro%20%E2%82%AC%20%F0%9F%98%80"


def test_special_and_non_ascii_characters_are_percent_encoded() -> None:
    """Space, double quote, percent and what is not printable ASCII are; no other character is."""
    printable = "".join(map(chr, range(0x20, 0x7F)))
    result = rendered("binary", event(subject=printable))

    expected = printable.replace("%", "%25").replace(" ", "%20").replace('"', "%22")
    assert result.headers is not None
    assert result.headers["ce-subject"] == expected


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1))
def test_a_header_decodes_to_its_attribute(text: str) -> None:
    """One round of percent-decoding gives the attribute back, and the header is printable ASCII."""
    result = rendered("binary", event(subject=text))

    assert result.headers is not None
    header = result.headers["ce-subject"]
    assert unquote(header, errors="strict") == text
    assert all(0x21 <= ord(character) <= 0x7E for character in header)


def test_booleans_and_integers_have_their_canonical_text() -> None:
    """true, false and decimal digits; an attribute that is null has no header, datacontenttype neither."""
    result = rendered("binary", event(yes=True, no=False, n=-5, none=None, datacontenttype="text/json", data=[]))

    assert result.headers is not None
    assert {
        name: value for name, value in result.headers.items() if name in ("ce-yes", "ce-no", "ce-n", "ce-none")
    } == {
        "ce-yes": "true",
        "ce-no": "false",
        "ce-n": "-5",
    }
    assert "ce-datacontenttype" not in result.headers
    assert "ce-data" not in result.headers


@pytest.mark.parametrize(
    ("content_type", "data", "payload"),
    [
        ("application/json", "text", b'"text"'),
        ("application/json; charset=utf-8", "ü", '"ü"'.encode()),
        ("APPLICATION/JSON", 1, b"1"),
        ("text/json", None, b"null"),
        ("application/vnd.order+json;v=1", [1], b"[1]"),
        ("application/jsonlines", "{}\n", b"{}\n"),
        ("application/json-seq", "x", b"x"),
        ("text/plain", "a\nü", "a\nü".encode()),
        ("text/plain; charset=UTF-8", "ü", "ü".encode()),
        ("text/plain;charset=iso-8859-1", "ü", b"\xfc"),
        ('text/plain; format=flowed; charset="iso-8859-1"', "ü", b"\xfc"),
        ("text/plain; charset=utf-16le", "a", b"a\x00"),
        ("text/xml", "", b""),
    ],
)
@pytest.mark.parametrize("content_mode", ["binary", "data"])
def test_the_content_type_says_how_data_is_written(
    content_mode: str, content_type: str, data: object, payload: bytes
) -> None:
    """JSON types give JSON, other types the text itself in their character set."""
    result = rendered(content_mode, event(datacontenttype=content_type, data=data))

    assert (result.payload, result.content_type) == (payload, content_type)


@pytest.mark.parametrize(
    ("content_type", "data", "message"),
    [
        ("text/plain", {"a": 1}, "data must be a string, but it is an object: only content_mode: structured"),
        ("application/xml", 5, "data must be a string, but it is a number"),
        (
            "text/plain; charset=us-ascii",
            "ü",
            "cannot be encoded as datacontenttype 'text/plain; charset=us-ascii' requires",
        ),
        ("text/plain; charset=klingon", "x", "the charset 'klingon' is unknown"),
        ("text/plain; charset=hex", "x", "the charset 'hex' is unknown"),
        ("text/plain; charset=punycode", "x", "the charset 'punycode' is unknown"),
        ("text/plain", "\ud800", "surrogates not allowed"),
    ],
)
@pytest.mark.parametrize("content_mode", ["binary", "data"])
def test_data_that_is_not_what_it_says_fails_the_delivery(
    content_mode: str, content_type: str, data: object, message: str
) -> None:
    """Nothing is sent under a label that is wrong; structured mode can carry it all the same."""
    body = event(datacontenttype=content_type, data=data)

    with pytest.raises(TransformFailed, match=message):
        rendered(content_mode, body)
    assert rendered("structured", body).payload == body.encode()


def test_half_a_surrogate_pair_in_json_data_is_escaped() -> None:
    """JSON data is always UTF-8."""
    assert rendered("data", event(data={"a": "\ud800ü"})).payload == '{"a":"\\ud800ü"}'.encode()


def test_numbers_keep_their_digits() -> None:
    """Data is written with every number as it stood in the event."""
    body = event()[:-1] + ', "data": {"a": 1.50, "b": 12345678901234567890.0, "c": 1E400}}'

    assert rendered("data", body).payload == b'{"a":1.50,"b":12345678901234567890.0,"c":1E400}'


@pytest.mark.parametrize("content_mode", ["binary", "data"])
def test_no_data_is_an_empty_body(content_mode: str) -> None:
    """An event without data has no body, and no content type of ours; null data is JSON's null."""
    assert rendered(content_mode, event())[:2] == (b"", "")
    assert rendered(content_mode, event(datacontenttype="text/xml"))[:2] == (b"", "text/xml")
    assert rendered(content_mode, event(data=None))[:2] == (b"null", "application/json")


@given(st.binary())
def test_binary_data_arrives_as_bytes(data: bytes) -> None:
    """data_base64 is decoded, whatever the content type."""
    encoded = base64.b64encode(data).decode()

    assert rendered("data", event(data_base64=encoded, datacontenttype="image/png")).payload == data
    assert rendered("binary", event(data_base64=encoded))[:2] == (data, "application/octet-stream")


@given(
    st.binary(),
    st.sampled_from(["", "; charset=iso-8859-1", "; charset=utf-16", "; charset=iso-2022-jp", "; charset=klingon"]),
)
def test_text_leaves_with_the_bytes_that_came(data: bytes, charset: str) -> None:
    """In binary mode, with its content type, whatever its charset; what it is not is refused when it comes."""
    media_type = f"text/plain{charset}"
    names = [(f"ce_{name}", value.encode()) for name, value in json.loads(event()).items()]
    try:
        body = event_from_binary([*names, ("content-type", media_type.encode())], data)
    except EventError:
        assume(False)

    assert rendered("binary", body.decode())[:2] == (data, media_type)
