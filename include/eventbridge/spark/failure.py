"""Summarises a failed Spark job in one line: the first Python error of a worker, or else Spark's first line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from eventbridge.errors import SparkError

_TRACEBACK = "Traceback (most recent call last):"

#: The line that ends a traceback, which has the error's class, perhaps with its module, and its message.
_LAST_LINE = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::.*)?$")

#: The line of a gRPC error that has the cause; the first line only names a class of the client.
_GRPC_DETAILS = re.compile(r'^<_\w+ of RPC .*?^\s*details = "(.+?)"$', re.MULTILINE | re.DOTALL)

#: A line of a log that reports an error.
_LOGGED = re.compile(r"\b(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)\b|\bERROR\b|^Error:")

_MAX_LENGTH = 500


@contextmanager
def spark_errors(action: str) -> Iterator[None]:
    """Convert any error of PySpark or gRPC to a SparkError with the failed action and the cause."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, grpc.RpcError, OSError) as error:
        message = first_error(str(error))
        if "authentication token" in message:
            message += " Append ;token=T to the address; in Airflow, the token is the connection's password."
        raise SparkError(f"{action}: {message}") from error


def first_error(text: str) -> str:
    """Return the relevant line of a Spark error: the first Python error, else gRPC's details, else the first line."""
    grpc_details = _GRPC_DETAILS.search(text)
    lines = (line for line in text.splitlines() if line.strip())
    first = grpc_details[1] if grpc_details else next(lines, "no reason was given")
    return _short(_python_error(text) or first)


def first_error_of_log(text: str) -> str:
    """Return the relevant line of a Spark process's log: its first Python error, else its first Java error."""
    lines = (line for line in text.splitlines() if _LOGGED.search(line))
    return _short(_python_error(text) or next(lines, "no reason was given"))


def _python_error(text: str) -> str | None:
    _, found, traceback = text.partition(_TRACEBACK)
    for line in traceback.splitlines() if found else []:
        if _LAST_LINE.match(line):
            return line
    return None


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."
