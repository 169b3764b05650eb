"""Quick benchmarks run at a small size: they measure what they say, whatever comes out on a busy machine.

`make test-deep` runs the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_benchmarks import prints_its_table

_SMALL = {
    "bench_push": (["--deliveries", "300", "--times", "1"], ["push to HTTP", "push to a file", "aiohttp", "httpx"]),
    "bench_targets": (
        ["--events", "400", "--times", "1", "--targets", "delta", "iceberg", "s3", "queue"],
        ["delta", "iceberg", "s3", "queue", "0.6"],
    ),
    "bench_api": (["--events", "400"], ["publish to the API", "400", "body given back", "20,000"]),
    "bench_batch": (
        ["--events", "400", "--fanned", "20"],
        ["400 events of 1,024 bytes, 200 deliveries", "400 deliveries: 20 targets each", "commit", "peak of a stage"],
    ),
}


@pytest.mark.parametrize("name", _SMALL)
def test_a_small_benchmark_prints_its_table(name: str, tmp_path: Path) -> None:
    """Every line of the table exists, and no goal is judged."""
    arguments, wanted = _SMALL[name]

    prints_its_table(name, arguments, wanted, tmp_path)
