"""A transform makes at most 8 MiB of an event, in every form, and what would be larger is never built."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from transform_scope import SCOPE
from unit.native_transforms import natively

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.routing.sql_results import SqlResult, Value
from eventbridge.rules.model import Transform
from eventbridge.transform import compile_transform
from eventbridge.transform.definition import transform_errors
from eventbridge.transform.rendered import MAXIMUM_BYTES

#: What a transform may take beside the largest payload: texts of four bytes a character, and their copy as UTF-8.
MEMORY = 8 * MAXIMUM_BYTES


def body_of(text: str) -> bytes:
    """Return an event whose data is a text."""
    return json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"text": text}}).encode()


def event_of(body: bytes) -> Event:
    """Return the event of a body."""
    return parse_event(body, max_bytes=len(body))


def peak_of(call: Callable[[], object]) -> int:
    """Return the most memory that a call took."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def fails(transform: Transform, body: bytes, mode: str = "structured") -> str:
    """Return why a transform fails for an event; it must."""
    renderer = compile_transform(transform, content_mode=mode)
    with pytest.raises(TransformFailed) as caught:
        renderer.render(event_of(body), SCOPE)
    return str(caught.value)


MANY = {
    "parts of text": {"template": "${t}" * 1_000, "value": {"t": "$.data.text"}},
    "events in text": {"template": "${eb.event}" * 1_000},
    "events in strings": {"template": '{"all": "' + "${eb.event}" * 1_000 + '"}'},
    "values": {"template": "[" + ",".join(["${t}"] * 1_000) + "]", "value": {"t": "$.data.text"}},
}


@pytest.mark.parametrize("name", MANY)
def test_a_template_of_many_large_parts_fails(name: str) -> None:
    """Both the renderer and compiled code stop before they have joined what they insert."""
    transform = Transform(form="TEMPLATE", **MANY[name])  # type: ignore[arg-type]
    body = body_of("x" * 100_000)
    found: list[Any] = []
    natively([(transform, "structured")], [body_of("")], SCOPE)  # compiled, or loaded

    def render() -> None:
        found.append(fails(transform, body))
        found.append(natively([(transform, "structured")], [body], SCOPE)[0])

    assert peak_of(render) < MEMORY
    assert "the maximum is 8,388,608" in found[0]
    assert found[1] is None  # handed back to the renderer


@pytest.mark.parametrize("more", [0, 1])
def test_the_limit_is_exact(more: int) -> None:
    """A payload of 8 MiB is sent, one byte more is not."""
    part = 1 << 18
    template = "x" * more + "${t}" * (MAXIMUM_BYTES // part)
    transform = Transform(form="TEMPLATE", template=template, value={"t": "$.data.text"})
    body = body_of("y" * part)
    if more:
        assert "8,388,609 bytes or more" in fails(transform, body)
    else:
        assert len(compile_transform(transform).render(event_of(body), SCOPE).payload) == MAXIMUM_BYTES


def test_constants_that_are_named_often_are_an_error_of_the_rule() -> None:
    """A rule file of 80 KB takes no 400 MB when it is read: what every delivery would have is only counted."""
    definition = {"form": "TEMPLATE", "template": "${a}" * 10_000, "value": {"a": "c" * 40_000}}
    found: list[str] = []

    def check() -> None:
        found.extend(each.message for each in transform_errors(definition))

    assert peak_of(check) < MEMORY
    assert found == ["every delivery would have 400,000,000 bytes or more; the maximum is 8,388,608"]


def test_a_constant_beyond_the_limit_is_an_error_of_the_rule() -> None:
    """It would fail for every event."""
    (found,) = transform_errors({"form": "CONSTANT", "value": "c" * MAXIMUM_BYTES})

    assert "8,388,610 bytes or more" in found.message


def insert(path: str, value: object) -> dict[str, object]:
    """Return a step of FIELDS."""
    return {"insert": {"path": path, "value": value}}


STEPS: dict[str, list[dict[str, object]]] = {
    "doubles": [insert(f"$.data.n{number}", "$.data") for number in range(40)],
    "nests": [insert("$.data.inner", "$.data") for _ in range(2_000)],
    "constants": [insert(f"$.data.n{number}", {"c": "c" * 100_000}) for number in range(1_000)],
    "delimiter": [{"flatten": {"path": "$.data", "delimiter": "-" * 1_000_000}}],
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_multiply_the_event_fail(name: str) -> None:
    """Copies, constants and joined names are counted before they are made."""
    transform = Transform(form="FIELDS", steps=STEPS[name])
    nested = {"a": {"b": {f"c{number}": 1 for number in range(1_000)}}}
    body = json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": nested}).encode()
    found: list[str] = []

    assert peak_of(lambda: found.append(fails(transform, body))) < MEMORY
    assert "the maximum is 8,388,608" in found[0] or "nests deeper than" in found[0]


def test_a_part_of_a_large_event_fails_and_the_event_itself_does_not() -> None:
    """What is sent as it is has the limit of events, which an installation may raise."""
    body = body_of("x" * (MAXIMUM_BYTES + 1))
    whole = compile_transform(Transform()).render(event_of(body), SCOPE)

    assert "the maximum is 8,388,608" in fails(Transform(form="JSONPATH", value="$.data"), body)
    assert natively([(Transform(form="JSONPATH", value="$.data"), "structured")], [body], SCOPE) == [None]
    assert whole.payload == body


def test_a_large_value_of_spark_fails() -> None:
    """What Spark responded to the SQL form has the same limit."""
    response = SqlResult(True, None, {"t": Value(text="x" * (MAXIMUM_BYTES + 1), is_json=False, failure=None)})
    rule = rule_of({"form": "SQL", "value": "data:text::string"})
    (renderer,) = response.renderers(rule).values()

    with pytest.raises(TransformFailed, match="the maximum is 8,388,608"):
        renderer.render(event_of(body_of("")), SCOPE)


def rule_of(transform: dict[str, object]) -> Any:
    """Return a rule with one target `t`."""
    from eventbridge.rules.model import Rule

    target = {"type": "file", "path": "/x/y", "transform": transform}
    return Rule.model_validate(
        {"name": "r", "bus": "b", "runner": "b", "pattern": {}, "targets": {"t": {"name": "t", **target}}}
    )


def test_a_template_of_many_placeholders_is_read_in_linear_time() -> None:
    """A megabyte of placeholders takes as long as its length, not as its square."""
    import time

    text = "${a}\n" * 200_000
    began = time.process_time()
    errors = transform_errors({"form": "TEMPLATE", "template": text, "value": {"b": 1}})

    assert time.process_time() - began < 10
    assert len(errors) == 21  # 20 of the placeholders, and the name that none inserts
