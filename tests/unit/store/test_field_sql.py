"""What events have at a path is counted for all of them at once, as a look at each by itself would say."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eventbridge.policy.quality import FieldCounts
from eventbridge.store.queries import count_fields
from eventbridge.transform.jsonpath import parse_path


def counted(path: str, *data: str) -> FieldCounts:
    """Return the counts of events with these data at a path."""
    bodies = [f'{{"id": "1", "data": {each}}}'.encode() for each in data]
    return count_fields(pa.table({"body": pa.array(bodies, pa.binary())}), {path: parse_path(path).steps})[path]


def test_null_and_missing_are_one() -> None:
    """A member that is null, one that is not there, and one below what is no object are null; false and 0 are not."""
    data = ['{"a": {"b": null}}', '{"a": {}}', "7", '{"a": {"b": false}}', '{"a": {"b": 0}}']

    assert counted("$.data.a.b", *data) == FieldCounts(5, 3, 1, 0.0, 0.0)


def test_only_numbers_have_a_range() -> None:
    """A text of digits is not a number; whole and broken ones are compared; what no double holds is none."""
    data = ['{"a": 2}', '{"a": -0.5}', '{"a": "9"}', '{"a": 18446744073709551616}', '{"a": 1e400}']

    assert counted("$.data.a", *data) == FieldCounts(5, 0, 3, -0.5, 2.0**64)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("$.data['a b']", '{"a b": 1}'),
        ("$.data['it\\'s']", '{"it\'s": 1}'),
        ("$.data['a/b']", '{"a/b": 1}'),
        ("$.data['a~1']", '{"a~1": 1}'),
        ("$.data['$.a']", '{"$.a": 1}'),
        ("$.data.a[1].b", '{"a": [0, {"b": 1}]}'),
        ("$.data.a[-1]", '{"a": [3, 2, 1]}'),
        ("$.data['1']", '{"1": 1}'),
    ],
)
def test_any_path_that_a_rule_may_write_leads_to_its_value(path: str, data: str) -> None:
    """Names with spaces, quotes, slashes, tildes or dollars, and elements from either end."""
    assert counted(path, data) == FieldCounts(1, 0, 1, 1.0, 1.0)


def test_counts_add_up() -> None:
    """Those of two files are the sums, and the range of both; no number has no range."""
    both = FieldCounts(2, 1, 1, 5.0, 5.0)
    both.add(FieldCounts(1, 0, 1, 3.0, 3.0))
    both.add(FieldCounts(1, 1, 0))

    assert both == FieldCounts(4, 2, 2, 3.0, 5.0)
