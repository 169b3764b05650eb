"""What the parser makes of patterns in the forms callers have; which patterns are errors: invalid_patterns.json."""

from __future__ import annotations

import datetime
import pickle
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import pytest

from eventbridge.errors import PatternError
from eventbridge.event.json_document import Number
from eventbridge.matching.pattern import find_errors, parse_pattern, write_pattern
from eventbridge.matching.pattern.nodes import (
    All,
    And,
    AnythingBut,
    Cidr,
    Contains,
    EqualsIgnoreCase,
    Exactly,
    Exists,
    Field,
    Not,
    Numeric,
    Or,
    Pattern,
    Prefix,
    Regex,
    Suffix,
    Wildcard,
)


def test_every_operator_becomes_its_node() -> None:
    """A leaf list holds one node per condition, in order."""
    pattern = parse_pattern(
        """{"a": ["x", 1, null, {"exactly": "y"}, {"prefix": "p"}, {"suffix": {"equals-ignore-case": "s"}},
            {"equals-ignore-case": "e"}, {"wildcard": "w*"}, {"contains": "c"}, {"regex": "r+"},
            {"numeric": [">", 1, "<=", 2]}, {"exists": true}, {"cidr": "10.0.0.0/8"}, {"anything-but": [1, "z"]},
            {"anything-but": {"prefix": "q"}}, {"all": [{"exists": true}, "x"]}]}"""
    )

    assert pattern.where.clauses[0] == Field(
        ("a",),
        (
            Exactly("x"),
            Exactly(Number("1")),
            Exactly(None),
            Exactly("y"),
            Prefix("p"),
            Suffix("s", ignore_case=True),
            EqualsIgnoreCase("e"),
            Wildcard("w*"),
            Contains("c"),
            Regex("r+"),
            Numeric(((">", Number("1")), ("<=", Number("2")))),
            Exists(True),
            Cidr("10.0.0.0/8"),
            AnythingBut((Exactly(Number("1")), Exactly("z"))),
            AnythingBut((Prefix("q"),)),
            All((Exists(True), Exactly("x"))),
        ),
    )


def test_paths_are_absolute_wherever_the_field_stands() -> None:
    """A field below keys, `$or` and `$not` knows its whole path; `$or` knows the object it stands in."""
    pattern = parse_pattern({"a": {"b": [1], "$or": [{"c": [2]}, {"d": {"e": [3]}}]}, "$not": {"f": {"g": [4]}}})

    def field(*path: str) -> Field:
        return Field(path, (Exactly(Number(str("bcexg".index(path[-1]) + (path[-1] != "g")))),))

    alternatives = (And((field("a", "c"),)), And((field("a", "d", "e"),)))
    assert pattern == Pattern(And((field("a", "b"), Or(("a",), alternatives))), Not(And((field("f", "g"),))))


def test_wildcards_fall_into_parts() -> None:
    """The parts are what stands between the stars, unescaped."""
    shapes = {"": ("",), "a": ("a",), "*": ("", ""), "a*b": ("a", "b"), r"\**\\": ("*", "\\"), r"*\*": ("", "*")}

    assert {text: Wildcard(text).parts for text in shapes} == shapes


def test_text_bytes_and_mappings_give_the_same_pattern() -> None:
    """Python's numbers, tuples and other mappings are read as their JSON would be."""
    text = '{"a": [1, 2.5, true, {"numeric": [">", 1.10]}], "b": {"c": ["x"]}}'
    condition = {"numeric": (">", Decimal("1.1"))}
    mapping: Any = OrderedDict(a=(1, 2.5, True, condition), b=OrderedDict(c=["x"]))

    assert parse_pattern(text) == parse_pattern(text.encode()) == parse_pattern(mapping)


def test_numbers_of_text_keep_every_digit() -> None:
    """Written back, a number is the text it was."""
    pattern = {"a": [Number("1.50"), {"numeric": [">", Number("1E+2")]}]}
    written: Any = write_pattern(parse_pattern('{"a": [1.50, {"numeric": [">", 1E+2]}]}'))

    assert written == pattern
    assert (written["a"][0].text, written["a"][1]["numeric"][1].text) == ("1.50", "1E+2")


def test_a_pattern_is_a_value() -> None:
    """Equal patterns hash alike, `1` and `1.0` included, and survive pickling."""
    one, other = parse_pattern({"a": [1]}), parse_pattern('{"a": [1.0]}')

    assert one == other
    assert hash(one) == hash(other)
    assert one != parse_pattern({"a": [True]})
    assert pickle.loads(pickle.dumps(one)) == one


def test_values_of_yaml_that_json_lacks_are_errors_with_a_place() -> None:
    """YAML reads dates, keys that are no strings, and NaN: each is reported, none is guessed."""
    pattern = {"time": [datetime.date(2013, 1, 1)], "data": {1: ["x"], "a": [float("nan")], False: ["y"]}}

    assert [(error.path, error.message) for error in find_errors(pattern)] == [
        ("$.time[0]", "a date has no JSON form: datetime.date(2013, 1, 1)"),
        ("$.data", "a number as a key: 1"),
        ("$.data.a[0]", "nan is not a JSON number"),
        ("$.data", "a boolean as a key: false"),
    ]


def test_a_pattern_that_is_too_deep_is_an_error() -> None:
    """128 levels are a pattern, more are not, and a mapping that holds itself ends there."""
    pattern: Any = {"a": [1]}
    for _ in range(127):
        pattern = {"a": pattern}
    endless: dict[str, Any] = {}
    endless["a"] = endless

    assert find_errors(pattern) == []
    assert [error.message for error in find_errors({"a": {"a": pattern}})] == ["nested deeper than 128"]
    assert [error.message for error in find_errors(endless)] == ["nested deeper than 128"]


def test_an_error_knows_its_value() -> None:
    """The error has path, value and remedy."""
    with pytest.raises(PatternError) as raised:
        parse_pattern({"data": {"it's": [{"prefx": "a"}]}})

    assert raised.value.path == "$.data['it\\'s'][0]"
    assert raised.value.value == {"prefx": "a"}
    assert raised.value.remedy == 'Did you mean "prefix"?'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("prefx", "prefix"),
        ("startsWith", "prefix"),
        ("endsWith", "suffix"),
        ("equalsIgnoreCase", "equals-ignore-case"),
        ("equals_ignore_case", "equals-ignore-case"),
        ("like", "wildcard"),
        ("matches", "regex"),
        ("not", "anything-but"),
        ("anythingbut", "anything-but"),
        (">", "numeric"),
        ("gte", "numeric"),
        ("exist", "exists"),
        ("ip-address-in-range", "cidr"),
        ("ALL", "all"),
    ],
)
def test_an_unknown_operator_gets_the_one_that_was_meant(written: str, meant: str) -> None:
    """By meaning in other languages, and by spelling."""
    assert [error.remedy for error in find_errors({"a": [{written: "x"}]})] == [f'Did you mean "{meant}"?']


def test_an_operator_like_none_gets_the_list_of_all() -> None:
    """Better no guess than a wild one."""
    (error,) = find_errors({"a": [{"xyzzy": 1}]})

    assert error.remedy.startswith("The operators are exactly, prefix, suffix,")
