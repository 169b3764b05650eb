"""Transforms by compiled code: what it renders itself, what it hands back, how payloads are cut into blocks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from unit.native_transforms import assert_agreed, natively

from eventbridge.matching.scan.texts import padded_texts
from eventbridge.rules import Transform
from eventbridge.transform import Scope
from eventbridge.transform.kernel import program, render
from eventbridge.transform.kernel.program import compile_program
from eventbridge.transform.kernel.render import Deliveries, Events, Renderers
from eventbridge.transform.kernel.write import KEYS

SCOPE = Scope("r", "b", "t", "0190aaaa-0000-8000-8000-00000000beef", datetime(2026, 5, 1, 12, tzinfo=UTC))
STRUCTURED = (Transform(), "structured")
DATA = (Transform(), "data")


def event(data: str = "{}", more: str = "") -> bytes:
    """Return the text of an event with this data, and further members."""
    return f'{{"specversion":"1.0","id":"1","source":"/s","type":"t"{more},"data":{data}}}'.encode()


def template(text: str, **value: Any) -> tuple[Transform, str]:
    """Return a template as a form."""
    return Transform(form="TEMPLATE", template=text, value=value), "structured"


@pytest.mark.parametrize(
    "form",
    [
        STRUCTURED,
        DATA,
        (Transform(form="CONSTANT", value={"a": [1, "ü"]}), "structured"),
        (Transform(form="JSONPATH", value="$.data.list[-1]"), "structured"),
        template('{"x": ${x}, "y": "${x} ${eb.event}", "z": ${eb.ingested_at}}', x="$.data.list"),
        template("${x} ${eb.delivery_id} ${eb.event}", x="$.data.text"),
    ],
)
def test_cheap_forms_are_rendered_by_compiled_code(form: tuple[Transform, str]) -> None:
    """Nothing is handed back of an everyday event, with white space and escapes."""
    bodies = [event('{ "list" : [1, {"a": "\\u00e9\\n"} ], "text": "\\ud83d\\ude00\\"" }'), event("5"), event("null")]

    assert assert_agreed([form], bodies, SCOPE) == 3


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (DATA, event('{"a":1,"b":{"c":2,"c":3}}')),  # a key twice
        (DATA, event('{"a":1,"\\u0061":2}')),
        (DATA, event("{" + ",".join(f'"{key}":0' for key in range(KEYS + 1)) + "}")),
        (DATA, event("1", ',"datacontenttype":"text/plain"')),
        (DATA, b'{"specversion":"1.0","id":"1","source":"/s","type":"t"}'),
        ((Transform(), "binary"), event()),
        (template("<${x}>", x="$.data"), event('"\\ud800"')),
        (template("<${x}>", x="\ud800"), event()),
    ],
)
def test_undecided_events_are_handed_back_by_compiled_code(form: tuple[Transform, str], body: bytes) -> None:
    """Keys twice or too many, other media types, no data, headers, half of a surrogate pair in text."""
    assert natively([form], [body], SCOPE) == [None]
    assert assert_agreed([form], [body], SCOPE) == 0


def test_keys_may_repeat_in_different_objects() -> None:
    """Only a key twice in one object is handed back."""
    body = event('{"a":{"a":[{"a":1},{"a":2}],"b":{"a":3}},"b":[[{"a":4}]],"c":{"a":5}}')

    assert assert_agreed([DATA], [body], SCOPE) == 1


def test_a_missing_part_fails_with_the_words_of_the_renderer() -> None:
    """The failure is found by compiled code, too; the payload is then empty."""
    form = Transform(form="TEMPLATE", template="${x} ${y}", value={"x": "$.data.x", "y": "$.data.y"}, missing="error")

    found = natively([(form, "structured")], [event(), event('{"x":1}'), event('{"x":null,"y":2}')], SCOPE)

    assert found[:2] == ["${x}: the event has no $.data.x", "${y}: the event has no $.data.y"]
    assert_agreed([(form, "structured")], [event(), event('{"x":1}'), event('{"x":null,"y":2}')], SCOPE)


def test_payloads_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fits the room is one block; a payload larger than the room gets room of its own."""
    monkeypatch.setattr(render, "ROOM", 1_000)
    bodies = [event(f'"{"x" * size}"') for size in (10, 100, 900, 5_000, 1, 300_000, 20)]

    assert assert_agreed([STRUCTURED, DATA, template("<${eb.event}>")], bodies, SCOPE) == 21


def test_a_payload_too_large_for_an_array_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be counted with 31 bits is not tried; what follows it is rendered."""
    monkeypatch.setattr(render, "ROOM", 1_000)
    monkeypatch.setattr(render, "_MAX_ROOM", 16_000)

    assert natively([STRUCTURED], [event('"' + "x" * 70_000 + '"'), event()], SCOPE) == [
        None,
        (event(), "application/cloudevents+json", None),
    ]


def test_many_targets_are_rendered_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that look at more paths than one group may are spread over several, in their order."""
    monkeypatch.setattr(program, "GROUP_PATHS", 3)
    forms = [template(f"${{a}} ${{b}} {number}", a=f"$.data.k{number}", b="$.id") for number in range(8)]
    bodies = [event("{" + ",".join(f'"k{number}":{number}' for number in range(0, 8, 2)) + "}"), event()]

    assert assert_agreed(forms, bodies, SCOPE) == 16


def test_arrivals_differ_by_event() -> None:
    """Each event's own time is used, also before 1970 and to the microsecond."""
    program = compile_program(*template("at ${eb.ingested_at}"), "r", "b", "t")
    times = np.array([0, -1, 1_777_636_800_000_007], np.int64)
    events = Events(padded_texts(pa.array([event()] * 3)), times)
    numbers = np.arange(3, dtype=np.int64)

    (block,) = Renderers([program]).render(events, Deliveries(numbers, numbers * 0, np.zeros((3, 16), np.uint8)))

    assert block.payload.to_pylist() == [
        b"at 1970-01-01T00:00:00.000000Z",
        b"at 1969-12-31T23:59:59.999999Z",
        b"at 2026-05-01T12:00:00.000007Z",
    ]
