"""Reads a value in a transform: a path into the event, or a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventbridge.errors import EventError, TransformError
from eventbridge.event.json_document import as_json_value
from eventbridge.transform.error import NAME, error_at, member
from eventbridge.transform.jsonpath import Path, parse_path


def sources(value: object) -> tuple[dict[str, Path | Any], list[TransformError]]:
    """Return what each name under a template's `value` stands for, a Path or a constant, and the errors."""
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        remedy = "Write one line per name, such as id: $.data.id"
        return {}, [error_at("$.value", "the value of a TEMPLATE is a mapping of names", value, remedy)]
    found: dict[str, Path | Any] = {}
    errors: list[TransformError] = []
    for name, text in value.items():
        where = member("$.value", name)
        if problem := _name_problem(name):
            errors.append(error_at(where, *problem))
            continue
        try:
            found[name] = source(text, where)
        except TransformError as error:
            errors.append(error)
            found[name] = None
    return found, errors


def source(value: object, where: str) -> Path | Any:
    """Return what one value stands for; raises TransformError at `where`.

    Text that begins with `$` is a path; `$$` at the beginning stands for a `$` of a constant.
    """
    if isinstance(value, str) and value.startswith("$$"):
        return value[1:]
    if isinstance(value, str) and value.startswith("$"):
        return parse_path(value, where)
    return constant(value, where)


def constant(value: object, where: str) -> Any:
    """Return a value as JSON; raises TransformError at `where` if it has none."""
    try:
        return as_json_value(value)
    except EventError as error:
        raise error_at(
            where, f"the constant is not JSON: {error}", value, "Put quotes around it to make it text"
        ) from None


def _name_problem(name: object) -> tuple[str, object, str] | None:
    if not isinstance(name, str):
        return f"the name {name!r} is not text", name, "Put quotes around it"
    if name.startswith("eb."):
        return f"the name {name} is taken: eb. is for what is predefined", name, "Choose another name"
    if not NAME.fullmatch(name):
        return f"{name!r} cannot be a name", name, "Use letters, digits and _ . - only, a letter, digit or _ first"
    return None
