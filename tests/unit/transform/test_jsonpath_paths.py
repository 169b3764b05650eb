"""Paths into an event: what each spelling leads to, and what is refused, where and with which remedy."""

from __future__ import annotations

import json

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from eventbridge.errors import TransformError
from eventbridge.event.json_document import JsonValue, parse_document
from eventbridge.transform.jsonpath import MISSING, parse_path

EVENT = parse_document(
    """{"specversion": "1.0", "id": "e1", "source": "/shop", "type": "order.placed", "partitionkey": "k",
    "subject": null, "data": {
      "id": 17, "null": null, "no": false, "customer": {"name": "Ada", "first-name": "A"},
      "list": [[1, 2], {"x": 3}, []],
      "a b": 1, "a.b": 2, "it's": 3, "say \\"hi\\"": 4, "back\\\\slash": 5, "tab\\t": 6, "\U0001f600": 7, "0": 8,
      "größe": 9, "": 10, "[0]": 11, "${x}": 12, "$": 13}}"""
)


def found(path: str) -> JsonValue:
    """Return what a path leads to, with numbers as Python's."""
    value = parse_path(path).find(EVENT)
    assert value is not MISSING
    return plain(value)


def plain(value: object) -> JsonValue:
    """Return a document's value with Python's numbers."""
    return json.loads(getattr(value, "text", None) or json.dumps(value, default=lambda number: json.loads(number.text)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.source", "/shop"),
        ("$['source']", "/shop"),
        ("$.partitionkey", "k"),
        ("$.subject", None),
        ("$.data.id", 17),
        ("$.data.null", None),
        ("$.data.no", False),
        ("$.data.customer", {"name": "Ada", "first-name": "A"}),
        ("$.data.customer.name", "Ada"),
        ("$.data.customer.first-name", "A"),
        ("$['data'][\"customer\"]['name']", "Ada"),
        ("$.data['customer'].name", "Ada"),
        ("$[ 'data' ][\t'id' ]", 17),
        ("$.data.list[0]", [1, 2]),
        ("$.data.list[0][1]", 2),
        ("$.data.list[-1]", []),
        ("$.data.list[-3][-2]", 1),
        ("$.data.list[ 1 ].x", 3),
        ("$.data['a b']", 1),
        ("$.data['a.b']", 2),
        ("$.data['it\\'s']", 3),
        ('$.data["it\'s"]', 3),
        ("$.data['say \"hi\"']", 4),
        ('$.data["say \\"hi\\""]', 4),
        ("$.data['back\\\\slash']", 5),
        ("$.data['tab\\t']", 6),
        ("$.data['\U0001f600']", 7),
        ("$.data['\\ud83d\\ude00']", 7),
        ("$.data['\\u0069d']", 17),
        ("$.data['0']", 8),
        ("$.data.größe", 9),
        ("$.data['']", 10),
        ("$.data['[0]']", 11),
        ("$.data['${x}']", 12),
        ("$.data['$']", 13),
    ],
)
def test_a_path_leads_to_one_value(path: str, value: JsonValue) -> None:
    """Names by dot or in quotes, elements by number from either end, null and false included."""
    assert found(path) == value


def test_the_root_is_the_data() -> None:
    """`$` and `$.data` are the same."""
    assert parse_path("$").find(EVENT) == EVENT["data"]
    assert parse_path("$.data").find(EVENT) == EVENT["data"]


@pytest.mark.parametrize(
    "path",
    [
        "$.nosuch",
        "$.data.nosuch",
        "$.data.nosuch.deeper",
        "$.data.id.deeper",
        "$.data.id[0]",
        "$.data.null.deeper",
        "$.data.null[0]",
        "$.data.customer[0]",
        "$.data.list.x",
        "$.data.list[3]",
        "$.data.list[-4]",
        "$.data.list[2][0]",
        "$.data.list[2][-1]",
        "$.data.list['0']",
        "$.data_base64",
    ],
)
def test_a_path_that_leads_nowhere_is_missing(path: str) -> None:
    """No member, no element, or no object or list where one is needed: the result is missing, which is not null."""
    assert parse_path(path).find(EVENT) is MISSING


def test_binary_data_is_its_base64_text() -> None:
    """`$.data_base64` is the text that the event holds; `$` finds nothing in such an event."""
    event: dict[str, JsonValue] = {"data_base64": "AAEC"}

    assert parse_path("$.data_base64").find(event) == "AAEC"
    assert parse_path("$").find(event) is MISSING


