"""What a failed Spark job says, in one line: the first Python error of a worker, else Spark's own first line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from eventbridge.errors import SparkError

_TRACEBACK = "Traceback (most recent call last):"

#: The line that ends a traceback: the error's class, perhaps in modules, and its message.
_LAST_LINE = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::.*)?$")

#: The line of a gRPC error that says what happened; its first one names a class of the client.
_GRPC_DETAILS = re.compile(r'^<_\w+ of RPC .*?^\s*details = "(.+?)"$', re.MULTILINE | re.DOTALL)

_LONGEST = 500


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turn whatever PySpark or gRPC raises into a SparkError that says what was tried and what went wrong."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, grpc.RpcError, OSError) as error:
        raise SparkError(f"{what}: {first_error(str(error))}") from error


def first_error(text: str) -> str:
    """Return the line that matters of a Spark error or log: the first Python error, gRPC's details, the first line."""
    _, found, traceback = text.partition(_TRACEBACK)
    for line in traceback.splitlines() if found else []:
        if _LAST_LINE.match(line.strip()) and not line.startswith((" ", "\t")):
            return _short(line)
    grpc_details = _GRPC_DETAILS.search(text)
    if grpc_details:
        return _short(grpc_details[1])
    lines = [line for line in text.splitlines() if line.strip()]
    return _short(lines[0]) if lines else "no reason was given"


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
