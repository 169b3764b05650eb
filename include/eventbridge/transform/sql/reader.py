"""Steps through the tokens of an SQL expression, and limits the size of its tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from eventbridge.transform.sql.lexer import SqlError, Token, line_and_column, tokens
from eventbridge.transform.sql.tree import Node

#: The maximum number of nodes in the tree of an expression, and its maximum depth.
MAXIMUM_NODES: Final = 1_000
MAXIMUM_DEPTH: Final = 32
#: The maximum depth of nested lambdas. Each level multiplies the number of steps by the number of members in its array.
MAXIMUM_LAMBDAS: Final = 2


class Reader:
    """The tokens of an expression and the current position; its methods raise SqlError."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0
        self._nodes = 0
        self._lambdas = 0
        self._parameters: frozenset[str] | set[str] = frozenset()

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Count one more level of nesting inside the block. Raises SqlError above the maximum."""
        self._depth += 1
        if self._depth > MAXIMUM_DEPTH:
            self._refuse(self._peek(), f"the expression is nested more than {MAXIMUM_DEPTH} deep", "Simplify it")
        yield
        self._depth -= 1

    def _node(self, kind: str, at: int, *parts: str | Node, value: str | int | None = None) -> Node:
        self._count_operator()
        return Node(kind, at, parts, value)

    def _count_operator(self) -> None:
        self._nodes += 1
        if self._nodes > MAXIMUM_NODES:
            problem = f"the expression has more than {MAXIMUM_NODES:,} parts"
            self._refuse(self._peek(), problem, "Simplify it, or write a list as array_contains(array(...), x)")

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        self._at += token.kind != "end"
        return token

    def _take(self, expected: str) -> bool:
        """Step over a word or symbol if it comes next; return whether it did."""
        token = self._peek()
        found = token.word == expected or (token.kind == "symbol" and token.text == expected)
        self._at += found
        return found

    def _expect(self, expected: str, problem: str) -> None:
        if not self._take(expected):
            self._refuse(self._peek(), f"{problem}: {expected.upper()} is missing", f"Write {expected.upper()}")

    def _close(self, bracket: Token) -> None:
        """Step over the closing bracket. Raises SqlError if anything else comes next."""
        token = self._peek()
        if token.kind == "end":
            self._refuse(bracket, f"the expression does not close the {bracket.text}", "Close it")
        if not self._take({"(": ")", "[": "]"}[bracket.text]):
            self._unexpected()

    def _unexpected(self) -> NoReturn:
        token = self._peek()
        if token.kind == "end":
            self._refuse(token, "the expression ends too early", "Complete it")
        if token.text in (")", "]"):
            self._refuse(token, f"the expression closes a {token.text} that is not open", "Balance the brackets")
        self._refuse(
            token, f"{token.text} is not expected here", "Write one expression; join conditions with AND or OR"
        )

    def _refuse(self, token: Token, problem: str, remedy: str) -> NoReturn:
        self._refuse_at(token.at, problem, remedy)

    def _refuse_at(self, at: int, problem: str, remedy: str) -> NoReturn:
        raise SqlError(f"{problem}, {line_and_column(self._text, at)}", remedy)
