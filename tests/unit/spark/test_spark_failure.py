from __future__ import annotations

import pytest

from eventbridge.spark.failure import first_error, first_error_of_log

PYTHON = """[STATE_NOT_FOUND] Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 12, in main
    process()
  File "/x/route_slice.py", line 90, in route_slice
    raise StoreFileMissing(path)
eventbridge.errors.StoreFileMissing: The store has no file 'a'. Restore it.

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Traceback (most recent call last):
ValueError: a later one
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYTHON, "eventbridge.errors.StoreFileMissing: The store has no file 'a'. Restore it."),
        ("Traceback (most recent call last):\n  File x\nKeyError\n", "KeyError"),
        ("\n  [CONNECT] server is gone  \nmore", "[CONNECT] server is gone"),
        (
            '<_InactiveRpcError of RPC that terminated with:\n\tstatus = X\n\tdetails = "refused"\n\tmore = "y"\n>',
            "refused",
        ),
        ("", "no reason was given"),
        ("x" * 600, "x" * 497 + "..."),
    ],
)
def test_the_line_that_matters_is_found(text: str, expected: str) -> None:
    """Of Spark's pages of text the first Python error is reported, else the first line."""
    assert first_error(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"WARNING: Using incubator modules\n26/11/21 INFO x\n{PYTHON}", PYTHON.splitlines()[6]),
        (
            "WARNING: Using incubator modules\n26/11/21 INFO SparkContext: Running\n"
            "26/11/21 ERROR SparkContext: Error initializing SparkContext.\norg.apache.spark.SparkException: no\n",
            "26/11/21 ERROR SparkContext: Error initializing SparkContext.",
        ),
        ("Exception in thread main java.lang.OutOfMemoryError: heap\n\tat x", None),
        ("26/11/21 INFO SparkContext: Running\n", "no reason was given"),
    ],
)
def test_the_line_that_matters_of_a_log_is_found(text: str, expected: str | None) -> None:
    """A log's first lines say nothing: the first error in it is reported."""
    assert first_error_of_log(text) == (expected or text.splitlines()[0])
