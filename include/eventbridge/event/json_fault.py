"""Describes the error in a text that is not JSON, with the same message and position under every Python version."""

from __future__ import annotations

import json

_CLOSERS = {"}": "an object", "]": "an array"}


def json_fault(error: json.JSONDecodeError) -> tuple[str, int]:
    """Return a message that begins in lower case, and the position of the error in the text, from 0.

    Python 3.13 has a separate message and position for a comma before a closing bracket; earlier versions name the
    token that they expect.
    """
    text, at = error.doc, error.pos
    if text[at : at + 1] == ",":
        at += 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip())
    before = text[:at].rstrip()
    closed = _CLOSERS.get(text[at : at + 1])
    if closed is not None and before.endswith(","):
        return f"a comma before the end of {closed}", len(before) - 1
    message = "something follows the document" if error.msg == "Extra data" else error.msg.removesuffix(" at")
    return message[0].lower() + message[1:], error.pos
