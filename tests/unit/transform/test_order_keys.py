"""The order key of an event: values that patterns take as equal are one key."""

from __future__ import annotations

import pytest

from eventbridge.event.json_document import parse_document
from eventbridge.transform import find_order_key


def key_of(customer: str, path: str = "$.data.customer") -> str | None:
    """Return the order key of an event whose customer is a JSON text."""
    return find_order_key(path, parse_document(f'{{"data": {{"customer": {customer}}}}}'))


@pytest.mark.parametrize("spelling", ["7", "7.0", "7e0", "70E-1", "7.000000000000000000000000000000"])
def test_a_number_is_one_key_however_it_is_written(spelling: str) -> None:
    """A pattern takes 7 and 7.0 as one number, so their deliveries go one after the other."""
    assert key_of(spelling) == "7"


def test_other_numbers_and_types_are_other_keys() -> None:
    """Numbers that only a double takes as equal are two keys, and so are 7 and "7"."""
    assert key_of("9007199254740993") != key_of("9007199254740992")
    assert key_of("1e400") != key_of("1e401")
    assert key_of("7") != key_of('"7"')
    assert key_of("0") == key_of("-0") != key_of("null")


def test_numbers_inside_a_value_count_as_numbers() -> None:
    """An object or a list is one key with another whose numbers are equal."""
    assert key_of('{"no": 7.0, "at": [1e0]}') == key_of('{"at": [1], "no": 7}')


def test_a_long_value_has_a_short_key() -> None:
    """Beyond 200 characters the key is a hash, the same for every spelling."""
    long = "1" * 500

    assert key_of(long) == key_of(f"{long}.0")
    assert len(key_of(long) or "") == 32
