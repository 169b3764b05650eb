"""Finds which fields of an event each field of a target's payload comes from, for the forms of transforms that copy
fields: ORIGINAL, FIELDS and TEMPLATE."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from eventbridge.event.json_document import JsonValue
from eventbridge.policy.schema import path_of
from eventbridge.rules.model import Transform
from eventbridge.transform.fields import read_steps
from eventbridge.transform.fields.changed import Convert, Delete, Put, Rename
from eventbridge.transform.fields.operations import Flatten, Hash, Mask
from eventbridge.transform.jsonpath import Path, sources
from eventbridge.transform.template import Placeholder, parse_template

#: The name of the only field of a payload that is not a JSON object.
PAYLOAD: Final = "payload"
#: The character around the number of a placeholder, while a template is parsed as JSON.
_MARK: Final = "\ue000"
_MARKED: Final = re.compile(f"{_MARK}([0-9]+){_MARK}")


@dataclass(frozen=True)
class Column:
    """The fields of an event that one field of a payload comes from, as paths such as `data.customer.id`.

    `is_copy` is False if a value is changed or combined with others. `is_masked` is True if the original value cannot
    be recognised in the payload.
    """

    fields: tuple[str, ...]
    is_copy: bool = True
    is_masked: bool = False


def columns_of(transform: Transform, content_mode: str, known_fields: Iterable[str] = ()) -> dict[str, Column]:
    """Return the fields of a payload by path, each with the fields of the event that it comes from.

    Fields with a constant value are left out. With ORIGINAL and FIELDS, the fields that no step changes are those of
    `known_fields`, which are paths. Other forms than ORIGINAL, FIELDS and TEMPLATE return no fields.
    """
    if transform.form == "TEMPLATE":
        return _template_columns(transform)
    if transform.form not in ("ORIGINAL", "FIELDS"):
        return {}
    draft = _Draft(known_fields)
    steps = read_steps(transform.steps, missing_is_error=False)[0] if transform.form == "FIELDS" else []
    for step in steps:
        for change in step.changes:
            draft.apply(change)
    return draft.columns if content_mode == "structured" else _data_columns(draft.columns)


def _data_columns(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns of a payload that is the event's data alone."""
    return {path.removeprefix("data."): column for path, column in columns.items() if path.startswith("data.")}


class _Draft:
    """The columns of an event while steps change it."""

    def __init__(self, known_fields: Iterable[str]) -> None:
        paths = sorted(known_fields)
        objects = {path[: dot.start()] for path in paths for dot in re.finditer(r"\.", path)}
        self.columns = {path: Column((path,)) for path in paths if path not in objects}
        self._removed: set[str] = set()

    def apply(self, change: Put | Delete | Rename | Convert) -> None:
        path = path_of(change.path.steps)
        match change:
            case Put():
                self._put(path, change)
            case Delete():
                self._take(path)
            case Rename():
                moved, to = self._take(path), path_of(change.to.steps)
                self._take(to)
                self.columns |= {to + below: column for below, column in moved.items()}
                self._removed.discard(to)
            case Convert():
                self._convert(path, change)

    def _put(self, path: str, change: Put) -> None:
        before = self._find(path) if change.if_present == "keep" else {}
        found = self._find(path_of(change.value.steps)) if isinstance(change.value, Path) else {}
        self._take(path)
        self.columns |= {path + below: column for below, column in found.items()}
        for below, column in before.items():
            self.columns[path + below] = _merged([column, *filter(None, [self.columns.get(path + below)])])
        self._removed.discard(path)

    def _convert(self, path: str, change: Convert) -> None:
        found = self._take(path)
        self._removed.discard(path)
        is_masked = isinstance(change.function, Mask | Hash)
        if isinstance(change.function, Flatten | Hash):  # the members get other names, or become one value
            found = {"": _merged(found.values())} if found else {}
        for below, column in found.items():
            self.columns[path + below] = replace(column, is_copy=False, is_masked=is_masked or column.is_masked)

    def _find(self, path: str) -> dict[str, Column]:
        """Return the columns at and below a path, by the rest of their paths."""
        found = {name[len(path) :]: column for name, column in self.columns.items() if _is_below(name, path)}
        if found or any(_is_below(path, gone) for gone in self._removed):
            return found
        for outer, column in self.columns.items():  # a part of a value that another step has moved or changed
            if _is_below(path, outer):
                below = path[len(outer) :]
                return {"": replace(column, fields=tuple(f"{field}{below}" for field in column.fields))}
        return {"": Column((path,))}  # events may have the field, although no schema shows it

    def _take(self, path: str) -> dict[str, Column]:
        """Remove the columns at and below a path, and return them by the rest of their paths."""
        found = self._find(path)
        self.columns = {name: column for name, column in self.columns.items() if not _is_below(name, path)}
        self._removed.add(path)
        return found


def _is_below(path: str, outer: str) -> bool:
    """Return whether a path is `outer` or leads to a part of it."""
    return path == outer or path.startswith(f"{outer}.")


def _merged(columns: Iterable[Column]) -> Column:
    """Return a column that comes from the fields of several columns."""
    found = list(columns)
    fields = dict.fromkeys(field for column in found for field in column.fields)
    is_copy = len(found) == 1 and found[0].is_copy
    return Column(tuple(fields), is_copy, bool(found) and all(column.is_masked for column in found))


def _template_columns(transform: Transform) -> dict[str, Column]:
    template = parse_template(transform.template or "", content_type=transform.content_type)[0]
    paths = {name: value for name, value in sources(transform.value)[0].items() if isinstance(value, Path)}
    placeholders = template.placeholders()
    if not template.is_json:
        column = _inserted(placeholders, paths, is_copy=len(template.parts) == 1)
        return {PAYLOAD: column} if column is not None else {}
    numbers = iter(range(len(placeholders)))
    text = "".join(part if isinstance(part, str) else _probe(part, next(numbers)) for part in template.parts)
    found: dict[str, list[Column]] = {}
    for steps, value in _strings(json.loads(text, parse_int=str, parse_float=str)):
        inserted = [placeholders[int(number)] for number in _MARKED.findall(value)]
        column = _inserted(inserted, paths, is_copy=_MARKED.fullmatch(value) is not None)
        if column is not None:
            names = (_MARKED.sub(lambda mark: f"${{{placeholders[int(mark[1])].name}}}", name) for name in steps)
            found.setdefault(path_of(names) or PAYLOAD, []).append(column)
    return {path: _merged(columns) for path, columns in found.items()}


def _probe(placeholder: Placeholder, number: int) -> str:
    mark = f"{_MARK}{number}{_MARK}"
    return json.dumps(mark, ensure_ascii=False) if placeholder.context == "value" else mark


def _inserted(placeholders: Iterable[Placeholder], paths: Mapping[str, Any], *, is_copy: bool) -> Column | None:
    """Return the column in which placeholders are inserted, or None if only constants are."""
    fields = dict.fromkeys(path_of(paths[each.name].steps) for each in placeholders if each.name in paths)
    return Column(tuple(fields), is_copy) if fields else None


def _strings(value: JsonValue, steps: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the strings in a JSON value, each with the names that lead to it."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _strings(below, (*steps, name))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _strings(below, steps)
