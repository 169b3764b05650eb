"""Spark's Python workers are forked from a process that has all in it that route needs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pyarrow as pa

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect


def _asked(server: SparkConnectServer) -> tuple[int, int, int]:
    """Return of a worker: its process, its parent's, how often that one or itself made route ready."""

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from eventbridge.stages.compile_ahead import compile_ahead

        for _ in batches:
            made = compile_ahead.cache_info().currsize
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "parent": [os.getppid()], "made": [made]})

    spark = connect(server.url, "daemon")
    (row,) = spark.range(0, 1, 1, numPartitions=1).mapInArrow(answer, "pid long, parent long, made long").collect()
    return row["pid"], row["parent"], row["made"]


def test_a_fresh_worker_is_ready(spark_server: SparkConnectServer) -> None:
    """A worker begins with route loaded and compiled, also one that takes the place of one that was killed."""
    first, daemon, _ = _asked(spark_server)
    for process in psutil.Process(daemon).children():
        os.kill(process.pid, signal.SIGKILL)

    fresh, parent, made = _asked(spark_server)

    assert (fresh != first, parent, made) == (True, daemon, 1)
    assert "eventbridge.spark.worker_daemon" in psutil.Process(daemon).cmdline()
