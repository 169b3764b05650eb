"""Defines the tree of an SQL expression; the SQL for Spark is written from the tree alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    `parts` are strings that the parser chooses and the nodes between them, in the order in which they are written.
    `value` is the value of a literal, or the lower-case name of a column, function, type or operator. `at` is the
    position in the user's expression.
    """

    kind: str
    at: int
    parts: tuple[str | Node, ...]
    value: str | int | None = None

    @property
    def children(self) -> tuple[Node, ...]:
        """Return the nodes directly inside this one."""
        return tuple(part for part in self.parts if isinstance(part, Node))

    def to_sql(self) -> str:
        """Return the expression as it is sent to Spark."""
        return "".join(self._texts())

    def whole(self) -> int | None:
        """Return the number if this is a literal whole number, perhaps with a minus sign, else None."""
        if self.kind == "unary" and self.value == "-":
            number = self.children[0].whole()
            return None if number is None else -number
        return self.value if isinstance(self.value, int) else None

    def literal_text(self) -> str | None:
        """Return the string if this is a string in quotes, else None."""
        return self.value if self.kind == "text" and isinstance(self.value, str) else None

    def _texts(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, Node):
                yield from part._texts()
            else:
                yield part


def join_nodes(nodes: list[Node], mark: str = ", ") -> tuple[str | Node, ...]:
    """Return nodes with the string `mark` between them."""
    parts: list[str | Node] = []
    for node in nodes:
        parts += [mark, node] if parts else [node]
    return tuple(parts)
