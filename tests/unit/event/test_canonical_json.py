"""Canonical JSON: one text for all spellings of a value, and no text for two values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.event.json_document import Number, parse_value
from eventbridge.event.json_text import canonical_number, canonical_text

_DIGITS = st.text("0123456789", min_size=1, max_size=25)
NUMBERS = st.builds(
    lambda sign, whole, fraction, exponent: sign + (whole.lstrip("0") or "0") + fraction + exponent,
    st.sampled_from(["", "-"]),
    _DIGITS,
    st.one_of(st.just(""), _DIGITS.map(lambda digits: f".{digits}")),
    st.one_of(
        st.just(""), st.integers(-40, 40).map(lambda power: f"e{power}"), st.just("E+00"), st.just("e99999999999")
    ),
)


@pytest.mark.parametrize(
    ("spellings", "text"),
    [
        (["7", "7.0", "7e0", "70e-1", "0.7E+1"], "7"),
        (["0", "-0", "0.0", "-0e400"], "0"),
        (["-7.50", "-75e-1"], "-7.5"),
        (["100000000000000000000", "1e20"], "100000000000000000000"),
        (["1" + "0" * 400, "1e400", "0.1e401"], "1e+400"),
        (["9007199254740993", "9007199254740993.0"], "9007199254740993"),
        (["0.0000001", "1e-7"], "0.0000001"),
        (["1.25e-300", "12.5e-301"], "1.25e-300"),
        (["1e999999999999", "10e999999999998"], "1e+999999999999"),
    ],
)
def test_every_spelling_of_a_number_has_one_text(spellings: list[str], text: str) -> None:
    """Zeros, exponents and the sign of zero do not count, and no digit is rounded."""
    assert [canonical_number(Number(each)) for each in spellings] == [text] * len(spellings)


def test_numbers_beyond_double_precision_have_texts_of_their_own() -> None:
    """9007199254740992 and 9007199254740993 are the same double and two numbers."""
    texts = {canonical_number(Number(f"900719925474099{digit}")) for digit in "0123"}

    assert len(texts) == 4


@given(NUMBERS, NUMBERS)
def test_texts_are_equal_as_the_numbers_are(one: str, other: str) -> None:
    """The text is a number of the same value, so that numbers have one text exactly if they are equal."""
    texts = [canonical_number(Number(each)) for each in (one, other)]

    assert [Number(each) for each in texts] == [Number(one), Number(other)]
    assert (texts[0] == texts[1]) == (Number(one) == Number(other))
    assert canonical_number(Number(texts[0])) == texts[0]


def test_objects_and_lists_are_compared_by_their_values() -> None:
    """Numbers inside count by value and members in any order; the order of a list counts."""
    one = parse_value('{"b": [1.0, {"y": -0, "x": "é"}], "a": null}')
    other = parse_value('{"a": null, "b": [1, {"x": "\\u00e9", "y": 0e5}]}')

    assert canonical_text(one) == canonical_text(other) == '{"a":null,"b":[1,{"x":"é","y":0}]}'
    assert canonical_text(parse_value("[1, 2]")) != canonical_text(parse_value("[2, 1]"))
