"""Reading and writing documents: what is refused where, and what Python's values become. Cases: events.json."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from eventbridge.errors import EventError
from eventbridge.event.json_document import (
    Number,
    as_document,
    as_json_value,
    parse_document,
    type_name,
    write_document,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: expecting value at line 1, column 1"),
        ('{"a":\n  tru}', "not JSON: expecting value at line 2, column 3"),
        ('{"a":1, }', "not JSON: a comma before the end of an object at line 1, column 7"),
        ('{"a":[1,\n]}', "not JSON: a comma before the end of an array at line 1, column 8"),
        ('{"a":[1,,2]}', "not JSON: expecting value at line 1, column 9"),
        ('{"a":[1, 2}', "not JSON: expecting ',' delimiter at line 1, column 11"),
        ('{"a":' + "[" * 200 + "1 2", "nested deeper than 128 at line 1, column 133"),
        ('{"a":1} x', "not JSON: something follows the document at line 1, column 9"),
        ('{"a":"NaN","b":[1,\nNaN]}', "not JSON: NaN at line 2, column 1"),
        ('{"a":-Infinity}', "not JSON: -Infinity at line 1, column 6"),
        ('{"a":"\t"}', "not JSON: invalid control character at line 1, column 7"),
        ("\ufeff{}", "not JSON: a byte order mark at line 1, column 1"),
        (b"\xef\xbb\xbf{}", "not JSON: a byte order mark at line 1, column 1"),
        (b'{"a":"\xff"}', "not UTF-8: byte 6 (0xff), invalid start byte"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8: byte 6 (0xed), invalid continuation byte"),
        ('{"a":"\ud800"}', "not text: an unescaped surrogate at line 1, column 7"),
        ("[1]", "a list, not a JSON object, at line 1, column 1"),
        ("null", "null, not a JSON object, at line 1, column 1"),
        ('{"a":' + "[" * 128 + "]" * 128 + "}", "nested deeper than 128 at line 1, column 133"),
        ('{"[":' + "[" * 5000, "nested deeper than 128 at line 1, column 133"),
    ],
)
def test_an_invalid_document_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    """The error says what is wrong and where."""
    with pytest.raises(EventError) as raised:
        parse_document(text)

    assert str(raised.value) == message


def test_bytes_and_text_are_the_same_document() -> None:
    """UTF-8 is read as text is, and so is a bytearray's content."""
    text = '{"é":"😀","a":[1.50,null,true,{"b":"\\ud83d"}]}'
    expected = {"é": "😀", "a": [Number("1.5"), None, True, {"b": "\ud83d"}]}

    assert parse_document(text) == expected
    assert parse_document(text.encode()) == expected


def test_writing_keeps_what_was_read() -> None:
    """Numbers as written, other scripts as they are, lone surrogates escaped, nothing blank."""
    text = '{"é":"😀 \\ud83d","n":[-0,1.50,1E+2],"e":{},"l":[],"q":"\\"\\\\\\n","t":[true,false,null]}'

    assert write_document(parse_document(text)) == text
    assert write_document(parse_document(text)).encode("utf-8")


def test_values_of_python_are_written_as_json() -> None:
    """Ints, floats, decimals, tuples and mappings have an obvious form."""
    value = {"a": (1, 2.5, Decimal("1.10")), "b": {"c": True}}

    assert write_document(value) == '{"a":[1,2.5,1.10],"b":{"c":true}}'
    assert write_document("x") == '"x"'


@pytest.mark.parametrize("value", [{1: 2}, {"a": float("nan")}, {"a": {1, 2}}, {"a": datetime.date(2013, 1, 1)}, b"x"])
def test_a_value_without_a_json_form_is_not_written(value: Any) -> None:
    """Keys that are no strings, NaN, sets, dates and bytes are refused, never guessed."""
    with pytest.raises(EventError):
        write_document(value)


def test_a_mapping_becomes_the_document_of_its_json() -> None:
    """`as_document` gives what reading the mapping's JSON would give."""
    mapping = {"a": (1, 2.5, {"b": Decimal("1.10")}), "c": None, "d": [True, "x"]}

    assert as_document(mapping) == parse_document(write_document(mapping))
    assert type(as_document(mapping)["a"]) is list


def test_a_mapping_is_held_to_the_same_depth() -> None:
    """128 containers are a document, 129 are not, and a mapping that holds itself ends there."""
    inner: Any = 1
    for _ in range(127):
        inner = [inner]
    endless: dict[str, Any] = {}
    endless["a"] = endless

    assert as_document({"a": inner})
    with pytest.raises(EventError, match="deeper than 128"):
        as_document({"a": [inner]})
    with pytest.raises(EventError, match="deeper than 128"):
        as_document(endless)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, "a number as a key of an object: 1"),
        ({"a": float("inf")}, "inf is not a JSON number"),
        ({"a": datetime.date(2013, 1, 1)}, "a date has no JSON form: datetime.date(2013, 1, 1)"),
    ],
)
def test_a_mapping_without_json_form_is_refused(value: Any, message: str) -> None:
    """The error names what has no JSON form."""
    with pytest.raises(EventError) as raised:
        as_document(value)

    assert str(raised.value) == message


def test_subclasses_of_strings_become_strings() -> None:
    """YAML readers give strings of their own classes; a document holds plain ones."""

    class Quoted(str):
        """A string as a YAML reader keeps it."""

    value = as_json_value({Quoted("a"): Quoted("b")})

    assert isinstance(value, dict)
    assert [(type(key), type(inner)) for key, inner in value.items()] == [(str, str)]


def test_types_have_names() -> None:
    """Messages say a string, an object; a boolean is not a number."""
    values = [None, True, 1, 2.5, Number("1"), "x", [], (), {}, b""]

    assert [type_name(value) for value in values] == [
        "null", "a boolean", "a number", "a number", "a number", "a string", "a list", "a list", "an object", "a bytes",
    ]  # fmt: skip


def test_reading_does_not_depend_on_the_size_of_the_stack() -> None:
    """A megabyte of brackets is refused like any other depth."""
    for text in ("[" * 1_000_000, '{"a":' * 200_000, '{"a":"' + '\\"' * 400_000):
        with pytest.raises(EventError):
            parse_document(text if text[0] == "{" else '{"a":' + text)


def test_an_event_of_a_kilobyte_is_read_as_the_standard_library_reads_it() -> None:
    """Same keys, same order, same strings: only numbers are of another type."""
    event = {"id": "1", "data": {f"k{number}": ["x" * number, number] for number in range(40)}}
    text = json.dumps(event)

    assert json.loads(write_document(parse_document(text))) == event
    assert list(parse_document(text)["data"]) == list(event["data"])  # type: ignore[arg-type]
