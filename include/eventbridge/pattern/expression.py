"""Regular expressions: RE2 only, so that what a user wrote can never take more than linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import re2

NOT_IN_RE2: Final = ("(?=", "(?!", "(?<", "(?>", "\\1", "\\2", "\\3", "*+", "++", "?+")


#: What the programs of one pattern's expressions may have together, in RE2's instructions: to compile so many takes
#: half a second. `\pL{400}`, which is nine characters, has as many.
MAXIMUM_INSTRUCTIONS: Final = 500_000
#: RE2's package keeps 128 programs; one that is larger than this is not kept: they would take a gigabyte.
_LARGE: Final = 10_000


def compile_expression(expression: str) -> Callable[[str], bool]:
    """Return the test whether a whole string matches; `ValueError` with RE2's words for what it does not take."""
    fullmatch = _compiled(expression).fullmatch
    return lambda text: fullmatch(_utf8(text)) is not None


def expression_size(expression: str) -> int:
    """Return how many instructions RE2 compiles an expression to; `ValueError` for what it does not take."""
    return int(_compiled(expression).programsize)


def _compiled(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        # bytes, because a lone surrogate (legal in JSON) has no UTF-8 of its own and must not raise
        compiled = re2.compile(_utf8(expression), options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
    if compiled.programsize > _LARGE:
        re2.purge()
    return compiled


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
