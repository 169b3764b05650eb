"""Writes the beginning of a JSON text, for messages about possibly large values."""

from __future__ import annotations

from eventbridge.event.json_document import write_pieces


class _LongEnough(Exception):
    """The text has reached its maximum length."""


def write_head(value: object, most: int) -> str:
    """Return compact JSON text, truncated to `most` characters if it is longer; a truncated text ends with "...".

    Only the returned text is written, so the cost does not depend on the size of the value.
    """
    pieces: list[str] = []
    length = 0

    def put(piece: str) -> None:
        nonlocal length
        pieces.append(piece)
        length += len(piece)
        if length > most:
            raise _LongEnough

    try:
        write_pieces(value, put)
    except _LongEnough:
        pieces = ["".join(pieces)[: most - 3], "..."]
    return "".join(pieces).encode("utf-8", "backslashreplace").decode()  # lone surrogates, as write_document does
