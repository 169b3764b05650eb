"""The delivery benchmarks run at a small size: they measure what they say, whatever comes out on a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_SMALL = {
    "bench_push": (["--deliveries", "300", "--times", "1"], ["push to HTTP", "push to a file", "aiohttp", "httpx"]),
    "bench_api": (["--events", "400"], ["publish to the API", "400", "body given back", "20,000"]),
    "bench_retry_lane": (
        ["--parked", "400", "--seconds", "5", "--backlog", "300"],
        ["400", "first attempt", "every delivery", "300 deliveries", "drains"],
    ),
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
    "bench_isolation": (
        ["--rate", "5", "--seconds", "3", "--warm", "3", "--parked", "100", "--begins", "2", "--begin-rounds", "1"],
        ["all ten healthy", "one hangs", "100", "p99 s from then on", "express", "goal: p99 at most 1.3 times"],
    ),
    "bench_many_rules": (
        ["--rules", "12", "--deliveries", "60", "--few", "24", "--times", "1"],
        ["http", "file", "10 of them", "in turns", "nothing parked, nobody degraded: kept"],
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
            "0 listed, 0 read: kept",
        ],
    ),
    "bench_backtest": (
        ["--events", "2000", "--rounds", "1", "--rules", "20"],
        ["2,000 archived events", "read and match", "backtest", "goal: CPU of a backtest, at most 1.5 times"],
    ),
    "bench_fairness": (
        ["--seconds", "5", "--rounds", "1", "--topic-seconds", "2", "--hot", "20", "--between", "1.5"],
        [
            *("high offers 3 times the 8 slots", "low settles at least 5%", "its oldest wait", "a quiet topic"),
            *("p99 beside a hot topic", "set priority", "every word holds within 1 s"),
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
    "bench_express": (
        ["--rates", "20", "--targets", "http", "--modes", "express", "staged", "--seconds", "2", "--slow", "1"],
        ["express", "staged", "idle", "goal: express, http, 20/s: p99 ms at most 50", "differences of the audit"],
    ),
    "bench_batch": (
        ["--events", "400", "--fanned", "20"],
        ["400 events of 1,024 bytes, 200 deliveries", "400 deliveries: 20 targets each", "commit", "peak of a stage"],
    ),
}


@pytest.mark.parametrize("name", _SMALL)
def test_a_small_benchmark_prints_its_table(name: str, tmp_path: Path) -> None:
    """Every line of the table is there, and no goal is judged: the exit code says only whether they are reached."""
    arguments, wanted = _SMALL[name]
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]

    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)

    assert done.returncode in (0, 1), done.stderr
    assert [text for text in wanted if text not in done.stdout] == [], done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [], "a benchmark leaves nothing behind"
