"""Reads the steps of a FIELDS transform, and collects all errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from eventbridge.errors import TransformError
from eventbridge.event.json_document import JsonValue, Number, type_name
from eventbridge.transform.error import either, error_at, format_value, member, nearest
from eventbridge.transform.fields.changed import Change, Convert, Delete, IfPresent, Put, Rename, Step
from eventbridge.transform.fields.operations import TYPES, Flatten, Hash, Mask
from eventbridge.transform.jsonpath import KNOWN_NAMES, Path, parse_path, path_text, source

Value = TypeVar("Value")

#: Stands for a path that could not be read. Its error is recorded, so it is never used for an event.
NO_PATH: Final = Path("$", ("data",))


class Options:
    """The options of one operation; a method records an error and returns a default instead of raising."""

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
        """Record an error."""
        self.errors.append(error_at(where, message, value, remedy))

    def path_of(self, name: str) -> str:
        """Return the JSON path of an option, or of the operation if the option is not given."""
        return member(self._where, name) if self._given.get(name) is not None else self._where

    def paths(self) -> list[Path]:
        """Return the paths that the `path` option gives, as one path or a list of at least one."""
        value = self._given.get("path")
        if not isinstance(value, list | tuple):
            return [self.path("path")]
        if not value:
            self.add(self.path_of("path"), "the list of paths is empty", value, "Write path: $.data.name")
        return [self._path(text, f"{self.path_of('path')}[{index}]") for index, text in enumerate(value)]

    def path(self, name: str) -> Path:
        """Return the path that a required option gives."""
        return self._path(self._given.get(name), self.path_of(name))

    def _path(self, value: object, where: str) -> Path:
        if not isinstance(value, str):
            message = f"{self._operation} needs a path" if value is None else f"{format_value(value)} is not a path"
            self.add(where, message, value, "Write path: $.data.name")
            return NO_PATH
        try:
            return parse_path(value, where)
        except TransformError as error:
            self.errors.append(error)
            return NO_PATH

    def value(self) -> Path | JsonValue:
        """Return the path or constant that `value` gives; it is required but may be null."""
        if "value" not in self._given:
            self.add(self._where, f"{self._operation} needs a value", None, "Write value: a constant or a path")
            return None
        try:
            found: Path | JsonValue = source(self._given["value"], member(self._where, "value"))
        except TransformError as error:
            self.errors.append(error)
            return None
        return found

    def text(self, name: str, default: str | None, check: Callable[[str], bool], expected: str) -> str:
        """Return a string that passes `check`; the option is required if `default` is None."""
        value = self._given.get(name)
        if value is None and default is None:
            message = f"{self._operation} needs the option {name}"
            self.add(self._where, message, None, f"Write {name}: followed by {expected}")
        if value is None:
            return default or ""
        if not isinstance(value, str) or not check(value):
            remedy = f'Write {name}: "{default or "name"}"'
            self.add(self.path_of(name), f"{name} is {format_value(value)}, but must be {expected}", value, remedy)
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
        message = f"{name} is {format_value(value)}, but must be a whole number from {low} to {high:,}"
        self.add(self.path_of(name), message, value, f"Write {name}: {max(low, 4)}")
        return default

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        """Return one of the choices; the option is required if `default` is empty."""
        value = self._given.get(name)
        if value is None and default:
            return default
        if isinstance(value, str) and value in choices:
            return value
        message = (
            f"{self._operation} needs the option {name}" if value is None else f"{name} cannot be {format_value(value)}"
        )
        self.add(self.path_of(name), message, value, nearest(value, choices, f"Write {either(choices)}"))
        return default


IF_PRESENT: Final = ("replace", "keep", "error")
MISSING: Final = ("skip", "error")

#: Attributes that every event must have; a step may change but not remove them.
_REQUIRED = ("specversion", "id", "source", "type")
_ATTRIBUTE = re.compile(r"[a-z0-9]+|data_base64")


def read_steps(value: object, *, missing_is_error: bool) -> tuple[list[Step], list[TransformError]]:
    """Return the steps of the `steps` field, and every error with its JSON path inside the transform.

    `missing_is_error` applies to steps without a `missing` of their own.
    """
    if not isinstance(value, list | tuple) or not value:
        where = "$" if value is None else "$.steps"
        remedy = "Write steps: and below it one line per step, such as - delete: $.data.name"
        return [], [error_at(where, "FIELDS needs a list of steps", value, remedy)]
    steps, errors = [], []
    for index, given in enumerate(value):
        where = f"$.steps[{index}]"
        if problem := _step_problem(given, where):
            errors.append(problem)
            continue
        ((operation, options),) = given.items()
        changes, found = _read_step(operation, options, member(where, operation), missing_is_error)
        steps.append(Step(f"step {index + 1} ({operation})", tuple(changes)))
        errors += found
    return steps, errors


def _step_problem(given: object, where: str) -> TransformError | None:
    if not isinstance(given, Mapping):
        return error_at(
            where, f"a step must be a mapping, not {type_name(given)}", given, "Write - delete: $.data.name"
        )
    if len(given) != 1:
        message = f"a step must have exactly one operation, but this one has {len(given) or 'none'}"
        return error_at(where, message, given, f"Write one of {either(OPERATIONS)}; begin each step with a hyphen")
    (operation,) = given
    if operation not in OPERATIONS:
        remedy = nearest(operation, OPERATIONS, f"Use {either(OPERATIONS)}")
        return error_at(member(where, operation), f"there is no operation {format_value(operation)}", operation, remedy)
    return None


def _read_step(
    operation: str, given: object, where: str, missing_is_error: bool
) -> tuple[list[Change], list[TransformError]]:
    read, names = OPERATIONS[operation]
    if operation == "delete" and isinstance(given, str | list | tuple):
        given = {"path": given}
    if not isinstance(given, Mapping):
        remedy = f"Write {operation}: {{path: $.data.name}}" + (" with its other options" if len(names) > 2 else "")
        return [], [error_at(where, f"{operation} takes a mapping of options, not {type_name(given)}", given, remedy)]
    options = Options(operation, given, where, names)
    inherited = MISSING[missing_is_error]
    changes = read(options, options.choice("missing", inherited, MISSING) == "error")
    return changes, options.errors


def _insert(options: Options, missing_is_error: bool) -> list[Change]:
    if_present = cast("IfPresent", options.choice("if_present", "replace", IF_PRESENT))
    return [Put(options.path("path"), options.value(), False, if_present, missing_is_error)]


def _update(options: Options, missing_is_error: bool) -> list[Change]:
    return [Put(options.path("path"), options.value(), True, "replace", missing_is_error)]


def _delete(options: Options, missing_is_error: bool) -> list[Change]:
    paths = options.paths()
    for path in paths:
        _keep_required(options, path, "deleted")
    return [Delete(path, missing_is_error) for path in paths]


def _rename(options: Options, missing_is_error: bool) -> list[Change]:
    path = options.path("path")
    _keep_required(options, path, "renamed")
    name = options.text("to", None, bool, "a new name or a path that begins with $")
    if_present = cast("IfPresent", options.choice("if_present", "error", IF_PRESENT))
    keeps_position = not name.startswith("$")
    to = _sibling_path(options, path, name) if keeps_position else options.path("to")
    if name and to is not NO_PATH and path is not NO_PATH and to.steps == path.steps:
        options.add(options.path_of("to"), f"the value is already at {to.text}", name, "Write another name")
    return [Rename(path, to, keeps_position, if_present, missing_is_error)]


def _sibling_path(options: Options, path: Path, name: str) -> Path:
    """Return the path of the same value under another name."""
    if isinstance(path.steps[-1], int):
        message = "an element of a list has no name"
        options.add(options.path_of("to"), message, name, "Write a path, such as to: $.data.name, to move it there")
        return NO_PATH
    if len(path.steps) == 1 and name and not _ATTRIBUTE.fullmatch(name):
        remedy = f"Write to: $.data.{name} to move it there" if name.isidentifier() else "Write another name"
        message = f"{name!r} is not a valid attribute name: use only a-z and 0-9"
        options.add(options.path_of("to"), message, name, remedy)
    steps = (*path.steps[:-1], name)
    return Path(path_text(steps), steps)


def _keep_required(options: Options, path: Path, verb: str) -> None:
    if len(path.steps) == 1 and path.steps[0] in _REQUIRED and path is not NO_PATH:
        message = f"{path.text} is required in every event and cannot be {verb}"
        options.add(options.path_of("path"), message, path.text, "Remove the step, or use content_mode: data")


def _cast(options: Options, missing_is_error: bool) -> list[Change]:
    paths = options.paths()
    to = options.choice("to", "", TYPES)
    function = TYPES.get(to, TYPES["json"])
    return [Convert(path, function, missing_is_error) for path in paths]


def _mask(options: Options, missing_is_error: bool) -> list[Change]:
    first, last = options.whole("keep_first", 0, 0, 1_000), options.whole("keep_last", 0, 0, 1_000)
    character = options.text("character", "*", lambda text: len(text) == 1, "one character")
    return _convert(options, Mask(first, last, character), missing_is_error)


def _hash(options: Options, missing_is_error: bool) -> list[Change]:
    salt = options.text("salt", "", lambda text: text.isprintable(), "a printable string")
    return _convert(options, Hash(salt), missing_is_error)


def _flatten(options: Options, missing_is_error: bool) -> list[Change]:
    delimiter = options.text("delimiter", ".", lambda text: text != "", "a nonempty string")
    flatten = Flatten(delimiter, options.whole("depth", None, 1, 100))
    paths = options.paths()
    for path in paths:
        if len(path.steps) == 1 and path.steps[0] in KNOWN_NAMES[1:]:
            message = f"{path.text} is a single value and cannot be flattened"
            options.add(options.path_of("path"), message, path.text, "Write path: $.data, or a part of the data")
    return [Convert(path, flatten, missing_is_error) for path in paths]


def _convert(options: Options, function: Callable[[JsonValue], JsonValue], missing_is_error: bool) -> list[Change]:
    return [Convert(path, function, missing_is_error) for path in options.paths()]


Reader = Callable[[Options, bool], list[Change]]

#: The reader and the options of each operation; docs/reference/transforms.md describes them.
OPERATIONS: Final[dict[str, tuple[Reader, tuple[str, ...]]]] = {
    "insert": (_insert, ("path", "value", "if_present", "missing")),
    "delete": (_delete, ("path", "missing")),
    "update": (_update, ("path", "value", "missing")),
    "rename": (_rename, ("path", "to", "if_present", "missing")),
    "cast": (_cast, ("path", "to", "missing")),
    "mask": (_mask, ("path", "keep_first", "keep_last", "character", "missing")),
    "hash": (_hash, ("path", "salt", "missing")),
    "flatten": (_flatten, ("path", "delimiter", "depth", "missing")),
}
