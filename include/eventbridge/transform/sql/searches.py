"""Limits searches for one string in another, so that a search that would take too long fails at run time.

Spark compares the string to find with each position of the other string. For two strings in an event of 1 MB the
search takes a minute, and Spark cannot stop it.
"""

from __future__ import annotations

from typing import Final

from eventbridge.transform.sql.lexer import quote
from eventbridge.transform.sql.tree import Node

#: Functions that search for one string in another, each with the positions of the arguments to search in and to find.
SEARCHES: Final = {
    "contains": (0, 1),
    "instr": (0, 1),
    "locate": (1, 0),
    "position": (1, 0),
    "replace": (0, 1),
    "split_part": (0, 1),
    "substring_index": (0, 1),
}
#: The maximum number of bytes that one search may compare. It takes 0.3 s to compare them, or 1 s in `split_part`.
MAXIMUM_COMPARED: Final = 1_000_000_000
#: A search for a literal of at most this many bytes needs no limit.
_SHORT: Final = 100


def search_parts(name: str, arguments: list[Node]) -> tuple[str | Node, ...] | None:
    """Return the parts of a call that fails if it would compare too many bytes, or None if no limit is needed.

    The arguments stay children of the call, in order, and each is evaluated once.
    """
    if name not in SEARCHES:
        return None
    looked_in, looked_for = SEARCHES[name]
    literal = arguments[looked_for].literal_text()
    if arguments[looked_in].literal_text() is not None or (literal is not None and len(literal.encode()) <= _SHORT):
        return None
    fields = [f"`__it`.`__{at}`" for at in range(len(arguments))]
    text, wanted = (f"octet_length(CAST({fields[at]} AS STRING))" for at in (looked_in, looked_for))
    message = ", ".join(
        (
            quote(f"{name} looks for a text of "),
            wanted,
            quote(" bytes in one of "),
            text,
            quote(
                f" bytes, and may compare {MAXIMUM_COMPARED:,} bytes at most: use left(x, 1000) of the text that it "
                "looks for"
            ),
        )
    )
    problem = f"CAST({wanted} AS BIGINT) * ({text} - {wanted}) > {MAXIMUM_COMPARED}"
    body = f"if({problem}, raise_error(concat({message})), {name}({', '.join(fields)}))"
    named = [f", '__{at}', " for at in range(len(arguments))]
    parts: list[str | Node] = []
    for label, argument in zip(named, arguments, strict=True):
        parts += [label if parts else label.removeprefix(", "), argument]
    return "transform(array(named_struct(", *parts, f")), `__it` -> {body})[0]"
