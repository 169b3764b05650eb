"""The delivery benchmarks run at a small size: they measure what they say, whatever comes out on a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_benchmarks import prints_its_table

_SMALL = {
    "bench_push": (["--deliveries", "300", "--times", "1"], ["push to HTTP", "push to a file", "aiohttp", "httpx"]),
    "bench_api": (["--events", "400"], ["publish to the API", "400", "body given back", "20,000"]),
    "bench_looking": (["--rounds", "1", "--events", "2"], ["rules check", "status", "dead-letters list", "audit"]),
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
    "bench_many_rules": (
        ["--rules", "12", "--deliveries", "60", "--few", "24", "--times", "1"],
        ["http", "file", "10 of them", "in turns", "nothing pending, no target degraded: met"],
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
