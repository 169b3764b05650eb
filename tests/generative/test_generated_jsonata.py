"""Any JSONata expression on any data has a result or fails, and the next event is evaluated correctly.

HYPOTHESIS_PROFILE=deep tries thousands of new expressions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from transform_scope import SCOPE

from eventbridge.errors import BudgetSpent, TransformError, TransformFailed
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.json_document import Number, parse_document, parse_value, write_document
from eventbridge.rules import Transform
from eventbridge.transform import Budget, compile_transform

CASES: Any = parse_value((Path(__file__).parents[1] / "conformance" / "jsonata.json").read_text(encoding="utf-8"))
#: Valid expressions, from the conformance cases.
WRITTEN = [str(test["expression"]) for group in CASES for test in group["tests"]]

NAMES = ["a", "b", "c", "n", "`k v`", "$", "$$", "$eb.rule", "*", "**", "%", "data"]
NUMBERS = ["0", "1", "-1", "2.5", "1e3", "1e308", "9007199254740993", "0.1"]
LITERALS = ['"x"', '""', '"\\u00e9"', '"\\ud800"', '"a b"', "true", "false", "null", "[]", "{}", "/a+/i", "/(a|b)*c/"]
OPERATORS = ["+", "-", "*", "/", "%", "&", "=", "!=", "<", ">=", "in", "and", "or", "~>", ":=", ".", "..", "?:", "??"]
FUNCTIONS = re.findall(
    r"\w+",
    """
    sum count max average string number length substring substringBefore uppercase trim pad contains split join match
    replace base64encode base64decode encodeUrl eval abs floor round power sqrt formatNumber formatBase parseInteger
    boolean not exists append sort reverse shuffle distinct zip keys lookup spread merge sift each error assert type now
    millis fromMillis toMillis map filter single reduce random clone nosuch
""",
)
TOKENS = [*NAMES, *NUMBERS, *LITERALS, *OPERATORS, *(f"${name}(" for name in FUNCTIONS), "(", ")", "[", "]", "{", "}"]
TOKENS += [
    ",",
    ";",
    ":",
    "?",
    "^(",
    "^(>",
    "#$i",
    "@$v",
    "|",
    "function($x){",
    "λ($x)",
    "$f := ",
    '"',
    "`",
    "/",
    "/* ",
    "é",
    "\x00",
]

TEXTS = st.sampled_from(["", "x", "a b", "é", "😀", "\ud800", "1", "2026-01-01T00:00:00Z", "aaaaaaaaaaaaaaaa!"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3).map(Number.from_python)
    | st.sampled_from(["1.50", "-0", "1e400", "123456789012345678901234567890", "0.1E-5"]).map(Number)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c", "k v"]), inner, max_size=4)
    ),
    max_leaves=8,
)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions that contain smaller ones."""
    several = st.lists(inner, max_size=3)
    return st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join),
        st.tuples(st.sampled_from(FUNCTIONS), several).map(lambda made: f"${made[0]}({', '.join(made[1])})"),
        several.map(lambda made: f"[{', '.join(made)}]"),
        st.lists(st.tuples(st.sampled_from(['"p"', '"q"', "a"]), inner), max_size=2).map(
            lambda made: "{" + ", ".join(f"{name}: {value}" for name, value in made) + "}"
        ),
        st.tuples(inner, inner).map(lambda made: f"{made[0]}[{made[1]}]"),
        st.tuples(inner, inner).map(lambda made: f"({made[0]}).({made[1]})"),
        st.tuples(inner, inner).map(lambda made: f"({made[0]})^(>{made[1]})"),
        st.tuples(inner, inner, inner).map(lambda made: f"({made[0]} ? {made[1]} : {made[2]})"),
        st.tuples(inner, inner).map(lambda made: f"($f := function($x, $y) {{ {made[0]} }}; $f({made[1]}, $f))"),
        st.tuples(inner, inner).map(lambda made: f"$map({made[0]}, function($v, $i) {{ {made[1]} }})"),
        st.tuples(inner, inner, inner).map(lambda made: f'({made[0]} ~> |{made[1]}|{{"a": {made[2]}}}|)'),
        several.map(lambda made: "(" + "; ".join(made) + ")"),
    )


GENERATED = st.recursive(st.sampled_from([*NAMES, *NUMBERS, *LITERALS, "$x", "$v"]), _nested, max_leaves=12)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a valid expression with a few changes, most of which are no longer valid."""
    text = draw(st.sampled_from(WRITTEN) | GENERATED)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = draw(st.integers(at, min(len(text), at + 5)))
        other = draw(st.sampled_from(WRITTEN))
        begin = draw(st.integers(0, len(other)))
        put = draw(st.sampled_from(["", *TOKENS]) | st.just(other[begin : begin + 8]) | st.just(text[at:end] * 2))
        text = text[:at] + put + text[end:]
    return text


def event(data: Any) -> Event:
    """Return an event with this data."""
    document = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t", "data": data}
    return parse_event(write_document(document).encode("utf-8", "backslashreplace"), max_bytes=1 << 20)


PROBE = compile_transform(Transform(form="JSONATA", value='{"n": $sum(data.l) + 1, "x": $x, "f": $f, "by": $eb.rule}'))


def check(expression: str, data: Any, budget: Budget) -> str:
    """Evaluate an expression and then another one, and return how the first one ended."""
    try:
        renderer = compile_transform(Transform(form="JSONATA", value=expression))
    except TransformError:
        return "refused"
    try:
        payload = renderer.render(event(data), SCOPE._replace(budget=budget)).payload
        parse_document(b'{"value":' + payload + b"}")  # one value of strict JSON, in UTF-8
        outcome = "responded"
    except TransformFailed:
        outcome = "failed"
    except BudgetSpent:
        assert budget.spent_seconds >= budget.seconds
        outcome = "spent"
    # Variables are unset and built-in functions are unchanged, so the evaluator is unaffected.
    after = json.loads(PROBE.render(event({"l": [1, 2.5]}), SCOPE).payload)
    assert after == {"n": 4.5, "by": SCOPE.rule}
    return outcome


@given(GENERATED, VALUES)
def test_an_expression_has_a_result_or_fails_and_nothing_else_notices(expression: str, data: Any) -> None:
    """Random combinations of operators, functions, predicates, sorts, lambdas and transforms have a result or fail."""
    check(expression, data, Budget(2.0))


@given(mutated(), VALUES)
def test_a_damaged_expression_is_refused_or_fails_and_nothing_else_notices(expression: str, data: Any) -> None:
    """Expressions with missing, repeated or misplaced tokens are rejected or fail without side effects."""
    check(expression, data, Budget(2.0))


@given(st.lists(st.sampled_from(WRITTEN), min_size=1, max_size=5), VALUES)
def test_expressions_that_mean_something_meet_any_data(expressions: list[str], data: Any) -> None:
    """The conformance cases' expressions evaluate or fail on other data; once a budget is spent, none is evaluated."""
    spent = Budget(0.001)
    spent.charge(0.001)
    for expression in expressions:
        assert check(expression, data, Budget(2.0)) in ("responded", "failed")
        assert check(expression, data, spent) == "spent"
