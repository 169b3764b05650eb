"""Limits searches for one text in another, so that a search that takes too long fails at run time instead.

Spark compares the text that it looks for at each position of the other text: for two texts of an event of 1 MB the
search takes a minute, and Spark cannot stop it.
"""

from __future__ import annotations

from typing import Final

from eventbridge.transform.sql.lexer import quote
from eventbridge.transform.sql.tree import Node

#: Functions that search for one text in another: the argument to search in, and the argument to search for.
SEARCHES: Final = {
    "contains": (0, 1),
    "instr": (0, 1),
    "locate": (1, 0),
    "position": (1, 0),
    "replace": (0, 1),
    "split_part": (0, 1),
    "substring_index": (0, 1),
}
#: The maximum number of bytes that one search may compare, which takes 0.3 s, and 1 s for `split_part`.
MAXIMUM_COMPARED: Final = 1_000_000_000
#: The maximum length of a literal for which no limit is written, because it is short enough for each text.
_SHORT: Final = 100


def search_parts(name: str, arguments: list[Node]) -> tuple[str | Node, ...] | None:
    """Return the parts of a call that fails if it would compare too much; None if the call cannot.

    The arguments stay children of the call in their order, and each is evaluated once.
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
