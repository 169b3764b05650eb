"""For any event, a JSON template gives JSON, every value is unchanged, and no value is searched for placeholders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import Event
from eventbridge.event.json_document import Number, write_document
from eventbridge.rules import Transform
from eventbridge.transform import Scope, compile_transform
from eventbridge.transform.template import parse_template

SCOPE = Scope("rule", "bus", "target", "0190aaaa-0000-8000-8000-000000000001", datetime(2026, 5, 1, 12, tzinfo=UTC))

#: Strings that would do harm if they were not escaped, or were searched for placeholders.
NASTY = [
    '"',
    "\\",
    '\\"',
    "${a}",
    "$${a}",
    "${eb.event}",
    "}",
    "{",
    "\n",
    "\x00",
    "\u2028",
    "\ud800",
    "\udc00",
    "é",
    "😀",
]


def joined(parts: list[str]) -> str:
    """Return the parts as one string, in which two surrogates that JSON reads as one character are that character."""
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


TEXTS = st.lists(st.sampled_from(NASTY) | st.text(st.characters(), max_size=3), max_size=5).map(joined)
NUMBERS = (st.integers() | st.floats(allow_nan=False, allow_infinity=False)).map(
    lambda number: Number.from_python(number)
) | st.sampled_from(["1.0", "1.50", "-0", "1e400", "0.1E-5", "9007199254740993"]).map(Number)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
NAMES = ["a", "b", "c"]


@st.composite
def json_templates(draw: st.DrawFn) -> str:
    """Draw a JSON template with placeholders a, b and c as values, inside strings and as names of members."""
    pieces = st.sampled_from(
        ["${a}", "${b}", "${c}", "$${a}", "x ", '\\"', "\\\\", "\\u00e9", "é", "$5", "$$", "{", "}"]
    )
    strings = st.lists(pieces, max_size=4).map(lambda parts: '"' + "".join(parts) + '"')
    leaves = st.sampled_from(["${a}", "${b}", "${c}", "1.50", "null", "${a:-0}", "${b:-text}"]) | strings
    nested = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]")
            | st.lists(st.tuples(strings, inner), max_size=3).map(
                lambda items: "{\n" + ",".join(f"{key} :{value}" for key, value in items) + "}"
            )
        ),
        max_leaves=5,
    )
    return draw(nested)


def event(data: dict[str, Any]) -> Event:
    """Return an event with this data."""
    document = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t", "data": data}
    return Event("e", "/s", "t", document, write_document(document).encode())


def filled(template: str, data: dict[str, Any]) -> str:
    """Return the output of a template whose names are the members of the data."""
    inserted = {placeholder.name for placeholder in parse_template(template)[0].placeholders()}  # others are invalid
    value = {name: f"$.data.{name}" for name in NAMES if name in inserted}
    transform = Transform(form="TEMPLATE", template=template, value=value)
    return compile_transform(transform, content_mode="structured").render(event(data), SCOPE).payload.decode()


def loaded(text: str) -> Any:
    """Return the value of JSON text, with its numbers as marked strings that keep their spelling."""
    return json.loads(text, parse_int=lambda number: ("number", number), parse_float=lambda number: ("number", number))


def as_text(value: Any) -> str:
    """Return a value as inserted into a string: a string unchanged, null as nothing, any other value as JSON."""
    return value if isinstance(value, str) else "" if value is None else write_document(value)


def joined(text: str) -> str:
    """Return a string with adjacent surrogate halves joined, as every JSON parser joins them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@given(json_templates(), st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_a_json_template_gives_json(template: str, data: dict[str, Any]) -> None:
    """With quotes, braces, half surrogates and placeholders in values, the output is always one JSON value in UTF-8."""
    loaded(filled(template, data))

    assert parse_template(template)[0].is_json


@given(VALUES)
def test_a_value_arrives_as_it_was(value: Any) -> None:
    """Outside strings every inserted value is equal to the original, with all digits."""
    assert loaded(filled('{"x": ${a}}', {"a": value}))["x"] == loaded(write_document(value))


@given(st.lists(VALUES, min_size=3, max_size=3))
def test_text_arrives_as_it_was(values: Sequence[Any]) -> None:
    """Inside a string each value is inserted as its text, at its position between the literals."""
    a, b, c = values
    output = json.loads(filled('["<${a}|${b}|$${a}|${c}>"]', {"a": a, "b": b, "c": c}))

    assert output == [joined(f"<{as_text(a)}|{as_text(b)}|${{a}}|{as_text(c)}>")]


@given(st.lists(VALUES, min_size=2, max_size=2))
def test_a_text_template_holds_the_values_as_they_are(values: Sequence[Any]) -> None:
    """A text template inserts strings unchanged; half a surrogate pair, which UTF-8 cannot encode, is a failure."""
    a, b = values
    expected = f"{as_text(a)}|${{b}}|{as_text(b)}"
    try:
        output = filled("${a}|$${b}|${b}", {"a": a, "b": b})
    except TransformFailed:
        output = None

    assert output == (expected if expected.encode("utf-8", "ignore").decode() == expected else None)


@given(TEXTS, TEXTS)
def test_a_value_is_never_looked_into(first: str, second: str) -> None:
    """The content of a value does not change what is inserted elsewhere."""
    with_names = json.loads(filled('{"x": "${a}", "y": "${b}", "z": ${a}}', {"a": first, "b": second}))

    assert with_names == {"x": joined(first), "y": joined(second), "z": joined(first)}


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_the_data_as_a_part_is_the_data(data: dict[str, Any]) -> None:
    """JSONPATH and content_mode data return the data with all digits."""
    part = compile_transform(Transform(form="JSONPATH", value="$"), content_mode="structured").render(
        event(data), SCOPE
    )
    whole = compile_transform(Transform(), content_mode="data").render(event(data), SCOPE)

    assert part.payload == whole.payload == write_document(data).encode()
    assert loaded(part.payload.decode()) == loaded(write_document(data))
