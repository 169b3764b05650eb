"""What a matcher takes, refuses and costs, apart from its results."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from generative.kernel_agreement import compare

from eventbridge.errors import EventError
from eventbridge.matching import compile_rules
from eventbridge.matching.kernel.texts import SIGN_BYTES, choose_signs
from eventbridge.matching.pattern import parse_pattern


def test_expressions_that_are_too_large_together_are_split() -> None:
    """RE2 compiles each of 24 expressions and rejects one set of them all; each of them still matches."""
    patterns = [parse_pattern({"a": [{"regex": rf"(?:\pL{{200}}{number}|x{number})y?"}]}) for number in range(24)]

    found = compile_rules(patterns).match(pa.array(['{"a": "x7y"}', '{"a": "x"}']))

    assert found.rules.tolist() == [7]


def test_a_matcher_in_another_process_is_compiled_there() -> None:
    """A pickled matcher gives the same results, with tables of its own."""
    matcher = compile_rules([parse_pattern({"a": [1]}), parse_pattern({"a": ["x"]})], class_rows=100)

    copy = pickle.loads(pickle.dumps(matcher))

    assert copy.match(pa.array(['{"a": "x"}'])).rules.tolist() == [1]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (['{"a": 1}'], "an Arrow array is expected, not list"),
        (pa.array([1, 2]), "not of int64: cast it"),
        (pa.array(["{}"]).dictionary_encode(), "cast it to pa.string"),
    ],
)
def test_an_argument_that_is_no_array_of_texts_is_refused(events: Any, said: str) -> None:
    """The error says what came and what to do."""
    with pytest.raises(TypeError, match=said):
        compile_rules([parse_pattern({})]).match(events)


def test_an_unparsed_pattern_is_refused() -> None:
    """A pattern that was not parsed, or one pattern alone."""
    unparsed: Any = {"a": [1]}
    alone: Any = parse_pattern(unparsed)

    for wrong in ([unparsed], alone):
        with pytest.raises(TypeError, match="sequence of parsed patterns"):
            compile_rules(wrong)


def test_an_array_without_a_type_holds_no_events() -> None:
    """pa.array([None]) and an empty array of no type are as many malformed events as they have rows."""
    matcher = compile_rules([parse_pattern({})])

    assert matcher.match(pa.array([None, None])).malformed.tolist() == [0, 1]
    assert matcher.match(pa.array([])).offsets.tolist() == [0]


def test_only_an_existing_rule_is_explained() -> None:
    """A number below 0 is not one from the end."""
    matcher = compile_rules([parse_pattern({"a": [1]})])

    for rule in (-1, 1):
        with pytest.raises(IndexError, match="the matcher has 1"):
            matcher.explain('{"a": 2}', rule)


@pytest.mark.parametrize("form", [str, str.encode, json.loads], ids=["text", "bytes", "document"])
def test_an_event_is_explained_by_the_rule_that_is_asked(form: Callable[[str], Any]) -> None:
    """Each condition that fails is named, with the event's value; for a rule that matches the list is empty."""
    matcher = compile_rules([parse_pattern({"a": [1]}), parse_pattern({"a": [2], "b": ["x"], "c": [{"exists": True}]})])
    event = form('{"a": 1, "b": "x"}')

    assert matcher.explain(event, 0) == []
    assert [str(finding) for finding in matcher.explain(event, 1)] == [
        "$.a: 1 does not meet [2]",
        '$.c: there is no value; [{"exists":true}] is required',
    ]


@pytest.mark.parametrize("event", ["{", b'{"a": \xff}', "[1]", '{"a": 01}', {"a": object()}])
def test_an_invalid_event_is_not_explained(event: Any) -> None:
    """What is not one strict JSON object is refused, as the kernel calls it malformed."""
    matcher = compile_rules([parse_pattern({"a": [1]})])

    with pytest.raises(EventError):
        matcher.explain(event, 0)


def test_a_block_holds_no_more_text_than_it_may() -> None:
    """Events of 1 MB each are matched a few at a time: room for the text does not grow with their number."""
    matcher = compile_rules([parse_pattern({"a": [{"suffix": "z"}]})])
    large = '{"a": "' + "x" * 1_000_000 + 'z"}'

    found = matcher.match(pa.array([large, "{}"] * 20))

    assert len(found.rules) == 20
    assert matcher._rooms.text.size < 10_000_000


def test_conditions_with_equal_ends_differ_by_their_insides() -> None:
    """Of parts that differ in the middle only, each has a sign that few others have."""
    parts = [("", f"order-service/{number:05d}/events/created", "") for number in range(200)]

    signs = choose_signs([(a.encode(), b.encode(), c.encode()) for a, b, c in parts])

    assert len(set(signs)) > 150
    assert all(len(sign) == SIGN_BYTES for sign in signs)


def test_exponents_of_any_length_are_compared_by_the_kernel() -> None:
    """A number beyond all that a rule names is above, below or next to 0; nothing is handed back for it."""
    bounds = [">", 0], ["<", 0], [">", 1e300], ["<", 1e-300], ["=", 5], [">", 5, "<", 10**30]
    patterns = [parse_pattern({"a": [{"numeric": bound}]}) for bound in map(list, bounds)]
    patterns += [parse_pattern('{"a": [{"numeric": ["<", 1e99999999999999999]}]}')]
    zeros = "0" * 1_000
    numbers = [f"{sign}1{more}e{power}{nines}" for sign in ("", "-") for more in ("", ".5") for power in ("", "-")
               for nines in ("9" * 17, "9" * 18, "1" + "0" * 18, "9" * 40, zeros + "7")]  # fmt: skip
    numbers += [f"0.{zeros}1e1{'0' * 17}", f"0.{zeros}1e1{'0' * 18}", f"1{zeros}e-1{'0' * 17}"]
    matcher = compile_rules(patterns)
    events = [f'{{"a": {number}}}'.encode() for number in numbers]

    assert compare(patterns, events, matcher).differences == []
    assert matcher.match(pa.array(events, pa.binary())).handed_back == 0


def test_only_a_rule_that_names_an_exponent_beyond_all_is_handed_back() -> None:
    """The rules beside it are decided by the tables."""
    patterns = [parse_pattern('{"a": [{"numeric": ["<", 1e999999999999999999]}]}'), parse_pattern({"a": [1]})]
    matcher = compile_rules(patterns)
    events = [b'{"a": 1}', b'{"a": 1e9999999999999999999}', b'{"a": "x"}']

    assert compare(patterns, events, matcher).differences == []
    assert matcher.match(pa.array(events, pa.binary())).handed_back == 3
