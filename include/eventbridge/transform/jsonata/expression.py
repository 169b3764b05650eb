"""Checks a JSONata expression when the rule file is read, without evaluating it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from eventbridge.errors import TransformError
from eventbridge.transform.error import error_at

MAXIMUM_CHARACTERS: Final = 100_000

_REMEDY = "Correct it; https://docs.jsonata.org describes the language"


def expression_error(text: str, where: str) -> TransformError | None:
    """Return the error of an expression, with line and column if the parser reports them; None if it is valid."""
    if not text.strip():
        return error_at(where, "the expression is empty", text, "Write one, such as data.name")
    if len(text) > MAXIMUM_CHARACTERS:
        message = f"the expression has {len(text):,} characters; the maximum is {MAXIMUM_CHARACTERS:,}"
        return error_at(where, message, text[:100], "Write a shorter one")
    try:
        parse_expression(text)
    except RecursionError:
        return error_at(where, "the expression is nested too deep", text, "Put parts of it into variables: $x := ...")
    except Exception as error:  # errors that the library raises, and any bug in its parser
        return error_at(
            where, f"the expression is invalid{_line_and_column(text, error)}: {_error_text(error)}", text, _REMEDY
        )
    return None


def parse_expression(text: str) -> Any:
    """Return the library's parsed expression. Raises its exceptions, and RecursionError if it is nested too deep."""
    with _recursion_limit_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about regular expressions that mean the same in JavaScript
        # imported here, because it takes 80 ms and few processes need it
        import jsonata

        try:
            return jsonata.Jsonata(text)
        except jsonata.JException as error:
            if error.error == "U1001" or "tack overflow" in str(error):
                raise RecursionError(str(error)) from None
            raise


@contextmanager
def _recursion_limit_kept() -> Iterator[None]:
    """Restore the interpreter's recursion limit, which importing the library sets to 10,000."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _line_and_column(text: str, error: Exception) -> str:
    """Return line and column of the token at which the parser stopped; the library reports where that token ends."""
    # for "expected x, got y" the library keeps x in `current` and y in `expected`
    end, token = getattr(error, "location", None), getattr(error, "expected", None) or getattr(error, "current", None)
    if not isinstance(end, int) or not 0 <= end <= len(text):
        return ""
    begin = end - len(str(token)) if token is not None and text[: max(end, 0)].endswith(str(token)) else max(end - 1, 0)
    if token == "(end)":
        begin = len(text.rstrip())
    line = text.count("\n", 0, begin) + 1
    return f" at line {line}, column {begin - text.rfind(chr(10), 0, begin)}"


def _error_text(error: Exception) -> str:
    if hasattr(error, "location") and str(error):
        message = str(error).rstrip(".")
        return message[0].lower() + message[1:]
    return f"it cannot be read ({type(error).__name__} {error})"
