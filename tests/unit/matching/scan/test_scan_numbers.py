"""JSON numbers as bytes, against `eventbridge.event.json_document.Number`."""

from __future__ import annotations

import itertools
import random
from typing import Any

from generative.vocabulary import Vocabulary
from numba import njit
from unit.raw_memory import Raw

from eventbridge.event.json_document import Number
from eventbridge.matching.scan.numbers import (
    FAR,
    NEAR,
    compare,
    normal_form,
    number_end,
    quick_number_end,
    simple_number,
)

Normal = tuple[int, int, Raw, int]


def normal(text: str) -> Normal:
    """Return a number's sign, position, digits and how many they are."""
    raw, digits = Raw(text.encode()), Raw(bytes(len(text)))
    sign, power, count = normal_form(raw.address, 0, raw.length, digits.address)
    return sign, power, digits, count


def order(one: Normal, other: Normal) -> int:
    """Return -1, 0 or 1 as `compare` says."""
    return int(compare(one[0], one[1], one[2].address, one[3], other[0], other[1], other[2].address, 0, other[3]))


def spelled(count: int) -> list[str]:
    """Return numbers in many spellings, many of them near one another."""
    found: list[str] = []
    for seed in itertools.count():
        vocabulary = Vocabulary(random.Random(seed))
        for number in vocabulary.numbers:
            found += [vocabulary.spelled_number(vocabulary.near_number(number)) for _ in range(4)]
        if len(found) >= count:
            return found
    raise AssertionError


def test_numbers_end_where_the_standard_says() -> None:
    """Every text of up to five characters: a number ends where the text does, any other before or never."""
    for size in range(1, 6):
        for letters in itertools.product("01-.eE+", repeat=size):
            text = "".join(letters)
            raw = Raw(text.encode())
            end = number_end(raw.address, 0, size)

            # A zero before other digits ends a number for the one, and makes it none for the other
            assert _quick_end(raw.address, size) in (end, -1 if text.lstrip("-")[:1] == "0" else end), text
            assert (end == size) == Number.is_number(text), text
            assert end == -1 or end == size or Number.is_number(text[:end]), text


def test_long_numbers_end_where_short_ones_do() -> None:
    """Digits before and behind the point, up to and beyond what is seen in one look, then each kind of end."""
    for sign, whole, decimals in itertools.product(("", "-"), range(1, 36), range(36)):
        text = sign + "7" * whole + ("." + "3" * decimals if decimals else "")
        for tail in ("", "e5", ".", "e", "x", ","):
            raw, size = Raw((text + tail).encode()), len(text + tail)

            assert _quick_end(raw.address, size) == number_end(raw.address, 0, size), text + tail


@njit
def _quick_end(address: int, size: int) -> Any:
    return quick_number_end(address, 0, size)


def test_normal_forms_compare_as_numbers_do() -> None:
    """Neighbours by one digit far behind, all spellings of one value, huge exponents: the order is exact."""
    texts = spelled(1_000)
    forms = [normal(text) for text in texts]
    for (one, left), (other, right) in itertools.pairwise(zip(texts, forms, strict=True)):
        if min(abs(left[1]), abs(right[1])) <= NEAR:
            expected = (Number(one) > Number(other)) - (Number(one) < Number(other))

            assert order(left, right) == expected, (one, other)
            assert order(right, left) == -expected, (one, other)


def test_only_exponents_of_more_than_18_digits_are_not_counted_with() -> None:
    """Zeros in front of an exponent do not count; a number that is zero has no exponent."""
    assert normal("1e99999999999999999")[:2] == (1, 10**17)
    assert normal("-1e-0000000000000000000000199999999999999999")[:2] == (-1, 1 - NEAR + 1)
    assert normal("1e999999999999999999")[:2] == (1, 10**18)
    assert normal("1e1000000000000000000")[:2] == (1, FAR)
    assert normal("-1e-1000000000000000000")[:2] == (-1, -FAR)
    assert normal("0e1000000000000000000")[0] == 0


def test_simple_numbers_are_the_nearest_doubles() -> None:
    """Up to 15 digits without an exponent: what Python's float gives; all others say that they are not simple."""
    for text in spelled(2_000):
        raw = Raw(text.encode())
        simple, value = simple_number(raw.address, 0, raw.length)
        digits = sum(letter.isdigit() for letter in text)

        assert simple == ("e" not in text.lower() and digits <= 15), text
        assert not simple or value == float(text), text
