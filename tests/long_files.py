"""In which order files of tests begin where several run at a time, and which of them never do at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[1]

#: Files that start an Airflow and a Spark, in two lines: of each line one runs at a time.
_LINES = (
    (
        "tests/end_to_end/test_deliveries_survive.py",
        "tests/end_to_end/test_targets_heal.py",
        "tests/end_to_end/test_a_day.py",
    ),
    (
        "tests/end_to_end/test_operators_use_airflow.py",
        "tests/end_to_end/test_operators_trigger_dags.py",
        "tests/end_to_end/test_demo_on_brokers.py",
    ),
)
#: What begins first: what takes longest.
_FIRST = (
    *_LINES[0],
    *_LINES[1],
    "tests/benchmarks/test_small_benchmarks.py",
    "tests/docs/test_pages.py",
    "tests/orchestration/test_installed_wheel.py",
    "tests/generative/test_kernel_agrees.py",
    "tests/stages/test_listen.py",
)


class Lines(LoadFileScheduling):
    """Gives a worker a file at a time, or a whole line of them."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return next((line[0] for line in _LINES if file in line), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of the files that take longest before all others; the order is the same otherwise."""
    missing = [name for name in _FIRST if not (_ROOT / name).is_file()]
    assert missing == [], "tests/long_files.py names files that there are not"
    places = {_ROOT / name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
