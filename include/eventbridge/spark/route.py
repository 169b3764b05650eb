"""Route slices on a Spark Connect server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from eventbridge.errors import SparkError
from eventbridge.spark.failure import spark_errors
from eventbridge.spark.frame import routed_frame
from eventbridge.spark.session import connect, forget, is_closed
from eventbridge.stages.route_job import RouteJob, RouteTask, SliceResult, Task
from eventbridge.stages.route_task import route_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ConnectRouter:
    """A router on a Spark Connect server, `sc://host:port`; the package must be installed where its workers run.

    `route` routes one task there.
    """

    def __init__(self, url: str, route: RouteTask = route_task) -> None:
        self._url = url
        self._route = route

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route the tasks as one Spark job; yields what is finished, in their order."""
        try:
            with spark_errors(f"Spark at {self._url} did not route batch {job.batch_id}"):
                yield from self._routed(job, tasks)
        except SparkError:
            forget(self._url, job.runner)
            raise

    def _routed(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        from pyspark.errors import PySparkException

        first = True
        while True:
            try:
                frame = routed_frame(connect(self._url, job.runner), job, tasks, route=self._route)
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


def _rows(frame: DataFrame) -> Any:
    yield from frame.toLocalIterator()
