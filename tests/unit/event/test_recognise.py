"""What is recognised as an event is one, with the same identity; the rest is left to `parse_event`."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import has_each_once, parse_event, recognise, repeated_member
from eventbridge.event.json_document import parse_document

EVENT = {"specversion": "1.0", "id": "a1", "source": "/shop", "type": "order.placed", "data": {"amount": 1.5, "to": []}}
MAXIMUM = 2_000

#: Members that, added to an event, occur twice; the first is refused by name.
TWICE = [
    ('"id":"other"', "id"),
    ('"id":"a1"', "id"),
    ('"\\u0069d":"other"', "id"),
    ('"ext":"x","ext":"x"', "ext"),
    ('"ext":true,"other":"","e\\u0078t":null', "ext"),
    ('"data":{}', "data"),
    ('"specversion":"1.0"', "specversion"),
]

_texts = st.one_of(
    st.text(max_size=8), st.sampled_from(["1.0", "/a", "x:y", "2026-01-01T00:00:00Z", "text/plain", "QQ=="])
)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=8,
)
_names = st.one_of(
    st.sampled_from([*EVENT, "subject", "time", "datacontenttype", "dataschema", "data_base64", "ext", "ext-1"]), _texts
)


def _identity(body: bytes) -> tuple[str, str, str] | None:
    try:
        event = parse_event(body, max_bytes=MAXIMUM)
    except EventError:
        return None
    return event.id, event.source, event.type


@given(_names, _values, st.booleans())
def test_a_recognised_document_is_an_event(name: str, value: Any, ascii_only: bool) -> None:
    """With any member changed, added or left out."""
    for members in (EVENT | {name: value}, {key: kept for key, kept in EVENT.items() if key != name}):
        body = json.dumps(members, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")

        found = recognise(body, max_bytes=MAXIMUM)

        assert found is None or found == _identity(body)


def test_a_damaged_event_is_recognised_only_if_it_still_is_one() -> None:
    """Whatever byte is changed, taken out or put in, or where the document ends."""
    chance = random.Random(5)
    whole = json.dumps(
        EVENT | {"subject": "é", "time": "2026-01-01T00:00:00Z", "ext": True}, ensure_ascii=False
    ).encode()
    recognised = 0
    for _ in range(20_000):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(body))
            body[at : at + chance.randint(0, 1)] = chance.choice(
                [
                    b"",
                    bytes([chance.randrange(256)]),
                    b'"',
                    b"\\",
                    b"\\u00",
                    b"{",
                    b"]",
                    b"\xed\xa0\x80",
                    b"00",
                    b"\x0c",
                ]
            )
        found = recognise(bytes(body), max_bytes=MAXIMUM)
        recognised += found is not None
        assert found is None or found == _identity(bytes(body)), bytes(body)
    assert recognised > 1_000


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(EVENT).encode(),
        json.dumps(EVENT | {"ext": False, "subject": "order 7", "time": None, "datacontenttype": "text/json"}).encode(),
        json.dumps({**EVENT, "data_base64": "QQ==", "data": 0}).replace(', "data": 0', "").encode(),
        json.dumps(EVENT | {"id": "naïve"}, ensure_ascii=False).encode(),
    ],
)
def test_usual_events_are_recognised(body: bytes) -> None:
    """Else nothing would be saved."""
    assert recognise(body, max_bytes=MAXIMUM) == _identity(body) is not None


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(EVENT | {"data": "x" * MAXIMUM}).encode(),
        json.dumps(EVENT | {"data": [[]] * 130}).encode(),
        json.dumps(EVENT | {"ext": 5}).encode(),
        json.dumps(EVENT | {"ext": 5.0}).encode(),
        json.dumps(EVENT | {"data": "\ud800"}).encode(),
        b"[" * 5_000,
        b"[]",
        b"",
    ],
)
def test_the_rest_is_left_to_the_strict_parser(body: bytes) -> None:
    """Too large, many brackets, a number as an extension, half a surrogate pair; what is not an event at all."""
    assert recognise(body, max_bytes=MAXIMUM) is None


@pytest.mark.parametrize(("members", "name"), TWICE)
def test_an_attribute_may_be_there_once(members: str, name: str) -> None:
    """Parsers would disagree about which of two counts: no reader takes either."""
    body = f"{json.dumps(EVENT)[:-1]}, {members}}}".encode()

    assert recognise(body, max_bytes=MAXIMUM) is None
    with pytest.raises(EventError, match=rf"^\$\.{name}: the event has it twice"):
        parse_event(body, max_bytes=MAXIMUM)


@given(
    st.lists(st.tuples(_names, _values), max_size=5),
    st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ":\t")]),
    st.booleans(),
)
def test_a_repeated_member_is_found(
    members: list[tuple[str, Any]], separators: tuple[str, str], ascii_only: bool
) -> None:
    """Whatever the values hold, and however names and white space are written."""
    between, behind = separators
    written = [
        f"{json.dumps(name, ensure_ascii=ascii_only)}{behind}{json.dumps(value, ensure_ascii=ascii_only)}"
        for name, value in members
    ]
    body = f"{{{between.join(written)}}}".encode("utf-8", "surrogatepass")
    names = [name for name, _ in members]
    expected = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if any("\ud800" <= character <= "\udfff" for text in written for character in text):
        with pytest.raises(EventError, match="not UTF-8"):
            parse_document(body)
        return

    assert repeated_member(body) == expected
    assert expected is None or not has_each_once(body)


def test_members_inside_data_may_have_any_name() -> None:
    """Only the top level is read; an everyday event is decided at once."""
    body = json.dumps(EVENT | {"data": {"id": 1, "type": ['"', {"id": "data"}], "data": "\\"}}).encode()

    assert has_each_once(body)
    assert recognise(body, max_bytes=MAXIMUM) is not None
    assert parse_event(body.replace(b'{"id": 1', b'{"id": 1, "id": 1'), max_bytes=MAXIMUM).id == "a1"
