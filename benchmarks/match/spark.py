"""A local Spark with Event Ruler as a function and our matcher in its Python workers, run by `Remote`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.match.kernel import Pass
from benchmarks.match.remote import tree_seconds

from eventbridge.spark.environment import require_java, spark_environment


class SparkSubject:
    """A classic session of two cores, without Event Ruler if it gets no jars.

    CPU is counted over this process, its JVM and the Python workers.
    """

    def __init__(self, jars: Sequence[Path], folder: Path) -> None:
        require_java()
        # Spark logs its start and every warning on standard error, where they would be in the table.
        with (folder / "spark.log").open("wb") as log:
            os.dup2(log.fileno(), 2)
        os.environ.update(spark_environment(os.environ))
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        from pyspark.sql import SparkSession
        from pyspark.sql.types import ArrayType, IntegerType

        settings = {
            "spark.driver.memory": "6g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(folder / "spark"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        if jars:
            settings["spark.jars"] = ",".join(map(str, jars))
        builder = SparkSession.builder.master("local[2]").appName("bench-match")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        if jars:
            self._spark.udf.registerJavaFunction("event_ruler", "RulerUdf", ArrayType(IntegerType()))

    def event_ruler(self, rules: Path, files: Sequence[Path]) -> Pass:
        """Match the events of Parquet files by Event Ruler as a function of Spark SQL."""
        events = self._spark.read.parquet(*map(str, files))
        return self._measure(events.selectExpr(f"event_ruler(body, '{rules}') rules"), files)

    def route(self, rules: Path, files: Sequence[Path], tasks: int = 0) -> Pass:
        """Match the events of Parquet files in Python workers, which read them; a task a file, or so many tasks."""
        from benchmarks.match.spark_worker import MATCHED, match_files

        numbers = self._spark.range(0, len(files), 1, numPartitions=tasks or len(files))
        return self._measure(numbers.mapInArrow(partial(match_files, rules, files), MATCHED), files)

    def stay(self) -> None:
        """Keep the Python workers, and what they have compiled: Spark ends those that are idle for a minute."""
        from benchmarks.match.spark_worker import unchanged

        self._spark.range(0, 2, 1, numPartitions=2).mapInArrow(unchanged, "id long").collect()

    def whole_route(self, asked: str) -> Pass:
        """Route slices of a buffer file as route does, a task each; matches are the rows of the delivery files."""
        from eventbridge.routing.job import JobTasks, Slice, SliceResult
        from eventbridge.spark.frame import route_frame

        work = JobTasks.from_json(asked.encode())
        pieces = [task for task in work.tasks if isinstance(task, Slice)]
        before = tree_seconds(os.getpid())
        responses = route_frame(self._spark, work.job, pieces).collect()
        seconds = tree_seconds(os.getpid()) - before
        count = sum(piece.row_to - piece.row_from for piece in pieces)
        return Pass(
            count, seconds, sum(SliceResult.from_json(response["result"].encode()).rows for response in responses)
        )

    def _measure(self, matched, files: Sequence[Path]) -> Pass:  # type: ignore[no-untyped-def]
        import pyarrow.parquet as pq

        count = sum(pq.read_metadata(file).num_rows for file in files)
        before = tree_seconds(os.getpid())
        matches = matched.selectExpr("sum(size(rules))").collect()[0][0]
        return Pass(count, tree_seconds(os.getpid()) - before, matches or 0)

    def close(self) -> None:
        """End Spark and its workers."""
        self._spark.stop()
