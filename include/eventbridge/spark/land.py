"""Lands parts of a large batch on a Spark Connect server, whose workers read the bus and write archive files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from eventbridge.config.settings import Settings
from eventbridge.errors import SparkError
from eventbridge.pipeline.ingest.compiled_check import check_compiled
from eventbridge.pipeline.ingest.sharing import LandedFiles, LandingResult, LandJob, LandJobParts, Part, land_part
from eventbridge.sources.open import open_log
from eventbridge.spark.failure import spark_errors
from eventbridge.spark.frame import worker_connection
from eventbridge.spark.session import forget, redact_address, retry_results, rows_of
from eventbridge.store.open import open_store
from eventbridge.store.rule_sets import frozen_rules

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

#: The number of parts that a task lands with one client of the bus. Opening a client takes as long as landing a few
#: thousand events, and a client discards the messages that it fetched beyond its last part.
_PARTS_PER_TASK: Final = 2

#: The schema of the row that a worker returns per part: its files as JSON, and the identities of its events.
_RESPONSE = "landed string, identities binary"


class ConnectLander:
    """A lander on a Spark Connect server, `sc://host:port`.

    Its workers find the bus's connection in their environment, as EVENTBRIDGE_CONN_*, because jobs carry no secrets.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def land(self, job: LandJob, parts: Sequence[Part]) -> Iterator[LandingResult]:
        """Land the parts as one Spark job, and yield finished parts in order. Raises SparkError if the job fails."""
        try:
            with spark_errors(f"Spark at {redact_address(self._url)} did not land batch {job.batch_id}"):
                yield from retry_results(self._url, job, lambda spark: _responses(spark, job, parts))
        except SparkError:
            forget(self._url, job.runner, old=job.old)
            raise


def _responses(spark: SparkSession, job: LandJob, parts: Sequence[Part]) -> Iterator[LandingResult]:
    text = LandJobParts(job, tuple(parts)).to_json()
    numbers = spark.range(0, len(parts), 1, numPartitions=-(-len(parts) // _PARTS_PER_TASK))
    with closing(rows_of(numbers.mapInArrow(partial(land_numbers, text), _RESPONSE))) as rows:
        for row in rows:
            yield LandingResult(LandedFiles.from_json(row["landed"].encode()), bytes(row["identities"]))


def land_numbers(text: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Land the parts in `text` with the given numbers, and yield a row of _RESPONSE for each.

    It runs in Spark workers. If Spark repeats or duplicates a task, this does no harm, because each run writes files
    with unique names and the driver records only one response per part.
    """
    asked = LandJobParts.from_json(text)
    job = asked.job
    store = open_store(job.store_uri, worker_connection)
    bus = frozen_rules(store, job.rule_set).buses[job.bus]
    settings = Settings(event_max_size=job.event_max_size, buffer_range_events=job.file_events)
    with closing(open_log(bus, settings, worker_connection, lambda: job.at)) as source:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                response = land_part(store, source, bus, job, asked.parts[number], check_compiled)
                yield pa.RecordBatch.from_pydict(
                    {"landed": [response.landed.to_json().decode()], "identities": [response.identities]}
                )
