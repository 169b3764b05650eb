"""Requests rows from a Spark Connect server, once more if its session is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from eventbridge.spark.session import connect, forget, is_closed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

Result = TypeVar("Result")


class RunnerJob(Protocol):
    """A job of a runner; `old`: a job of old work, which has a session of its own."""

    @property
    def runner(self) -> str:
        """Return the runner's name."""

    @property
    def old(self) -> bool:
        """Return whether it is old work."""


def retried(url: str, job: RunnerJob, results: Callable[[SparkSession], Iterator[Result]]) -> Iterator[Result]:
    """Yield the results of `results` for a session with the server at `url`.

    The server may have been restarted since the last call: if the first result says that the session is closed, the
    next session is used. Raises PySpark's errors.
    """
    from pyspark.errors import PySparkException

    first = True
    while True:
        try:
            for result in results(connect(url, job.runner, old=job.old)):
                first = False
                yield result
            return
        except PySparkException as error:
            if not (first and is_closed(error)):
                raise
            first = False
            forget(url, job.runner, old=job.old)


def rows_of(frame: DataFrame) -> Any:
    """Yield the rows of a frame as they arrive; the generator can be closed early."""
    yield from frame.toLocalIterator()
