"""Reads unquoted YAML scalars: the YAML 1.2 core schema, reduced to values on which all readers agree."""

from __future__ import annotations

import re

from eventbridge.event.json_document import Number

_AMBIGUOUS = frozenset(["yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"])
_TRUE, _FALSE = frozenset(("true", "True", "TRUE")), frozenset(("false", "False", "FALSE"))
_SURROGATE = re.compile("[\ud800-\udfff]")
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
# Texts that some reader of YAML 1.1 or 1.2 takes for a number, although JSON may not.
_NUMBER_LIKE = re.compile(
    r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.[0-9_]+([eE][-+]?[0-9]+)?)"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    re.ASCII,
)


def read_scalar(text: str, *, quoted: bool) -> tuple[str | bool | Number | None, tuple[str, str] | None]:
    """Return a scalar's value, or an error message with remedy; a block scalar (| or >) counts as quoted."""
    if _SURROGATE.search(text):
        return text, ("the text holds half of a surrogate pair", "Write the character itself, or as \\U0001....")
    if quoted:
        return text, None
    if text in _NULL:
        return None, None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE, None
    if Number.is_number(text):
        return Number(text), None
    return text, _ambiguity(text)


def _ambiguity(text: str) -> tuple[str, str] | None:
    if text in _AMBIGUOUS:
        truth = "true" if text.lower() in ("yes", "on") else "false"
        return (
            f"{text} without quotes is a boolean to some readers of YAML and text to others",
            f'Write {truth}, or "{text}" if you mean the text',
        )
    if _NUMBER_LIKE.fullmatch(text):
        return (
            f"{text} is a number to YAML, but not as JSON writes numbers",
            f'Write it in plain decimal digits such as 31 or 0.5, or "{text}" if you mean the text',
        )
    return None
