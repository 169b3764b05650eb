"""On any event, steps change what they name, and no digit or position of anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from generative.test_transform_of_any_values import TEXTS, VALUES, event
from hypothesis import find, given
from hypothesis import strategies as st
from transform_scope import SCOPE

from eventbridge.errors import TransformError, TransformFailed
from eventbridge.event.json_document import Number, parse_document, parse_value, write_document
from eventbridge.rules import Transform
from eventbridge.transform import compile_transform
from eventbridge.transform.fields import OPERATIONS

NAMES = st.sampled_from(["a", "b", "c", "d"]) | TEXTS
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
PATHS = st.sampled_from(
    ["$", "$.data.a", "$.data.b", "$.data.a.b", "$.data.b[0]", "$.data.c[-1].a", "$.subject", "$.x"]
)
OPTIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "insert": st.fixed_dictionaries(
        {"value": VALUES | PATHS}, optional={"if_present": st.sampled_from(["replace", "keep", "error"])}
    ),
    "delete": st.just({}),
    "update": st.fixed_dictionaries({"value": VALUES | PATHS}),
    "rename": st.fixed_dictionaries({"to": st.sampled_from(["x", "y", "$.data.a", "$.data.b.c"])}),
    "cast": st.fixed_dictionaries({"to": st.sampled_from(["string", "integer", "number", "boolean", "json"])}),
    "mask": st.fixed_dictionaries({}, optional={"keep_first": st.integers(0, 3), "keep_last": st.integers(0, 3)}),
    "hash": st.fixed_dictionaries({}, optional={"salt": st.just("s")}),
    "flatten": st.fixed_dictionaries(
        {}, optional={"delimiter": st.sampled_from([".", "_"]), "depth": st.integers(1, 3)}
    ),
}


@st.composite
def steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw one to five steps, some of which fail or are invalid."""
    found = []
    for operation in draw(st.lists(st.sampled_from(sorted(OPTIONS)), min_size=1, max_size=5)):
        found.append({operation: {"path": draw(PATHS), **draw(OPTIONS[operation])}})
    return found


def changed(given_steps: Any, data: Any) -> str:
    """Return the data after the steps."""
    renderer = compile_transform(Transform(form="FIELDS", steps=given_steps), content_mode="data")
    return renderer.render(event(data), SCOPE).payload.decode()


def test_each_operation_is_generated() -> None:
    """Every operation has a strategy."""
    assert set(OPTIONS) == set(OPERATIONS)


@given(steps(), OBJECTS)
def test_steps_give_an_event_or_say_why_not(given_steps: Any, data: dict[str, Any]) -> None:
    """Any steps on any data give JSON or a failure that names the step, and do not change the original event."""
    given_event = event(data)
    before = write_document(given_event.document)
    outcome, rendered = outcome_of(given_steps, given_event)
    if outcome == "refused":
        assert "$.steps[" in rendered
    elif outcome == "failed":
        assert rendered.startswith(("step ", "the result of the steps is not a CloudEvent: "))
    else:
        json.loads(rendered)
        assert outcome_of(given_steps, given_event) == ("rendered", rendered)
    assert write_document(given_event.document) == before


def outcome_of(given_steps: Any, given_event: Any) -> tuple[str, str]:
    """Return `refused`, `failed` or `rendered`, with the error or the output."""
    try:
        renderer = compile_transform(Transform(form="FIELDS", steps=given_steps))
    except TransformError as error:
        return "refused", str(error)
    try:
        return "rendered", renderer.render(given_event, SCOPE).payload.decode()
    except TransformFailed as error:
        return "failed", str(error)


@pytest.mark.parametrize("outcome", ["refused", "failed", "rendered"])
def test_the_steps_that_are_drawn_come_to_each_outcome(outcome: str) -> None:
    """The strategies draw steps that are rejected, that fail and that succeed."""
    drawn = st.tuples(steps(), OBJECTS)
    found = find(drawn, lambda each: outcome_of(each[0], event(each[1]))[0] == outcome)

    assert outcome_of(found[0], event(found[1]))[0] == outcome


