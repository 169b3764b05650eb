"""CONSTANT, JSONPATH and TEMPLATE: what a target receives of an event."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from unit.native_transforms import assert_agreed

from eventbridge.errors import TransformError, TransformFailed
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.json_document import Number
from eventbridge.rules import Transform
from eventbridge.transform import Rendered, Scope, compile_transform

DATA = """{"id": 17, "big": 123456789012345678901234567890, "price": 1.50, "tiny": 1e-400, "zero": -0.0,
  "name": "O\\"Neil\\n\\\\ \\ud83d\\ude00", "yes": true, "none": null, "empty": "",
  "list": [1, 2.0, "x"], "object": {"b": 1.10, "a": "\\"q\\""}, "half": "a\\ud800b", "sly": "${id} $${id} \\",{}"}"""
SCOPE = Scope(
    "big-orders", "orders", "crm", "0190aaaa-0000-8000-8000-000000000001", datetime(2026, 5, 1, 12, tzinfo=UTC)
)


def event(data: str = DATA) -> Event:
    """Return a CloudEvent with this JSON text as its data."""
    body = '{"specversion":"1.0","id":"e1","source":"/shop","type":"order.placed","subject":null,"data":' + data + "}"
    return parse_event(body.encode(), max_bytes=1_000_000)


def rendered(data: str = DATA, scope: Scope = SCOPE, **definition: Any) -> Rendered:
    """Return what a transform makes of an event with this data; compiled code has to agree."""
    transform = Transform(**definition)
    renderer = compile_transform(transform, content_mode="structured")
    assert_agreed([(transform, "structured")], [event(data).body], scope)
    return renderer.render(event(data), scope)


def filled(template: str, data: str = DATA, missing: str = "null", **paths: Any) -> str:
    """Return the text that a template gives, with names for parts of the data and for constants."""
    result = rendered(data, form="TEMPLATE", template=template, value=paths, missing=missing)
    return result.payload.decode()


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        ("text", '"text"'),
        ("$.data.id", '"$.data.id"'),
        (5, "5"),
        (1.5, "1.5"),
        (None, "null"),
        (False, "false"),
        ([1, "a"], '[1,"a"]'),
        ({"b": {"a": "ü\n"}}, '{"b":{"a":"ü\\n"}}'),
    ],
)
def test_a_constant_is_sent_as_json(value: Any, payload: str) -> None:
    """Every event gives the value as JSON; nothing in it is looked up."""
    result = rendered(form="CONSTANT", value=value)

    assert result == (payload.encode(), "application/json", None)


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("$.source", '"/shop"'),
        ("$.data.id", "17"),
        ("$.data.price", "1.50"),
        ("$.data.big", "123456789012345678901234567890"),
        ("$.data.tiny", "1e-400"),
        ("$.data.zero", "-0.0"),
        ("$.data.object", '{"b":1.10,"a":"\\"q\\""}'),
        ("$.data.list[-1]", '"x"'),
        ("$.data.none", "null"),
        ("$.data.nosuch", "null"),
        ("$.subject", "null"),
        ("$.data.half", '"a\\ud800b"'),
    ],
)
def test_a_part_is_sent_as_json(path: str, payload: str) -> None:
    """Text keeps its quotes, numbers keep their digits, what is not there is null."""
    result = rendered(form="JSONPATH", value=path)

    assert result == (payload.encode(), "application/json", None)


def test_the_root_is_the_data() -> None:
    """`$` gives the whole data, compact."""
    assert rendered('{"a" : [ 1, 2 ]}', form="JSONPATH", value="$").payload == b'{"a":[1,2]}'


def test_a_part_that_must_be_there_fails_the_delivery() -> None:
    """With `missing: error` an absent part is a failure that names the path; null is a value like others."""
    with pytest.raises(TransformFailed, match=r"the event has no \$\.data\.nosuch"):
        rendered(form="JSONPATH", value="$.data.nosuch", missing="error")

    assert rendered(form="JSONPATH", value="$.data.none", missing="error").payload == b"null"


