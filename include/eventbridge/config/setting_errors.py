"""What is said of settings that are wrong: a name that is none, a value that is none or out of range."""

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
    """Return whether a variable is read as a setting, right or wrong."""
    return name.startswith(PREFIX) and not name.startswith(_CONNECTION_PREFIX)


def unknown_setting(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return what is said of a variable that is not a setting, with the nearest one of `fields`."""
    names = [field.upper() for field in fields]
    near = similar(name.removeprefix(PREFIX).upper(), names)
    remedy = f"Did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists all settings."
    return f"unknown setting {name}. {remedy}"


def setting_errors(error: ValidationError, fields: Mapping[str, FieldInfo]) -> list[str]:
    """Return what is said of values that are wrong, with the limits of those that are out of range."""
    found = []
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":  # only because another value is wrong
            continue
        limits = _limits(fields[str(item["loc"][0])]) if item["type"] in _OUT_OF_RANGE else ""
        message = f"{item['input']} is out of range: {limits}" if limits else item["msg"].removeprefix("Value error, ")
        name = f"{PREFIX}{str(item['loc'][0]).upper()}: " if item["loc"] else ""
        found.append(f"{name}{message}")
    return found


def _limits(field: FieldInfo) -> str:
    """Return what a field may be, e.g. `at least 1 and at most 1024, in push tasks`."""
    unit = field.json_schema_extra["unit"] if isinstance(field.json_schema_extra, dict) else ""
    limits = {kind: getattr(each, kind) for each in field.metadata for kind in _LIMITS if hasattr(each, kind)}
    words = " and ".join(f"{word} {limits[kind]}" for kind, word in _LIMITS.items() if kind in limits)
    return f"it must be {words}, in {unit}"
