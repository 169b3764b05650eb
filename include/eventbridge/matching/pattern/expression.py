"""Compiles regular expressions with RE2, whose matching time is always linear in the length of the string."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import re2

NOT_IN_RE2: Final = ("(?=", "(?!", "(?<", "(?>", "\\1", "\\2", "\\3", "*+", "++", "?+")


#: The maximum memory, in bytes, to compile one expression. `\pL{100}`, which has only eight characters, needs all of
#: it; its program has 120,000 instructions and takes 40 ms to compile. A larger expression is rejected within 10 ms.
_MAX_MEMORY_BYTES: Final = 2 << 20
#: The number of instructions that is counted for a rejected expression. Rejecting one takes a fifth of the time to
#: compile that many.
_REJECTED_INSTRUCTIONS: Final = 120_000
#: The maximum number of RE2 instructions in all expressions of one pattern; it takes 0.2 s to compile that many.
_MAX_PATTERN_INSTRUCTIONS: Final = 500_000
#: The maximum number of RE2 instructions in all distinct expressions of a folder's rule files. They take 2 s to
#: compile, and 64 MB in each process that matches.
_MAX_TOTAL_INSTRUCTIONS: Final = 4_000_000
#: RE2's cache is cleared when a program with more instructions is compiled, because the package caches 128 programs,
#: which could otherwise take a gigabyte.
_MAX_CACHED_INSTRUCTIONS: Final = 10_000


def compile_expression(expression: str) -> Callable[[str], bool]:
    """Return a function that tests whether a whole string matches. Raises ValueError with RE2's message."""
    fullmatch = _compile(expression).fullmatch
    return lambda text: fullmatch(_utf8(text)) is not None


class ExpressionTooLarge(ValueError):
    """An expression is too large, alone or together with others."""


class ExpressionSizes:
    """The sizes of all distinct expressions that are read together; `of_each` maps each to its RE2 instructions."""

    def __init__(self) -> None:
        self.of_each: dict[str, int] = {}
        self._total = 0

    @property
    def are_too_large(self) -> bool:
        """Whether the expressions are too large together, so that no more are read."""
        return self._total > _MAX_TOTAL_INSTRUCTIONS

    def add(self, sizes: Mapping[str, int]) -> None:
        """Add sizes by expression; an expression that was added before is not counted again."""
        for expression, size in sizes.items():
            if expression not in self.of_each:
                self.of_each[expression] = size
                self._total += size


class Expressions:
    """The regular expressions of one pattern; `all` counts those of all patterns that are read together.

    Without `all_sizes`, each expression may be as large as RE2 accepts, because the pattern may belong to a rule that
    an older version accepted.
    """

    def __init__(self, all_sizes: ExpressionSizes | None = None) -> None:
        self.all = ExpressionSizes() if all_sizes is None else all_sizes
        self._memory_bytes = None if all_sizes is None else _MAX_MEMORY_BYTES
        self._pattern_size = 0

    def add(self, expression: str) -> None:
        """Compile an expression and count it.

        Raises ExpressionTooLarge, whose text completes a sentence that begins with `the regular expression ...`, and
        ValueError with RE2's message if the expression is invalid.
        """
        if self._pattern_size > _MAX_PATTERN_INSTRUCTIONS:  # saves the time to compile one more
            raise ExpressionTooLarge(_PATTERN_TOO_LARGE)
        size = self.all.of_each.get(expression)
        if size is None:
            try:
                size = int(_compile(expression, self._memory_bytes).programsize)
            except ExpressionTooLarge:
                self._count(expression, _REJECTED_INSTRUCTIONS)
                raise
        self._count(expression, size)
        if self._pattern_size > _MAX_PATTERN_INSTRUCTIONS:
            raise ExpressionTooLarge(_PATTERN_TOO_LARGE)
        if self.all.are_too_large:
            raise ExpressionTooLarge("and those of the rules before it are too large together")

    def _count(self, expression: str, size: int) -> None:
        self.all.add({expression: size})
        self._pattern_size += size


_PATTERN_TOO_LARGE: Final = "and the other expressions of this pattern are too large together"


def _compile(expression: str, memory_bytes: int | None = None) -> Any:
    """Return a compiled RE2 expression; `memory_bytes` is its maximum memory, by default RE2's 8 MiB."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    if memory_bytes is not None:
        options.max_mem = memory_bytes
    try:
        # Bytes are compiled, because a lone surrogate, which JSON allows, cannot be encoded in UTF-8 and must not raise
        # an error.
        compiled = re2.compile(_utf8(expression), options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if text.startswith("pattern too large"):
            raise ExpressionTooLarge("is too large") from None
        raise ValueError(text) from None
    if compiled.programsize > _MAX_CACHED_INSTRUCTIONS:
        re2.purge()
    return compiled


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