@given(OBJECTS, VALUES)
def test_members_that_no_step_touches_stay(data: dict[str, Any], value: Any) -> None:
    """Members keep their position and digits when another one is changed, renamed, added or removed."""
    data = {name: inner for name, inner in data.items() if name not in ("a", "zz")}
    first, rest = dict(list(data.items())[:2]), dict(list(data.items())[2:])
    constant = {"x": value}
    with_a = {**first, "a": 1, **rest}

    assert changed([{"update": {"path": "$.data.a", "value": constant}}], with_a) == text(
        {**first, "a": constant, **rest}
    )
    assert changed([{"rename": {"path": "$.data.a", "to": "zz"}}], with_a) == text({**first, "zz": 1, **rest})
    assert changed([{"delete": "$.data.a"}], with_a) == text(data)
    assert changed([{"insert": {"path": "$.data.a", "value": constant}}], data) == text({**data, "a": constant})


@given(VALUES)
def test_a_number_keeps_its_text_through_casts(value: Any) -> None:
    """Casting a number to a string and back keeps its digits, and casting any value to JSON text and back keeps it."""
    there_and_back = [{"cast": {"path": "$.data.a", "to": "string"}}, {"cast": {"path": "$.data.a", "to": "json"}}]

    if isinstance(value, Number):
        assert changed([there_and_back[0], {"cast": {"path": "$.data.a", "to": "number"}}], {"a": value}) == text(
            {"a": value}
        )
    if not isinstance(value, str):
        assert changed(there_and_back, {"a": value}) == text({"a": value})


@given(st.integers(-(10**25), 10**25), st.integers(0, 30))
def test_an_integer_is_found_however_it_is_written(number: int, zeros: int) -> None:
    """Zeros after the decimal point and exponents are accepted in an integer."""
    cast = [{"cast": {"path": "$.data.a", "to": "integer"}}]

    assert changed(cast, {"a": Number(f"{number}.{'0' * (zeros + 1)}")}) == f'{{"a":{number}}}'
    assert changed(cast, {"a": Number(f"{number}{'0' * zeros}e-{zeros}")}) == f'{{"a":{number}}}'
    assert changed(cast, {"a": Number(f"{number}e{zeros}")}) == f'{{"a":{number * 10**zeros}}}'


@given(TEXTS.filter(lambda text: text.isprintable()), st.integers(0, 5), st.integers(0, 5))
def test_a_mask_covers_all_but_the_ends(value: str, first: int, last: int) -> None:
    """A mask keeps the length and covers all but the ends, or everything if nothing else would be covered."""
    step = {"mask": {"path": "$.data.a", "keep_first": first, "keep_last": last}}
    masked = json.loads(changed([step], {"a": value}))["a"]

    assert len(masked) == len(value)
    assert all(shown in (kept, "*") for shown, kept in zip(masked, value, strict=True))
    assert masked.count("*") >= (len(value) - first - last if len(value) > first + last else len(value))


@given(OBJECTS)
def test_flattening_loses_no_value(data: dict[str, Any]) -> None:
    """A flat object has the values of the nested one in the same order, and flattening it again changes nothing."""
    flatten = {"flatten": {"path": "$", "delimiter": "\u2192"}}
    names = flat_names(data)
    if len(set(names)) < len(names):
        with pytest.raises(TransformFailed, match="two of its members"):
            changed([flatten], data)
        return
    flat = changed([flatten], data)

    assert list(parse_document(flat)) == names
    assert leaves(parse_value(flat)) == leaves(parse_value(text(data)))
    assert changed([flatten, flatten], data) == flat


def flat_names(data: dict[str, Any], before: str = "") -> list[str]:
    """Return the names of an object's members after flattening."""
    found = []
    for name, value in data.items():
        inner = flat_names(value, f"{before}{name}\u2192") if isinstance(value, dict) and value else []
        found += inner or [before + name]
    return found


def leaves(value: Any) -> list[str]:
    """Return the JSON texts of an object's values that are not objects with members."""
    if isinstance(value, dict) and value:
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [write_document(value)]


def text(value: Any) -> str:
    """Return a value as JSON."""
    return write_document(value)
