"""The error of an SQL expression, with its place in the text."""

from __future__ import annotations


class SqlError(Exception):
    """An expression is refused; `problem` names the place, `remedy` says what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


def place(text: str, position: int) -> str:
    """Return a position in a text as `line 1, column 5`."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"
