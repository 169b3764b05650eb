"""How a task fails for what a person must act on: one sentence in its log, no traceback, no further try.

Airflow logs the stack of every exception that a task raises, of AirflowFailException too; of SystemExit it logs the
code alone. It tries a task that exits once more, unless the task's retry policy says no.
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
    """The end of a task whose error is in its log already."""


#: The retry policy of tasks that fail plainly; every other error is tried again as their DAG says.
NOT_TRIED_AGAIN = ExceptionRetryPolicy(
    rules=[RetryRule(exception=PlainFailure, action=RetryAction.FAIL, reason="a person must act first")]
)


@contextmanager
def plain_failures() -> Iterator[None]:
    """Log the message of an AirflowFailException as an error, and raise PlainFailure in its place."""
    try:
        yield
    except AirflowFailException as error:
        log.error("%s", error)
        raise PlainFailure(1) from None


def plainly(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return the function of a task with `plain_failures` around it."""

    @functools.wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with plain_failures():
            return function(*args, **kwargs)

    return run
