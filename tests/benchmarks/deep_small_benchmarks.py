"""The benchmarks that start brokers, Airflow or several processes, or prepare much, at a small size."""

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
    "bench_looking": (["--rounds", "1", "--events", "2"], ["rules check", "status", "dead-letters list", "audit"]),
    "bench_many_rules": (
        ["--rules", "12", "--deliveries", "60", "--few", "24", "--times", "1"],
        ["http", "file", "10 of them", "in turns", "nothing pending, no target degraded: met"],
    ),
    "bench_why": (
        ["--days", "2", "--events", "40", "--batches", "4", "--rounds", "1"],
        ["80", "index B/event", "unknown id", "goal: each at most 2 s"],
    ),
    "bench_page": (
        [
            *["--days", "1", "--events", "40", "--batches", "4", "--delivered", "16"],
            "--rules=16",
            "--rounds=1",
        ],
        ["/dead-letters/LETTER", "/event?id=OLD", "40 events in 4 batches, 16 rules", "find by id at most 1,000 ms"],
    ),
    "bench_replay": (
        [
            *["--events", "300", "--beside", "200", "--capacity", "200"],
            "--rounds=1",
            "--warm=2",
            "--seconds=2",
            "--router=process",
        ],
        [
            "beside a replay at full speed",
            "300 archived events",
            "throughput",
            "p99, at most",
            "0 listed, 0 read: met",
        ],
    ),
    "bench_backtest": (
        ["--events", "2000", "--rounds", "1", "--rules", "20"],
        ["2,000 archived events", "read and match", "backtest", "goal: CPU of a backtest, at most 1.5 times"],
    ),
}


@pytest.mark.parametrize("name", _SMALL)
def test_a_small_benchmark_prints_its_table(name: str, tmp_path: Path) -> None:
    """Every line of the table exists, and no goal is judged."""
    arguments, wanted = _SMALL[name]

    prints_its_table(name, arguments, wanted, tmp_path)
