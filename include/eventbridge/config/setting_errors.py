"""Messages about wrong settings: an unknown name, an invalid value, or a value out of range."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from eventbridge.similar_names import similar

PREFIX = "EVENTBRIDGE_"
_CONNECTION_PREFIX = "EVENTBRIDGE_CONN_"

_LIMITS = {"ge": "at least", "gt": "above", "le": "at most"}
_OUT_OF_RANGE = {"greater_than_equal", "greater_than", "less_than_equal"}


def is_setting_name(name: str) -> bool:
    """Return whether a variable is read as a setting, valid or not."""
    return name.startswith(PREFIX) and not name.startswith(_CONNECTION_PREFIX)


def unknown_setting(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return the message about a variable that is not a setting, with the nearest one of `fields`."""
    names = [field.upper() for field in fields]
    near = similar(name.removeprefix(PREFIX).upper(), names)
    remedy = f"Did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists all settings."
    return f"unknown setting {name}. {remedy}"


def setting_errors(error: ValidationError, fields: Mapping[str, FieldInfo]) -> list[str]:
    """Return the messages about wrong values, with the limits of those that are out of range."""
    found = []
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":  # a consequence of another wrong value
            continue
        limits = _limits(fields[str(item["loc"][0])]) if item["type"] in _OUT_OF_RANGE else ""
        message = f"{item['input']} is out of range: {limits}" if limits else item["msg"].removeprefix("Value error, ")
        name = f"{PREFIX}{str(item['loc'][0]).upper()}: " if item["loc"] else ""
        found.append(f"{name}{message}")
    return found


def _limits(field: FieldInfo) -> str:
    """Return the limits of a field, such as `at least 1 and at most 1024, in push tasks`."""
    unit = field.json_schema_extra["unit"] if isinstance(field.json_schema_extra, dict) else ""
    limits = {kind: getattr(each, kind) for each in field.metadata for kind in _LIMITS if hasattr(each, kind)}
    words = " and ".join(f"{word} {limits[kind]}" for kind, word in _LIMITS.items() if kind in limits)
    return f"it must be {words}, in {unit}"
