"""Reads the options of one step, and collects all errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from eventbridge.errors import TransformError
from eventbridge.event.json_document import JsonValue, Number
from eventbridge.transform.error import either, error_at, member, nearest, shown
from eventbridge.transform.jsonpath import Path, parse_path
from eventbridge.transform.source import source

Value = TypeVar("Value")

#: Stands where a path could not be read: the error is noted, and no event will meet it.
NO_PATH: Final = Path("$", ("data",))


class Options:
    """The options of one operation; every method notes what is wrong, once, and then returns a default."""

    def __init__(self, operation: str, given: Mapping[Any, Any], where: str, known: tuple[str, ...]) -> None:
        self.errors: list[TransformError] = []
        self._operation = operation
        self._given = given
        self._where = where
        for name in given:
            if name not in known:
                remedy = nearest(name, known, f"Its options are {either(known)}")
                self.add(member(where, name), f"{operation} has no option {name}", name, remedy)

    def add(self, where: str, message: str, value: object, remedy: str) -> None:
        """Note an error."""
        self.errors.append(error_at(where, message, value, remedy))

    def at(self, name: str) -> str:
        """Return the JSON path of an option, or of all of them where it is not given."""
        return member(self._where, name) if self._given.get(name) is not None else self._where

    def paths(self) -> list[Path]:
        """Return the paths that `path` holds: one, or a list of at least one."""
        value = self._given.get("path")
        if not isinstance(value, list | tuple):
            return [self.path("path")]
        if not value:
            self.add(self.at("path"), "the list of paths is empty", value, "Write path: $.data.name")
        return [self._path(text, f"{self.at('path')}[{index}]") for index, text in enumerate(value)]

    def path(self, name: str) -> Path:
        """Return the one path of an option that must be given."""
        return self._path(self._given.get(name), self.at(name))

    def _path(self, value: object, where: str) -> Path:
        if not isinstance(value, str):
            message = f"{self._operation} needs a path" if value is None else f"{shown(value)} is not a path"
            self.add(where, message, value, "Write path: $.data.name")
            return NO_PATH
        try:
            return parse_path(value, where)
        except TransformError as error:
            self.errors.append(error)
            return NO_PATH

    def value(self) -> Path | JsonValue:
        """Return what `value` stands for, which must be given and may be null."""
        if "value" not in self._given:
            self.add(self._where, f"{self._operation} needs a value", None, "Write value: a constant or a path")
            return None
        try:
            found: Path | JsonValue = source(self._given["value"], member(self._where, "value"))
        except TransformError as error:
            self.errors.append(error)
            return None
        return found

    def text(self, name: str, default: str | None, check: Callable[[str], bool], what: str) -> str:
        """Return a text that passes a check, `what` says which; without a default it must be given."""
        value = self._given.get(name)
        if value is None and default is None:
            self.add(self._where, f"{self._operation} needs {name}", None, f"Write {name}: and {what}")
        if value is None:
            return default or ""
        if not isinstance(value, str) or not check(value):
            remedy = f'Write {name}: "{default or "name"}"'
            self.add(self.at(name), f"{name} is {shown(value)}, and must be {what}", value, remedy)
            return default or ""
        return value

    def whole(self, name: str, default: Value, low: int, high: int) -> int | Value:
        """Return a whole number from `low` to `high`."""
        value = self._given.get(name)
        if value is None:
            return default
        text = value.text if isinstance(value, Number) else str(value) if type(value) is int else ""
        if re.fullmatch(r"\d{1,9}", text, re.ASCII) and low <= int(text) <= high:
            return int(text)
        message = f"{name} is {shown(value)}, and must be a whole number from {low} to {high:,}"
        self.add(self.at(name), message, value, f"Write {name}: {max(low, 4)}")
        return default

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        """Return one of the choices; where the default is empty, one must be given."""
        value = self._given.get(name)
        if value is None and default:
            return default
        if isinstance(value, str) and value in choices:
            return value
        message = f"{self._operation} needs {name}" if value is None else f"{name} cannot be {shown(value)}"
        self.add(self.at(name), message, value, nearest(value, choices, f"Write {either(choices)}"))
        return default
