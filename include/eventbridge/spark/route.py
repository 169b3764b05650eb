"""Route slices on Spark: each worker reads its rows from the store, matches, transforms, writes, answers one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventbridge.errors import SparkError
from eventbridge.rule import RuleSet
from eventbridge.spark.failure import spark_errors
from eventbridge.spark.session import connect, forget, is_closed
from eventbridge.spark.submit import keep_answer
from eventbridge.stages.frozen_rules import frozen_rules
from eventbridge.stages.route_slice import RouteJob, Slice, SliceResult, route_slice
from eventbridge.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

#: What a worker answers per slice.
MANIFEST = "slice_id string, path string, rows long, detail string"


class ConnectRouter:
    """A router on a Spark Connect server, `sc://host:port`; the package must be installed where its workers run."""

    def __init__(self, url: str) -> None:
        self._url = url

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        """Route the slices as one Spark job, one task each; yields what is finished, in the order of the slices."""
        try:
            with spark_errors(f"Spark at {self._url} did not route batch {job.batch_id}"):
                yield from self._routed(job, slices)
        except SparkError:
            forget(self._url, job.runner)
            raise

    def _routed(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        from pyspark.errors import PySparkException

        first = True
        while True:
            try:
                frame = routed_frame(connect(self._url, job.runner), job, slices)
                with closing(_rows(frame)) as rows:
                    for row in rows:
                        first = False
                        yield SliceResult(row["slice_id"], row["path"], row["rows"], json.loads(row["detail"]))
                return
            except PySparkException as error:
                # This process may have known the server before it was started anew.
                if not (first and is_closed(error)):
                    raise
                first = False
                forget(self._url, job.runner)


def routed_frame(
    spark: SparkSession | ConnectSession, job: RouteJob, slices: Sequence[Slice], *, keep_answers: bool = False
) -> DataFrame:
    """Return the frame of schema MANIFEST that routes every slice when it is collected: one task per slice.

    `keep_answers`: workers also write their answers into the store, for a driver that cannot hand them over.
    """
    descriptors = json.dumps([asdict(piece) for piece in slices])
    numbers = spark.range(0, len(slices), 1, numPartitions=len(slices))
    return numbers.mapInArrow(partial(route_numbers, job.to_json(), descriptors, keep_answers), MANIFEST)


def route_numbers(
    job_text: str, descriptors: str, keep_answers: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Route the slices whose numbers come in and yield a manifest row for each; runs in Spark's Python workers.

    A task that Spark repeats or runs twice writes files of its own names: the driver publishes one answer per slice.
    """
    job = RouteJob.from_json(job_text)
    slices = json.loads(descriptors)
    store = open_store(job.store_uri)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rules = _rules(job.store_uri, job.rule_set)
            result = route_slice(store, rules, job, Slice(**slices[number]))
            if keep_answers:
                keep_answer(store, job, number, result)
            yield _manifest_row(result)


@lru_cache(maxsize=8)  # a worker lives long, and every change of a rule makes another set
def _rules(store_uri: str, rule_set_hash: str) -> RuleSet:
    return frozen_rules(open_store(store_uri), rule_set_hash)


def _manifest_row(result: SliceResult) -> pa.RecordBatch:
    row = {
        "slice_id": [result.slice_id],
        "path": pa.array([result.path], type=pa.string()),
        "rows": [result.rows],
        "detail": [json.dumps(result.detail)],
    }
    return pa.RecordBatch.from_pydict(row)


def _rows(frame: DataFrame) -> Any:
    yield from frame.toLocalIterator()
