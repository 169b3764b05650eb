"""Raw values of a pattern from JSON or YAML, before the operators' readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from eventbridge.errors import EventError
from eventbridge.event.json_document import as_json_value, type_name, write_document
from eventbridge.matching.pattern.location import Location
from eventbridge.matching.pattern.nodes import Scalar


def is_scalar(value: object) -> bool:
    """Return whether a raw value of a pattern is a string, number, boolean or null or no JSON at all."""
    return not isinstance(value, (Mapping, list, tuple))


def shown(value: object) -> str:
    """Return a raw value as short JSON for a message."""
    try:
        text = write_document(value)
    except EventError:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_scalar(value: Any, here: Location) -> tuple[Scalar, bool]:
    """Return a raw scalar as JSON has it, and whether it has a JSON form."""
    try:
        return cast(Scalar, as_json_value(value)), True
    except EventError as error:
        here.wrong(str(error), value, "Write a string, number, boolean or null; a date is written in quotes.")
        return None, False


def read_text(value: Any, here: Location, example: str) -> str | None:
    """Return a string argument; `None` if an error was reported, for which `example` is the remedy."""
    if isinstance(value, str):
        return str(value)
    remedy = f"Write {example}."
    if isinstance(value, (list, tuple)):
        remedy = "It takes one string; write one object per string, as in " + (
            ", ".join(shown({here.steps[-1]: text}) for text in value[:2]) or example
        )
        remedy += "."
    here.wrong(f"a string is expected, not {type_name(value)}", value, remedy)
    return None
