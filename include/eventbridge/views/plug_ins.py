"""Describes the types of sources, targets and transforms that this installation has, with their settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eventbridge.errors import NotFoundError, TypeUnusable
from eventbridge.rules.json_schema import required_settings, settings_schema
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES, TRANSFORM_TYPES, Registry
from eventbridge.rules.vocabulary import FORMS
from eventbridge.similar_names import nearest
from eventbridge.version import __version__

#: The package of the built-in types.
_OURS = "eventbridge-airflow"


@dataclass(frozen=True)
class TypeLine:
    """One type, with the JSON Schema of each of its settings, and the names of those that a rule file must give.

    `error` is why its package cannot be used.

    The settings of a built-in transform are described by docs/reference/transforms.md.
    """

    kind: str
    type: str
    package: str
    version: str
    built_in: bool
    settings: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    error: str | None = None


def all_types() -> list[TypeLine]:
    """Return all types by kind, the built-in ones first."""
    forms = [TypeLine("transform", form, _OURS, __version__, built_in=True) for form in FORMS]
    return [*_types_of(SOURCE_TYPES), *_types_of(TARGET_TYPES), *forms, *_types_of(TRANSFORM_TYPES)]


def types_named(name: str) -> list[TypeLine]:
    """Return the types with a name, of which each kind has one at most; raises NotFoundError if there is none."""
    found = all_types()
    if named := [each for each in found if each.type == name]:
        return named
    remedy = nearest(name, sorted({each.type for each in found})) or "`eventbridge plugins list` lists all types"
    raise NotFoundError(f"there is no type {name!r}. {remedy}")


def _types_of(registry: Registry[Any]) -> list[TypeLine]:
    return [_type_of(registry, name) for name in registry.names()]


def _type_of(registry: Registry[Any], name: str) -> TypeLine:
    plug_in = registry.plug_in(name)
    package, version = (_OURS, __version__) if plug_in is None else (plug_in.package, plug_in.version)
    try:
        found = registry.get(name)
        settings, required = settings_schema(found, is_built_in=plug_in is None), required_settings(found)
    except TypeUnusable as error:
        return TypeLine(registry.kind, name, package, version, built_in=False, error=str(error))
    return TypeLine(registry.kind, name, package, version, plug_in is None, settings, required)
