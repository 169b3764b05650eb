"""Evaluates JSONata expressions in a process that reads requests from one pipe and writes responses to another.

`eventbridge.transform.jsonata.process` starts it. The kernel enforces its limits: if an expression loops endlessly,
builds huge ranges or strings, or backtracks in a regular expression, this process ends and no other is affected.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NoReturn

import jsonata
from jsonata.utils import Utils

from eventbridge.event.json_document import JsonValue, Number, write_document
from eventbridge.transform.jsonata.limits import (
    CPU_SECONDS,
    EXHAUSTED,
    FAILED,
    MEMORY_BYTES,
    REQUEST,
    RESPONSE,
    RESULT_BYTES,
    UNDEFINED,
    VALUE,
)

#: The maximum number of parsed expressions in the cache.
_MAXIMUM_KEPT = 1_000
#: The maximum number of characters in an integer that becomes an int. Python may refuse to convert a longer one.
_LONGEST_INTEGER = 300


class _OutOfTime(BaseException):
    """The CPU time is used up; this is not an Exception, because the library would catch one."""


class _ExactNumber(float):
    """A number with its original text, so that a number that an expression only passes on keeps its digits."""

    text: str

    def __new__(cls, text: str) -> _ExactNumber:
        exact = super().__new__(cls, text)
        exact.text = text
        return exact


def main() -> None:
    """Respond to requests until the pipe is closed, or an evaluation exhausts its limits."""
    requests, responses = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the library prints text that it cannot parse to stdout
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the caller, which then closes the pipe
    signal.signal(signal.SIGPROF, _raise_out_of_time)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    expressions: dict[str, Any] = {}
    while request := _request(requests):
        expression, scope, event = request
        before = time.process_time()
        status, payload = _response(expressions, expression.decode(), scope, event)
        responses.write(RESPONSE.pack(status, time.process_time() - before, len(payload)) + payload)
        responses.flush()
        if status == EXHAUSTED:
            return  # the memory that the evaluation took may not be released


def _request(pipe: BinaryIO) -> list[bytes] | None:
    head = pipe.read(REQUEST.size)
    if len(head) < REQUEST.size:
        return None
    return [pipe.read(length) for length in REQUEST.unpack(head)]


def _response(expressions: dict[str, Any], text: str, scope: bytes, event: bytes) -> tuple[int, bytes]:
    try:
        with _cpu_limit():
            result = _evaluate(expressions, text, scope, event)
            if result is None:
                return UNDEFINED, b""
            payload = write_document(_plain(result)).encode()
    except _OutOfTime:
        return EXHAUSTED, f"the expression took more than {CPU_SECONDS:g} s of CPU time".encode()
    except MemoryError:
        return EXHAUSTED, f"the expression took more than {MEMORY_BYTES >> 20} MiB of memory".encode()
    except RecursionError:
        return FAILED, b"the expression or its result is nested too deep"
    except Exception as error:
        if "tack overflow" in str(error):
            return FAILED, b"the expression or its result is nested too deep"
        return FAILED, _error_message(error).encode("utf-8", "backslashreplace")
    if len(payload) > RESULT_BYTES:
        return FAILED, f"the result has {len(payload):,} bytes; the maximum is {RESULT_BYTES:,}".encode()
    return VALUE, payload


@contextlib.contextmanager
def _cpu_limit() -> Iterator[None]:
    """Raise _OutOfTime inside the block after CPU_SECONDS of CPU time; if that is not enough, the kernel ends the
    process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + 2 * CPU_SECONDS) + 1
    _limit(resource.RLIMIT_CPU, seconds)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit(what: int, value: int) -> None:
    """Set a limit of the kernel, or keep an existing lower one."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _raise_out_of_time(*_: object) -> NoReturn:
    raise _OutOfTime


def _evaluate(expressions: dict[str, Any], text: str, scope: bytes, event: bytes) -> Any:
    expression = expressions.get(text)
    if expression is None:
        if len(expressions) >= _MAXIMUM_KEPT:
            expressions.clear()
        expression = expressions[text] = jsonata.Jsonata(text)
        expression.set_output_convert_nulls(False)  # None stands for undefined, which must differ from null
        expression.set_validate_input(False)
    jsonata.Jsonata.CURRENT.jsonata = (
        expression  # for $now and $eval, which would otherwise use the expression parsed last
    )
    document = json.loads(event, parse_float=_ExactNumber, parse_int=_integer)
    if b"null" in event:
        document = _with_nulls(document)
    # new bindings for each event, because a variable assigned at the top level would otherwise remain
    return expression.evaluate(document, {"eb": json.loads(scope)})


def _integer(text: str) -> int | _ExactNumber:
    return int(text) if len(text) <= _LONGEST_INTEGER and text != "-0" else _ExactNumber(text)


def _with_nulls(value: Any) -> Any:
    """Return a document with the library's own null in place of None, which it does not always treat as null."""
    if value is None:
        return Utils.NULL_VALUE
    if isinstance(value, dict):
        return {name: _with_nulls(inner) for name, inner in value.items()}
    return [_with_nulls(inner) for inner in value] if isinstance(value, list) else value


def _plain(value: Any) -> JsonValue:
    """Return a result as JSON values. Raises ValueError for a value that JSON cannot represent."""
    if isinstance(value, str | bool):
        return value
    if isinstance(value, _ExactNumber):
        return Number(value.text)
    if isinstance(value, int | float):
        return Number.from_python(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or value is Utils.NULL_VALUE:
        return None
    raise ValueError("the result contains a function or regular expression, which JSON cannot represent")


def _error_message(error: Exception) -> str:
    """Return an error in one line: the library's message, or the type and text of an unexpected exception."""
    message = " ".join(str(error).split())[:300]
    known = isinstance(error, jsonata.JException | ValueError | OverflowError)
    return message if known and message else f"the expression cannot be evaluated: {type(error).__name__} {message}"
