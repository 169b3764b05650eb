"""Regular expressions: RE2 only, so that what a user wrote can never take more than linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

NOT_IN_RE2: Final = ("(?=", "(?!", "(?<", "(?>", "\\1", "\\2", "\\3", "*+", "++", "?+")


def compile_expression(expression: str) -> Callable[[str], bool]:
    """Return the test whether a whole string matches; `ValueError` with RE2's words for what it does not take."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        # bytes, because a lone surrogate (legal in JSON) has no UTF-8 of its own and must not raise
        compiled = re2.compile(_utf8(expression), options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
    fullmatch = compiled.fullmatch
    return lambda text: fullmatch(_utf8(text)) is not None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
