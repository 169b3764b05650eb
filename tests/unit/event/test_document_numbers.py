"""Numbers keep their text and compare by exact value; the laws are in tests/generative."""

from __future__ import annotations

import itertools
import pickle
import time
from decimal import Decimal

import pytest

from eventbridge.event.json_document import Number


def test_a_number_keeps_its_text() -> None:
    """What was written is what `text` and `str` give, equal or not."""
    assert [str(Number(text)) for text in ("1", "1.0", "1e0", "-0")] == ["1", "1.0", "1e0", "-0"]
    assert Number("1.0").text == "1.0"
    assert repr(Number("1.0")) == "Number('1.0')"


def test_a_number_is_no_other_type() -> None:
    """A number equals numbers of documents only, and is ordered among them only."""
    assert Number("1") != 1
    assert Number("1") != "1"
    assert Number("1") not in (True, None)
    with pytest.raises(TypeError):
        assert Number("1") < 2  # type: ignore[operator]


def test_a_number_is_frozen() -> None:
    """Nothing can be set on it, as it may be a key somewhere."""
    number = Number("1")

    with pytest.raises(AttributeError, match="frozen"):
        number.text = "2"


def test_a_number_survives_pickling() -> None:
    """Spark's workers get numbers that way."""
    assert pickle.loads(pickle.dumps(Number("1.50"))).text == "1.50"


@pytest.mark.parametrize(
    ("value", "text"),
    [(5, "5"), (-0.5, "-0.5"), (1e300, "1e+300"), (Decimal("1.10"), "1.10"), (10**5000, "1" + "0" * 5000)],
    ids=["int", "float", "large float", "decimal", "large int"],
)
def test_numbers_of_python_become_numbers(value: int | float | Decimal, text: str) -> None:
    """`Number.of` writes them as JSON does, an int of five thousand digits too."""
    assert Number.from_python(value).text == text
    assert Number.is_number(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("-Infinity"), Decimal("NaN")])
def test_nan_and_infinity_are_not_numbers(value: float | Decimal) -> None:
    """NaN and infinities have no JSON text."""
    with pytest.raises(ValueError, match="is not a JSON number"):
        Number.from_python(value)


@pytest.mark.parametrize("text", ["", "01", "+1", ".5", "1.", "1e", "0x1", "1_0", "\u0661", " 1", "NaN"])
def test_only_numbers_of_the_standard_are_numbers(text: str) -> None:
    """RFC 8259 says what a number is."""
    assert not Number.is_number(text)


def test_comparing_costs_by_the_length_of_the_text() -> None:
    """Neither a huge value nor a million digits, anywhere, take time or memory by their value."""
    started = time.process_time()
    million = "9" * 1_000_000
    numbers = [
        Number("-1e" + million),
        Number("-1e999999999"),
        Number("-" + million),
        Number("-1e-999999999"),
        Number("0e" + million),
        Number("1e-" + million),
        Number("1e-999999999"),
        Number("0." + million),
        Number("1"),
        Number("1e999999999"),
        Number("1e" + million),
    ]

    assert all(smaller < greater for smaller, greater in itertools.pairwise(numbers))
    assert len({*numbers, Number("10e999999998")}) == len(numbers)
    assert time.process_time() - started < 2
