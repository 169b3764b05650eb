"""Regular expressions of RE2, so that a user's expression never takes more than linear time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import re2

NOT_IN_RE2: Final = ("(?=", "(?!", "(?<", "(?>", "\\1", "\\2", "\\3", "*+", "++", "?+")


#: Memory that one expression's program may take while it is compiled: `\pL{100}`, which is nine characters, takes it.
#: It has 120,000 of RE2's instructions and is compiled in 40 ms; a larger one is refused in 10 ms.
_MEMORY_BYTES: Final = 2 << 20
#: The instructions that an oversized expression counts for: rejecting it takes a fifth of the time that they would
#: take.
_TOO_LARGE: Final = 120_000
#: The maximum number of RE2's instructions for all expressions of one pattern; compiling these takes 0.2 s.
_OF_PATTERN: Final = 500_000
#: The same for all different expressions of the rule files of a folder: 2 s, and 64 MB where they are matched.
_OF_ALL: Final = 4_000_000
#: RE2's package keeps 128 programs; one that is larger than this is not kept: they would take a gigabyte.
_LARGE: Final = 10_000


def compile_expression(expression: str) -> Callable[[str], bool]:
    """Return the test whether a whole string matches; `ValueError` with RE2's words for what it does not take."""
    fullmatch = _compile(expression).fullmatch
    return lambda text: fullmatch(_utf8(text)) is not None


class ExpressionTooLarge(ValueError):
    """An expression is too large, by itself or with others."""


class ExpressionSizes:
    """The sizes of all different expressions that are read together, in RE2's instructions: `of_each` by expression."""

    def __init__(self) -> None:
        self.of_each: dict[str, int] = {}
        self._total = 0

    @property
    def are_too_large(self) -> bool:
        """Whether they are too large together, so that no more are read."""
        return self._total > _OF_ALL

    def add(self, sizes: Mapping[str, int]) -> None:
        """Add sizes by expression; known expressions count once."""
        for expression, size in sizes.items():
            if expression not in self.of_each:
                self.of_each[expression] = size
                self._total += size


class Expressions:
    """The regular expressions of one pattern, which count among those of `all` patterns that are read together.

    A pattern that is read by itself may belong to a rule that an older version accepted, so each of its expressions may
    be as large as RE2 accepts.
    """

    def __init__(self, all_sizes: ExpressionSizes | None = None) -> None:
        self.all = ExpressionSizes() if all_sizes is None else all_sizes
        self._memory_bytes = None if all_sizes is None else _MEMORY_BYTES
        self._of_pattern = 0

    def add(self, expression: str) -> None:
        """Compile an expression and count it.

        Raises ExpressionTooLarge, whose text follows on `the regular expression ...`, and ValueError with RE2's words
        for what RE2 does not take.
        """
        if self._of_pattern > _OF_PATTERN:  # to compile one more takes time
            raise ExpressionTooLarge(_TOGETHER)
        size = self.all.of_each.get(expression)
        if size is None:
            try:
                size = int(_compile(expression, self._memory_bytes).programsize)
            except ExpressionTooLarge:
                self._count(expression, _TOO_LARGE)
                raise
        self._count(expression, size)
        if self._of_pattern > _OF_PATTERN:
            raise ExpressionTooLarge(_TOGETHER)
        if self.all.are_too_large:
            raise ExpressionTooLarge("and those of the rules before it are too large together")

    def _count(self, expression: str, size: int) -> None:
        self.all.add({expression: size})
        self._of_pattern += size


_TOGETHER: Final = "and the other expressions of this pattern are too large together"


def _compile(expression: str, memory_bytes: int | None = None) -> Any:
    """Return an expression of RE2; `memory_bytes` is its maximum memory, by default RE2's 8 MiB."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    if memory_bytes is not None:
        options.max_mem = memory_bytes
    try:
        # bytes, because a lone surrogate (legal in JSON) has no UTF-8 of its own and must not raise
        compiled = re2.compile(_utf8(expression), options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if text.startswith("pattern too large"):
            raise ExpressionTooLarge("is too large") from None
        raise ValueError(text) from None
    if compiled.programsize > _LARGE:
        re2.purge()
    return compiled


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
