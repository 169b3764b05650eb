"""Hypothesis strategies for events: of any shape, or built around a pattern so that it nearly or fully matches."""

from __future__ import annotations

from typing import Any, Final

from generative.pattern_strategies import KEYS, scalars
from hypothesis import strategies as st

from eventbridge.event.json_document import Number

values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)
events = st.dictionaries(st.sampled_from(KEYS), values, max_size=3)

ADDRESSES: Final = {"10.0.0.0/8": "10.9.9.9", "fd00::/8": "fd00::1", "::/0": "fd00::1"}
EXAMPLES: Final = {"a*b?": "ab", "[ab]+": "ba", "(a|ab)(b|)": "ab", "1|[0-9.]+": "1", ".": "a", "A+|s{2}": "ss"}


@st.composite
def events_near(draw: st.DrawFn, pattern: dict[str, Any]) -> dict[str, Any]:
    """Draw an event with a leaf for most conditions of a pattern; some of its objects are spread over arrays."""
    event = draw(objects_near(pattern))
    for key, value in draw(st.sampled_from([{}, {}, {"c": None}, {"b": Number("1")}])).items():
        event.setdefault(key, value)
    return event


@st.composite
def objects_near(draw: st.DrawFn, pattern: dict[str, Any]) -> dict[str, Any]:
    """Draw an object for a sub-pattern; for a `$or` it has one alternative and sometimes more."""
    parts: dict[str, Any] = {key: value for key, value in pattern.items() if not key.startswith("$")}
    for alternative in pattern.get("$or", []):
        if draw(st.booleans()):
            parts = {**alternative, **parts} if draw(st.booleans()) else {**parts, **alternative}
    drawn: dict[str, Any] = {}
    for key, value in parts.items():
        if key.startswith("$") or draw(st.integers(0, 7)) == 0:
            continue
        drawn[key] = draw(arrays_of(value)) if isinstance(value, dict) else draw(leaves_near(value))
    return drawn


@st.composite
def arrays_of(draw: st.DrawFn, pattern: dict[str, Any]) -> Any:
    """Draw an object, an array of objects whose keys may be in one element or in several, or an array of arrays."""
    shape = draw(st.sampled_from(["object", "object", "array", "array", "spread", "nested"]))
    if shape == "object":
        return draw(objects_near(pattern))
    elements: list[Any] = draw(st.lists(objects_near(pattern), min_size=1, max_size=2))
    if shape == "spread":
        elements = [{key: value} for element in elements for key, value in element.items()]
    if shape == "nested":
        elements = [[element] for element in elements]
    elements += draw(st.lists(scalars, max_size=1))
    return draw(st.permutations(elements))


@st.composite
def leaves_near(draw: st.DrawFn, conditions: list[Any]) -> Any:
    """Draw a value that likely meets one of a leaf list's conditions, alone, in a list or in lists."""
    condition = draw(st.sampled_from(conditions))
    value = draw(st.one_of(witness(condition), witness(condition), scalars))
    shape = draw(st.sampled_from(["plain", "plain", "list", "lists", "object"]))
    if shape == "list":
        return draw(st.permutations([value, draw(scalars)]))
    if shape == "lists":
        return draw(st.permutations([[value], draw(scalars), [draw(scalars)], {"b": draw(scalars)}]))
    return [{"a": draw(scalars)}, value] if shape == "object" else value


def witness(condition: Any) -> st.SearchStrategy[Any]:
    """Return scalars that a condition likely accepts."""
    if not isinstance(condition, dict):
        return st.just(condition)
    ((operator, argument),) = condition.items()
    text = (
        argument.get("equals-ignore-case") if operator in ("prefix", "suffix") and isinstance(argument, dict) else None
    )
    if operator == "numeric":
        return st.sampled_from([argument[-1], argument[1], Number("1.5")])
    if operator == "all":
        return witness(argument[0])
    if operator in ("anything-but", "exists"):
        return scalars
    simple = {
        "prefix": f"{text.swapcase() if text else argument}b",
        "suffix": f"b{text.swapcase() if text else argument}",
        "contains": f"a{argument}b",
        "wildcard": str(argument).replace("\\*", "*").replace("*", "a"),
        "regex": EXAMPLES.get(str(argument), "a"),
        "cidr": ADDRESSES.get(str(argument), "10.1.2.3"),
    }
    return st.sampled_from([simple.get(operator, argument), argument if isinstance(argument, str) else "a"])
