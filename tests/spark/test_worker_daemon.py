"""Spark's Python workers are forked from a daemon that has loaded everything that route needs."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.connect.functions import udf
from pyspark.sql.types import StringType

from eventbridge.rules import Bus, Rule, RuleSet, Transform
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.targets.file.fields import FileFields


def _asked(server: SparkConnectServer) -> tuple[int, int, int]:
    """Return of a worker: its process, its parent's, how often that one or itself made route ready."""

    def response(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from eventbridge.routing.warm_up import compile_ahead

        for _ in batches:
            made = compile_ahead.cache_info().currsize
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "parent": [os.getppid()], "made": [made]})

    spark = connect(server.url, "daemon")
    (row,) = spark.range(0, 1, 1, numPartitions=1).mapInArrow(response, "pid long, parent long, made long").collect()
    return row["pid"], row["parent"], row["made"]


def _kill_workers(daemon: int) -> None:
    """SIGKILL the workers of a daemon; on return it has buried them, so that Spark gives none of them work any more."""
    workers = psutil.Process(daemon).children()
    for worker in workers:
        worker.kill()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


def test_a_fresh_worker_is_ready(spark_server: SparkConnectServer) -> None:
    """A worker starts with route loaded and compiled, also one that replaces a killed worker."""
    first, daemon, _ = _asked(spark_server)
    _kill_workers(daemon)

    fresh, parent, made = _asked(spark_server)

    assert (fresh != first, parent, made) == (True, daemon, 1)
    assert "eventbridge.spark.worker_daemon" in psutil.Process(daemon).cmdline()


def test_workers_draw_different_random_numbers(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """NumPy's random numbers differ in two workers that were forked from one process, in any job."""
    folder = str(tmp_path)

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time
        from pathlib import Path

        import numpy as np

        for _ in batches:
            mine = Path(folder) / str(os.getpid())
            mine.touch()
            until = time.monotonic() + 60
            while len(list(mine.parent.iterdir())) < 2 and time.monotonic() < until:  # the other one is at work too
                time.sleep(0.01)
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "drawn": [np.random.rand()]})

    spark = connect(spark_server.url, "daemon")
    _kill_workers(_asked(spark_server)[1])
    rows = spark.range(0, 2, 1, numPartitions=2).mapInArrow(draw, "pid long, drawn double").collect()

    assert len({row["pid"] for row in rows}) == 2
    assert len({row["drawn"] for row in rows}) == 2


def test_threads_run_again_in_every_worker(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """A dozen workers, each replacing a killed one, read by Arrow's threads; none hangs."""
    file = str(tmp_path / "table.parquet")
    columns = {f"column-{number}": list(range(20_000)) for number in range(8)}
    pq.write_table(pa.table(columns), file, row_group_size=2_000)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        import pyarrow.parquet as pq

        for _ in batches:
            rows = pq.read_table(file, use_threads=True).num_rows
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "rows": [rows]})

    spark = connect(spark_server.url, "daemon")
    daemon = _asked(spark_server)[1]
    workers = set()
    for _ in range(12):
        _kill_workers(daemon)
        (row,) = spark.range(0, 1, 1, numPartitions=1).mapInArrow(read, "pid long, rows long").collect()
        assert row["rows"] == 20_000
        workers.add(row["pid"])

    assert len(workers) == 12
    assert psutil.pid_exists(daemon)


def test_a_fresh_worker_has_the_rules_that_others_compiled(spark_server: SparkConnectServer) -> None:
    """The daemon compiles a large rule set once more after a worker did; new workers are forked with it."""
    many = {
        f"rule-{number}": Rule(
            name=f"rule-{number}",
            bus="a bus",
            runner="orders",
            pattern={"data": {"number": [number], "text": [{"wildcard": f"*{number}*"}]}},
            targets={"log": FileFields(name="log", path="/tmp/log", transform=Transform())},
        )
        for number in range(2_000)
    }
    text = RuleSet(buses={"a bus": Bus(name="a bus")}, rules=many).to_json()
    name = RuleSet.hash_of(text.encode())

    def compile_them(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from eventbridge.routing import program
        from eventbridge.rules import RuleSet

        for _ in batches:
            known = (name, "a bus") in program._programs
            program.route_program(name, RuleSet.from_json(text), "a bus")
            yield pa.RecordBatch.from_pydict({"known": [known]})

    def compiled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from eventbridge.routing import program
        from eventbridge.store import rule_sets

        for _ in batches:
            matched = program._programs.get((name, "a bus"))
            rules = 0 if matched is None else len(matched.rules)
            yield pa.RecordBatch.from_pydict({"rules": [rules], "read": [name in rule_sets._read]})

    spark = connect(spark_server.url, "daemon")
    daemon = _asked(spark_server)[1]
    first = spark.range(0, 1, 1, numPartitions=1).mapInArrow(compile_them, "known boolean").collect()
    _kill_workers(daemon)
    (fresh,) = spark.range(0, 1, 1, numPartitions=1).mapInArrow(compiled, "rules long, read boolean").collect()

    assert [row["known"] for row in first] == [False]
    assert (fresh["rules"], fresh["read"]) == (2_000, True)


def test_others_functions_run_there_too(spark_server: SparkConnectServer) -> None:
    """Unrelated functions of Python, Arrow and pandas run in workers of our daemon."""
    spark = connect(spark_server.url, "others")
    # Unless it is said, `udf` asks the active session whether to use Arrow: another test's, whose server may be gone.
    plain = udf(lambda number: f"<{number}>", StringType(), useArrow=False)
    arrow = udf(lambda number: f"[{number}]", StringType(), useArrow=True)

    def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame * 2

    numbers = spark.range(0, 3, 1, numPartitions=2)
    texts = numbers.select(plain("id").alias("plain"), arrow("id").alias("arrow")).collect()
    twice = numbers.mapInPandas(doubled, "id long").collect()

    assert [(row["plain"], row["arrow"]) for row in texts] == [("<0>", "[0]"), ("<1>", "[1]"), ("<2>", "[2]")]
    assert sorted(row["id"] for row in twice) == [0, 2, 4]


def _started(**environment: str) -> tuple[bytes, str]:
    """Return what the daemon, started as Spark does, says on its stdout, which is its port, and on its stderr."""
    command = [sys.executable, "-m", "eventbridge.spark.worker_daemon", "pyspark.worker"]
    done = subprocess.run(command, env=os.environ | environment, input=b"", capture_output=True, check=False)
    return done.stdout, done.stderr.decode()


def test_other_jobs_run_if_route_cannot() -> None:
    """A daemon that cannot load route logs the reason in Spark's log, and forks workers all the same."""
    port, log = _started(NUMBA_CACHE_DIR="", NUMBA_CACHE_LOCATOR_CLASSES="NoSuchLocator")

    assert 0 < struct.unpack("!i", port)[0] < 65_536
    assert "eventbridge: " in log
    assert "NUMBA_CACHE_DIR" in log


def test_output_while_it_loads_is_not_taken_for_the_port(tmp_path: Path) -> None:
    """Output of a package during import, also of C code, goes to Spark's log."""
    loud = "import os\nos.write(1, b'loud')\nprint('louder')\nraise ImportError('no pandas')\n"
    (tmp_path / "pandas.py").write_text(loud)

    port, log = _started(PYTHONPATH=str(tmp_path))

    assert 0 < struct.unpack("!i", port)[0] < 65_536
    assert all(said in log for said in ("loud", "louder", "eventbridge: ImportError: no pandas"))