@pytest.mark.parametrize(
    ("name", "as_value", "in_string", "as_text"),
    [
        ("id", "17", "17", "17"),
        ("big", "123456789012345678901234567890", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("price", "1.50", "1.50", "1.50"),
        ("tiny", "1e-400", "1e-400", "1e-400"),
        ("zero", "-0.0", "-0.0", "-0.0"),
        ("yes", "true", "true", "true"),
        ("none", "null", "", ""),
        ("nosuch", "null", "", ""),
        ("empty", '""', "", ""),
        ("name", '"O\\"Neil\\n\\\\ \U0001f600"', 'O\\"Neil\\n\\\\ \U0001f600', 'O"Neil\n\\ \U0001f600'),
        ("list", '[1,2.0,"x"]', '[1,2.0,\\"x\\"]', '[1,2.0,"x"]'),
        (
            "object",
            '{"b":1.10,"a":"\\"q\\""}',
            '{\\"b\\":1.10,\\"a\\":\\"\\\\\\"q\\\\\\"\\"}',
            '{"b":1.10,"a":"\\"q\\""}',
        ),
        ("sly", '"${id} $${id} \\",{}"', '${id} $${id} \\",{}', '${id} $${id} ",{}'),
    ],
)
def test_a_value_in_each_place(name: str, as_value: str, in_string: str, as_text: str) -> None:
    """Outside strings JSON, inside strings escaped text, in text the text itself; never looked into again."""
    path = f"$.data.{name}"

    assert filled('{"a":${x},"id":${id}}', x=path, id="$.data.id") == '{"a":' + as_value + ',"id":17}'
    assert filled('{"a":"<${x}>${id}"}', x=path, id="$.data.id") == '{"a":"<' + in_string + '>17"}'
    assert filled("<${x}>${id}", x=path, id="$.data.id") == "<" + as_text + ">17"


def test_the_content_type_says_what_the_template_is() -> None:
    """A JSON template gives application/json, any other text/plain in UTF-8."""
    assert rendered(form="TEMPLATE", template='{"a": "ü"}').content_type == "application/json"
    assert rendered(form="TEMPLATE", template="grüße").content_type == "text/plain; charset=utf-8"
    assert rendered(form="TEMPLATE", template="grüße").payload == "grüße".encode()


@pytest.mark.parametrize("name", ["none", "nosuch"])
def test_a_default_replaces_null_and_missing_values(name: str) -> None:
    """As in a shell, `:-` covers both; an empty text or false is a value."""
    path = f"$.data.{name}"

    assert filled('[${x:-0}, "${x:-a \\"b\\"}", ${x:-unknown}]', x=path) == '[0, "a \\"b\\"", "unknown"]'
    assert filled("<${x:-a b}>", x=path) == "<a b>"
    assert filled('["${x:-d}", ${x:-d}]', x="$.data.empty") == '["", ""]'


def test_a_missing_required_value_fails_the_delivery() -> None:
    """With `missing: error` an absent value without a default fails, with the name and the path."""
    with pytest.raises(TransformFailed, match=r"\$\{who\}: the event has no \$\.data\.nosuch"):
        filled('"${who}"', who="$.data.nosuch", missing="error")

    assert filled('"${who:-nobody}"', who="$.data.nosuch", missing="error") == '"nobody"'
    assert filled('["${who}"]', who="$.data.none", missing="error") == '[""]'


@pytest.mark.parametrize(
    ("constant", "output"),
    [
        ('a "b" ${x} $.data.id', '["a \\"b\\" ${x} $.data.id", "a \\"b\\" ${x} $.data.id"]'),
        ("$$", '["$", "$"]'),
        ("$$.data.id", '["$.data.id", "$.data.id"]'),
        (1.5, '[1.5, "1.5"]'),
        (True, '[true, "true"]'),
        (None, '[null, ""]'),
        ({"a": ["$.data.id"]}, '[{"a":["$.data.id"]}, "{\\"a\\":[\\"$.data.id\\"]}"]'),
    ],
)
def test_a_name_may_stand_for_a_constant(constant: Any, output: str) -> None:
    """What is not text that begins with `$` is the value itself; `$$` at the beginning is a `$`."""
    assert filled('[${x}, "${x}"]', x=constant) == output


def test_predefined_names_need_no_definition() -> None:
    """Rule, bus, target, delivery id, arrival and the whole event need no definition."""
    template = '["${eb.rule}", ${eb.bus}, "${eb.target}", "${eb.delivery_id}", "${eb.ingested_at}"]'

    assert json.loads(filled(template)) == [
        "big-orders",
        "orders",
        "crm",
        "0190aaaa-0000-8000-8000-000000000001",
        "2026-05-01T12:00:00.000000Z",
    ]


def test_the_arrival_is_reported_in_utc() -> None:
    """Whatever zone the clock is in, the text ends in Z and has six digits of a second."""
    zone = timezone(timedelta(hours=-3))
    scope = SCOPE._replace(ingested_at=datetime(2026, 5, 1, 22, 30, 0, 7, tzinfo=zone))

    assert (
        rendered(scope=scope, form="TEMPLATE", template="at ${eb.ingested_at}").payload
        == b"at 2026-05-02T01:30:00.000007Z"
    )


def test_the_whole_event_can_be_inserted() -> None:
    """eb.event is the event as JSON, numbers as they were; within a string it is that JSON as text."""
    data = '{"a": 1.50}'
    whole = '{"specversion":"1.0","id":"e1","source":"/shop","type":"order.placed","subject":null,"data":{"a":1.50}}'

    assert filled('{"e": ${eb.event}}', data) == '{"e": ' + whole + "}"
    assert json.loads(filled('["${eb.event}"]', data)) == [whole]
    assert filled("event: ${eb.event}", data) == "event: " + whole


def test_names_of_the_event_cannot_take_the_place_of_ours() -> None:
    """A value that looks like a predefined placeholder stays what it is."""
    assert filled('"${x}"', '{"x": "${eb.rule}"}', x="$.data.x") == '"${eb.rule}"'


def test_escaped_placeholders_stay() -> None:
    """`$${name}` is the text `${name}`, also where the name exists."""
    assert filled('{"a": "$${x} ${x}"}', x="$.data.id") == '{"a": "${x} 17"}'
    assert filled("$${x} $$${x} ${x}", x="$.data.id") == "${x} $${x} 17"


def test_half_a_surrogate_pair_is_escaped_in_json() -> None:
    """JSON can carry it as an escape, so the output is UTF-8 and the receiver gets what the event held."""
    output = filled('{"a": ${x}, "b": "ü ${x}", "c": ${o}}', '{"half": "a\\ud800b"}', x="$.data.half", o="$")

    assert output == '{"a": "a\\ud800b", "b": "ü a\\ud800b", "c": {"half":"a\\ud800b"}}'


def test_half_a_surrogate_pair_cannot_be_text() -> None:
    """No encoding of text has it: the delivery fails and says why."""
    with pytest.raises(TransformFailed, match=r"half of a surrogate pair \(U\+D800\)"):
        filled("<${x}>", x="$.data.half")


def test_a_name_may_be_a_key() -> None:
    """A placeholder within a string may be the name of a member."""
    assert filled('{"${k}": 1}', k="$.data.name") == '{"O\\"Neil\\n\\\\ \U0001f600": 1}'


def test_nothing_is_kept_between_events() -> None:
    """One renderer serves all events, each with its own values."""
    renderer = compile_transform(
        Transform(form="TEMPLATE", value={"x": "$.data.x"}, template="<${x:-none}>"), content_mode="structured"
    )
    outputs = [renderer.render(event(data), SCOPE).payload for data in ('{"x": 1}', "{}", '{"x": 2}', '{"x": 1}')]

    assert outputs == [b"<1>", b"<none>", b"<2>", b"<1>"]


def test_threads_may_share_a_renderer() -> None:
    """Two threads that render at once never get each other's values."""
    transform = Transform(form="TEMPLATE", value={"x": "$.data.x"}, template="${x}|${x}|${x}|${x}.")
    renderer = compile_transform(transform, content_mode="structured")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def outputs(number: int) -> set[bytes]:
        mine = event(f'{{"x": {number}}}')
        return {renderer.render(mine, SCOPE).payload for _ in range(5_000)}

    try:
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(outputs, (1, 2)))
    finally:
        sys.setswitchinterval(interval)

    assert found == [{b"1|1|1|1."}, {b"2|2|2|2."}]


def test_a_constant_keeps_its_digits() -> None:
    """Numbers of a rule file go out as they were written there."""
    value = {"x": Number("1.10"), "y": {"n": Number("1e3")}}

    assert (
        rendered(form="TEMPLATE", value=value, template='[${x}, "${x}", ${y}]').payload == b'[1.10, "1.10", {"n":1e3}]'
    )
    assert rendered(form="CONSTANT", value=value).payload == b'{"x":1.10,"y":{"n":1e3}}'


def test_a_wrong_definition_does_not_compile() -> None:
    """Compiling raises the first error that the definition has."""
    with pytest.raises(TransformError, match=r"\$\{x\} at line 1, column 2 is not defined"):
        rendered(form="TEMPLATE", template='"${x}"')
