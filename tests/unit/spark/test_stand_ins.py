"""What stands for halves of surrogate pairs and large numbers in the data that Spark reads, and how it comes back."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.event.json_document import JsonValue, Number, parse_value, write_document
from eventbridge.spark.sql_frame import restore, stand_in

_TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(["\ud83d", "\udc00", " ", '"', "\\", "\U000f0000"])))
_NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,4})?", fullmatch=True).map(Number)
_DATA: st.SearchStrategy[JsonValue] = st.recursive(
    st.one_of(_TEXTS, _NUMBERS, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=8,
)


def come_back(data: JsonValue) -> JsonValue:
    """Return data that Spark passed through as it is."""
    made = stand_in(data)
    return parse_value(made.text if made.key is None else restore(made.text, made.key, is_json=True))


@given(_DATA)
def test_data_that_passes_through_is_unchanged(data: JsonValue) -> None:
    """Every number keeps its value and every text its characters, halves of surrogate pairs included."""
    made = stand_in(data)

    made.text.encode()
    assert "\\ud" not in made.text.replace("\\\\", "")
    assert come_back(data) == data


@pytest.mark.parametrize(
    ("number", "spelling"),
    [
        ("2.50", "2.50"),
        ("1.1e0", "1.1"),
        ("1.5E+25", "15000000000000000000000000"),
        ("-1e22", "-10000000000000000000000"),
        ("1e-300", "1e-300"),
        ("-1.23456789012345678e-10", "-0.000000000123456789012345678"),
        ("0e99999", "0"),
        ("1e400", '" 1e400 "'),
        ("1e-400", '" 1e-400 "'),
        ("1" * 39, f'" {"1" * 39} "'),
        ("1e99999999999", '" 1e99999999999 "'),
    ],
)
def test_a_number_is_read_by_spark_without_loss(number: str, spelling: str) -> None:
    """A decimal of 38 digits or a short double holds it, else a string of it, which casts to numbers."""
    assert stand_in(Number(number)).text == spelling


def test_a_restored_value_stands_alone_or_in_text() -> None:
    """A value between quotes is the number again, also in JSON within JSON; within a text only the spaces go."""
    made = stand_in([Number("1e400"), "a b"])
    assert made.key is not None

    [padded] = [each for each in json.loads(made.text) if each != "a b"]
    assert restore(json.dumps({"v": padded}), made.key, is_json=True) == '{"v": 1e400}'
    assert restore(json.dumps(json.dumps({"v": padded})), made.key, is_json=True) == '"{\\"v\\": 1e400}"'
    assert restore(json.dumps(f"n={padded}"), made.key, is_json=True) == '"n=1e400"'
    assert restore(padded, made.key, is_json=False) == "1e400"
    assert (
        restore("cut " + json.loads(stand_in("\ud83d").text), stand_in("\ud83d").key or "", is_json=False)
        == "cut \ud83d"
    )


def test_hostile_data_costs_by_its_length() -> None:
    """A megabyte of numbers and halves, or of spaces, takes no more than a few seconds and megabytes."""
    halves = [chr(0xD800 + number) for number in range(2048)]
    many: JsonValue = [*halves, *(Number(f"{number}e400") for number in range(1, 100_000))]
    spaces: JsonValue = [" " * 1_000_000, *(Number(f"{number}e400") for number in range(1, 1_000))]
    began = time.process_time()

    assert come_back(many) == many
    assert len(stand_in(spaces).text) < 2 * len(write_document(spaces))
    assert time.process_time() - began < 20
