"""How a task fails if a person must act: with one sentence in its log, without a traceback or a retry.

Airflow logs the stack of every exception that a task raises, including AirflowFailException, but for SystemExit only
the exit code. It retries a task that exits, unless the task's retry policy forbids it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException

log = logging.getLogger(__name__)

Given = ParamSpec("Given")
Result = TypeVar("Result")


class PlainFailure(SystemExit):
    """Ends a task that has already logged its error."""


#: The retry policy of all tasks but push: no retry after PlainFailure, after other errors as the DAG says.
NO_RETRY_POLICY = ExceptionRetryPolicy(
    rules=[RetryRule(exception=PlainFailure, action=RetryAction.FAIL, reason="a person must act first")]
)


@contextmanager
def plain_failures() -> Iterator[None]:
    """Log the message of an AirflowFailException as an error, and raise PlainFailure instead."""
    try:
        yield
    except AirflowFailException as error:
        log.error("%s", error)
        raise PlainFailure(1) from None


def without_traceback(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Wrap the function of a task in `plain_failures`."""

    @functools.wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with plain_failures():
            return function(*args, **kwargs)

    return run
