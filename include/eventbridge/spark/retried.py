"""Asks a Spark Connect server for rows, once more where its session is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from eventbridge.spark.session import connect, forget, is_closed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

Result = TypeVar("Result")


class RunnerJob(Protocol):
    """A job that is a runner's; `old`: that of its old work, which has a session of its own."""

    @property
    def runner(self) -> str:
        """Return the runner's name."""

    @property
    def old(self) -> bool:
        """Return whether it is old work."""


def retried(url: str, job: RunnerJob, results: Callable[[SparkSession], Iterator[Result]]) -> Iterator[Result]:
    """Yield what `results` yields of a session with the server at `url`.

    This process may have known the server before it was started again: if the first result says that the session is
    closed, the next session is asked. Raises what PySpark raises.
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
    """Yield the rows of a frame as they come; what is yielded from can be closed."""
    yield from frame.toLocalIterator()
