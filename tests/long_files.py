"""Which files of tests take longest: they begin first, so that what runs several at a time ends at one time."""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).parent

#: The longest first; what waits most is beside what computes.
LONG_FILES = (
    "benchmarks/test_small_benchmarks.py",
    "end_to_end/test_deliveries_survive.py",
    "docs/test_pages.py",
    "end_to_end/test_operators_use_airflow.py",
    "end_to_end/test_operators_trigger_dags.py",
    "end_to_end/test_demo_on_brokers.py",
    "end_to_end/test_targets_heal.py",
    "end_to_end/test_a_day.py",
    "orchestration/test_installed_wheel.py",
    "api/test_openapi.py",
    "generative/test_kernel_agrees.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of those files before all others; the order is the same otherwise."""
    missing = [name for name in LONG_FILES if not (_TESTS / name).is_file()]
    assert missing == [], "tests/long_files.py names files that there are not"
    places = {_TESTS / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
