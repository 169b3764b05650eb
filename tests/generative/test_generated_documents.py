"""Documents and numbers obey their laws on generated text."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventbridge.errors import EventError
from eventbridge.event.json_document import Number, parse_document, write_document

digits = st.text("0123456789", min_size=1, max_size=25)
number_texts = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    digits.map(lambda text: text.lstrip("0") or "0"),
    st.one_of(st.just(""), digits.map(lambda text: "." + text)),
    st.one_of(st.just(""), st.integers(-30, 30).map("e{}".format), st.integers(0, 30).map("E+0{}".format)),
)
SURROGATE_PAIR = re.compile(r"\\ud[89ab]..\\+ud[c-f]..")
strings = st.text(st.characters(exclude_categories=()), max_size=8)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), number_texts.map(Number), strings),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
    max_leaves=12,
)
near_json = st.text('{}[]":,0123456789.eE+-truefalsn \t\n\\u/a\x00\ufeffé', max_size=20).map('{{"a":{}}}'.format)


@given(number_texts, number_texts)
def test_numbers_compare_as_their_exact_values(one: str, other: str) -> None:
    """Numbers have the order, equality and hash of their exact fractions."""
    left, right = Number(one), Number(other)
    expected = (Fraction(one) > Fraction(other)) - (Fraction(one) < Fraction(other))

    assert (left > right) - (left < right) == expected
    assert (left >= right) - (left <= right) == expected
    assert (left == right) == (expected == 0)
    assert left != right or hash(left) == hash(right)


@given(number_texts, st.integers(0, 5))
def test_the_same_number_spelled_otherwise_is_equal(text: str, zeros: int) -> None:
    """Trailing zeros and a shifted exponent change neither equality nor the hash."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    sign, power = "-" if text.startswith("-") else "", zeros + len(whole) + int(exponent or 0)
    moved = Number(f"{sign}0.{'0' * zeros}{whole}{fraction}{'0' * zeros}e{power}")

    assert moved == Number(text)
    assert hash(moved) == hash(Number(text))


@given(st.dictionaries(strings, json_values, max_size=4))
def test_document_survives_being_written(document: dict[str, Any]) -> None:
    """Reading a written document returns the same document with the same digits, also as UTF-8."""
    again = parse_document(write_document(document).encode("utf-8"))

    assert write_document(again) == write_document(parse_document(write_document(again)))
    # adjacent surrogate halves in Python become one character in JSON
    assert again == document or SURROGATE_PAIR.search(repr(write_document(document)))


def refuse(word: str) -> None:
    """Reject a word that the standard library accepts although it is not JSON."""
    raise ValueError(word)


@given(near_json)
def test_strictness_is_that_of_the_standard(text: str) -> None:
    """A text is accepted exactly if the standard library accepts it strictly, and has the same value."""
    try:
        expected = json.loads(text, parse_constant=refuse)
        good = True
    except ValueError:
        good = False
    try:
        document = parse_document(text)
    except EventError:
        assert not good
    else:
        assert good
        assert json.loads(write_document(document)) == expected