@pytest.mark.parametrize(
    ("path", "character", "message", "remedy"),
    [
        ("", 1, "must begin with $", "$.data.name"),
        ("data.x", 1, "must begin with $", "$.data.name"),
        (" $.data", 1, "must begin with $", "$.data.name"),
        ("$.data..x", 7, "more than one value", "[0]"),
        ("$.*", 2, "more than one value", "[0]"),
        ("$.data.list[*]", 12, "more than one value", "[0]"),
        ("$.data.list[0:2]", 12, "a slice", "[0]"),
        ("$.data.list[:]", 12, "a slice", "[0]"),
        ("$.data.list[0,1]", 12, "a list of names", "[0]"),
        ("$.data['a','b']", 7, "a list of names", "[0]"),
        ("$.data.list[?(@.x>1)]", 12, "a filter", "[0]"),
        ("$.data.list[01]", 12, "leading zero", "[0]"),
        ("$.data.list[-0]", 12, "or be -0", "[0]"),
        ("$.data.list[9999999999999999]", 12, "no list is that long", "smaller"),
        ("$.data.list[1.5]", 12, "no quotes", "['name']"),
        ("$.data[]", 7, "empty", "['name']"),
        ("$.data[name]", 7, "no quotes", "['name']"),
        ("$.data['name]", 7, "is not closed", "['name']"),
        ("$.data['name'", 7, "is not closed", "['name']"),
        ("$.data[0", 7, "not closed", "[0]"),
        ("$.data.", 7, "without a name", "Remove"),
        ("$.data.0", 7, "digit", "['0']"),
        ("$.data.2fa", 7, "digit", "['0']"),
        ("$.data.a b", 9, "space", "['a name']"),
        ("$.data.x ", 9, "space", "remove the space"),
        ("$.data.@type", 7, "needs quotes", "['name']"),
        ("$.data.$ref", 7, "needs quotes", "['name']"),
        ("$.data.-x", 7, "needs quotes", "['name']"),
        ("$data", 2, "must follow . or [", ".name"),
        ("$.data/x", 7, "must follow . or [", ".name"),
        ("$.data.x]", 9, "must follow . or [", ".name"),
        ("$.data['a\\x']", 7, "escape", "uXXXX"),
        ("$.data['a\tb']", 7, "escape", "uXXXX"),
        ("$.data['\\ud800']", 7, "escape", "uXXXX"),
        ("$[0]", 2, "an event is not a list", "$.data[0]"),
        ("$.Amount", 2, "'Amount' cannot be an attribute", "$.data.Amount"),
        ("$.customer_id.x", 2, "'customer_id' cannot be an attribute", "$.data.customer_id.x"),
        ("$['a b']", 2, "'a b' cannot be an attribute", "$.data['a b']"),
        ("$.dataContentType", 2, "cannot be an attribute", "Did you mean $.datacontenttype?"),
        ("$.amount.total", 2, "'amount' is a single value", "$.data.amount.total"),
        ("$.source.x", 2, "'source' is a single value", "$.data.source.x"),
        ("$.dta.x", 2, "'dta' is a single value", "Did you mean $.data?"),
        ("$.data_base64[0]", 2, "'data_base64' is a single value", "$.data.data_base64[0]"),
    ],
)
def test_a_wrong_path_is_located_with_a_remedy(path: str, character: int, message: str, remedy: str) -> None:
    """Each error names the path, the character (from 1), what is wrong there and what to write instead."""
    with pytest.raises(TransformError) as caught:
        parse_path(path, "$.value.name")

    assert caught.value.path == "$.value.name"
    assert caught.value.value == path
    assert f"the path {path!r} is invalid at character {character}: " in caught.value.message
    assert message in caught.value.message
    assert remedy in caught.value.remedy


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.integers(0, 3), max_size=5))
def test_any_name_can_be_quoted(steps: list[str | int]) -> None:
    """A path of names quoted as JSON quotes them, and numbers, leads through objects and lists made of them."""
    document: object = "found"
    for step in reversed(steps):
        document = {step: document} if isinstance(step, str) else [*[None] * step, document]
    path = "$.data" + "".join(f"[{json.dumps(step)}]" for step in steps)

    assert parse_path(path).find({"data": document}) == "found"  # type: ignore[dict-item]


#: Pieces of paths, and of what looks like one: put together they are paths often enough.
PIECES = st.lists(st.sampled_from([".a", ".data", "[0]", "['a']", "[-1]", *"$.[]'\"\\a0-*?:, \nü@"]), max_size=6).map(
    "".join
)


@given(PIECES)
def test_any_text_is_a_path_or_an_error(tail: str) -> None:
    """No text makes anything but a path, which finds nothing here but `data`, or a TransformError."""
    assert found_by("$" + tail) in (MISSING, {}, "refused")


def found_by(text: str) -> object:
    """Return what a path finds in an object whose one member is empty, or `refused`."""
    try:
        return parse_path(text).find({"data": {}})
    except TransformError:
        return "refused"


@pytest.mark.parametrize("expected", ["refused", MISSING, {}], ids=str)
def test_texts_that_are_drawn_come_to_each_outcome(expected: object) -> None:
    """The test above looks at paths that find something, at those that do not, and at what is no path."""
    drawn = find(PIECES, lambda tail: found_by("$" + tail) == expected)

    assert found_by("$" + drawn) == expected
