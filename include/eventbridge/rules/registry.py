"""Registries of the types of targets and sources: built-in ones, and those of installed packages.

One object describes a type. It is loaded when a rule file first uses it: reading rules imports no client library, and
the search for packages, which takes as long as reading hundreds of rules, is skipped while only built-in types are
used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from eventbridge.errors import TypeUnusable

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Types by name; the name of a package's entry point is the name of its type."""

    def __init__(self, group: str, entry: type[Entry], built_in: Mapping[str, str]) -> None:
        """Take the group of entry points, the class of a type, and the built-in types as `module:object`."""
        self.group = group
        self.built_in = tuple(built_in)
        self._entry = entry
        self._paths = dict(built_in)
        self._loaded: dict[str, Entry] = {}
        self._found: dict[str, list[EntryPoint]] | None = None

    def names(self) -> list[str]:
        """Return the names of all types, the built-in ones first."""
        return [*self.built_in, *(name for name in self._entry_points() if name not in self._paths)]

    def find(self, name: object) -> Entry | None:
        """Return the type of a name, None if there is none; raises TypeUnusable if its package cannot be used."""
        if not isinstance(name, str) or (name not in self._paths and name not in self._entry_points()):
            return None
        return self.get(name)

    def get(self, name: str) -> Entry:
        """Return the type of a name; raises TypeUnusable if there is none, or its package cannot be used."""
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def _load(self, name: str) -> Entry:
        loaded = load(self._paths[name]) if name in self._paths else self._from_package(name)
        if not isinstance(loaded, self._entry):
            what = f"the entry point {name!r} of the group {self.group} is a value of {type(loaded).__name__}"
            raise TypeUnusable(f"{what}, not of {self._entry.__name__}", "Correct its package")
        return loaded

    def _from_package(self, name: str) -> Any:
        points = self._entry_points().get(name, [])
        if not points:
            raise TypeUnusable(
                f"there is no type {name!r} in the group {self.group}; there are {', '.join(self.names())}",
                "Install the package that has it on this machine",
            )
        if len(points) > 1:
            packages = " and ".join(sorted(_package(point) for point in points))
            raise TypeUnusable(f"the type {name!r} is provided by {packages}", "Remove one of these packages")
        try:
            return points[0].load()
        except Exception as error:
            what = f"the type {name!r} of the package {_package(points[0])} cannot be loaded"
            raise TypeUnusable(f"{what}: {type(error).__name__}: {error}", "Repair or remove the package") from error

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        if self._found is None:
            self._found = {}
            for point in entry_points(group=self.group):
                self._found.setdefault(point.name, []).append(point)
        return self._found


def load(path: str) -> Any:
    """Return the object that `module:name` leads to; importing it may raise anything."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def load_opener(group: str, name: str, path: str) -> Any:
    """Return the opener of a type; raises TypeUnusable if it cannot be imported here."""
    try:
        return load(path)
    except (ImportError, AttributeError) as error:
        what = f"the opener {path} of the type {name!r} of the group {group} cannot be loaded: {error}"
        raise TypeUnusable(what, "Install its dependencies on this machine, or repair its package") from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
