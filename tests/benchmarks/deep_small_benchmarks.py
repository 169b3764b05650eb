"""The benchmarks that start brokers, Airflow or several processes, at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_benchmarks import prints_its_table

_SMALL = {
    "bench_retry_lane": (
        ["--pending", "400", "--seconds", "5", "--backlog", "300"],
        ["400", "first attempt", "every delivery", "300 deliveries", "drains"],
    ),
    "bench_isolation": (
        [
            *("--rate", "5", "--rounds", "1", "--seconds", "2", "--warm", "1"),
            *("--pending", "100", "--begins", "1", "--begin-rounds", "1"),
        ],
        ["all ten healthy", "one hangs", "100", "p99 s from then on", "streaming", "goal: p99 at most 1.3 times"],
    ),
    "bench_fairness": (
        ["--seconds", "5", "--rounds", "1", "--topic-seconds", "2", "--hot", "20", "--between", "1.5"],
        [
            *("high offers 3 times the 8 slots", "low settles at least 5%", "its oldest wait", "a quiet topic"),
            *("p99 beside a hot topic", "set priority", "every override takes effect within 1 s"),
        ],
    ),
    "bench_sources": (
        ["--events", "200", "--rounds", "1"],
        [
            "a backlog of 200 events of 1,024 bytes",
            "goal: kafka: 80,000 a CPU-second",
            "goal: rocketmq: 60,000 a CPU-second",
        ],
    ),
    "bench_streaming": (
        ["--rates", "20", "--targets", "http", "--modes", "streaming", "batch", "--seconds", "2", "--slow", "1"],
        ["streaming", "batch", "idle", "goal: streaming, http, 20/s: p99 ms at most 50", "differences of the audit"],
    ),
}


@pytest.mark.parametrize("name", _SMALL)
def test_a_small_benchmark_prints_its_table(name: str, tmp_path: Path) -> None:
    """Every line of the table exists, and no goal is judged."""
    arguments, wanted = _SMALL[name]

    prints_its_table(name, arguments, wanted, tmp_path)
