"""Where strict events and Python's own `json.loads` differ, row by row of the table in docs/reference/patterns.md."""

from __future__ import annotations

import json

import pytest

from eventbridge.errors import EventError
from eventbridge.event.json_document import parse_document

_DEEP = b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"


@pytest.mark.parametrize(
    "document",
    [
        *(b'{"a":' + word + b"}" for word in (b"NaN", b"Infinity", b"-Infinity")),
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32"),
        b'{"a":"\xed\xa0\x80"}',
        *(b"[]", b'"a"', b"1", b"true", b"null"),
        _DEEP,
    ],
)
def test_documents_that_python_reads_and_events_may_not_be(document: bytes) -> None:
    """`json.loads` takes the document, `parse_document` refuses it."""
    json.loads(document)

    with pytest.raises(EventError):
        parse_document(document)


def test_documents_that_events_may_be_and_python_refuses() -> None:
    """Integers of any length are read; `json.loads` converts them, and stops at 4,300 digits."""
    document = b'{"a":' + b"9" * 4_301 + b"}"

    with pytest.raises(ValueError, match="4300 digits"):
        json.loads(document)

    assert str(parse_document(document)["a"]) == "9" * 4_301


def test_an_escaped_surrogate_is_read() -> None:
    """What is not UTF-8 may stand there as an escape."""
    assert parse_document(rb'{"a":"\ud800"}') == {"a": "\ud800"}
