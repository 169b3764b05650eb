"""Renders the FIELDS form by applying its steps to a draft of the event, which is then sent as ORIGINAL does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from eventbridge.errors import EventError, TransformFailed
from eventbridge.event.cloudevent import Event, check_event
from eventbridge.event.json_document import MAXIMUM_DEPTH, Document, JsonValue, Number, type_name, write_document
from eventbridge.transform.jsonpath import MISSING, MissingValue, Path
from eventbridge.transform.original import StructuredRenderer
from eventbridge.transform.rendered import MAXIMUM_BYTES, Rendered, Renderer, Scope, too_large

IfPresent = Literal["replace", "keep", "error"]


@dataclass(frozen=True, slots=True)
class Put:
    """The operations `insert` and `update`: write a constant, or the value at another path, to a path.

    With `only_present` (`update`), the path must already have a value."""

    path: Path
    value: Path | JsonValue
    only_present: bool
    if_present: IfPresent
    missing_is_error: bool

    def apply(self, draft: Draft) -> None:
        """Write the value."""
        present = draft.find(self.path) is not MISSING
        if self.only_present and not present:
            return _missing(self.path, self.missing_is_error)
        if present and self.if_present == "error":
            raise TransformFailed(f"the event already has {self.path.text}")
        if present and self.if_present == "keep":
            return None
        value: JsonValue | MissingValue = self.value if not isinstance(self.value, Path) else draft.find(self.value)
        if value is MISSING:
            assert isinstance(self.value, Path)
            return _missing(self.value, self.missing_is_error)
        assert not isinstance(value, MissingValue)
        draft.take(value)
        return draft.put(self.path, copy_value(value) if isinstance(self.value, Path) else value)


@dataclass(frozen=True, slots=True)
class Delete:
    """The `delete` operation, which removes a value."""

    path: Path
    missing_is_error: bool

    def apply(self, draft: Draft) -> None:
        """Remove the value."""
        if draft.find(self.path) is MISSING:
            return _missing(self.path, self.missing_is_error)
        draft.remove(self.path)
        return None


@dataclass(frozen=True, slots=True)
class Rename:
    """The `rename` operation: gives a member a new name at the same position, or moves the value to the path `to`."""

    path: Path
    to: Path
    keeps_position: bool
    if_present: IfPresent
    missing_is_error: bool

    def apply(self, draft: Draft) -> None:
        """Rename or move the value."""
        if draft.find(self.path) is MISSING:
            return _missing(self.path, self.missing_is_error)
        if draft.find(self.to) is not MISSING and not self._is_inside():
            if self.if_present == "error":
                raise TransformFailed(f"the event already has {self.to.text}")
            if self.if_present == "keep":
                return None
        if self.keeps_position:
            return draft.rename(self.path, str(self.to.steps[-1]))
        return draft.put(self.to, draft.remove(self.path))

    def _is_inside(self) -> bool:
        """Return whether the value moves inside its own path, as from $.data to $.data.order, which frees the path."""
        return self.to.steps[: len(self.path.steps)] == self.path.steps


@dataclass(frozen=True, slots=True)
class Convert:
    """The operations `cast`, `mask`, `hash` and `flatten`: apply a function to a value; null stays null."""

    path: Path
    function: Callable[[JsonValue], JsonValue]
    missing_is_error: bool

    def apply(self, draft: Draft) -> None:
        """Replace the value. Raises TransformFailed, with the path, if the function cannot convert it."""
        value = draft.find(self.path)
        if value is MISSING:
            return _missing(self.path, self.missing_is_error)
        if value is None:
            return None
        assert not isinstance(value, MissingValue)
        try:
            converted = self.function(value)
        except TransformFailed as error:
            raise TransformFailed(f"{self.path.text}: {error}") from None
        return draft.put(self.path, converted)


Change: TypeAlias = Put | Delete | Rename | Convert


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a transform: how messages name it, and its changes, one for each of its paths."""

    label: str
    changes: tuple[Change, ...]


class FieldsRenderer:
    """Applies all steps to an event in order; `inner` then renders it as ORIGINAL would."""

    def __init__(self, steps: Sequence[Step], inner: Renderer) -> None:
        self._steps = tuple(steps)
        self._inner = inner
        self._is_structured = isinstance(inner, StructuredRenderer)

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the changed event. Raises TransformFailed, naming the step and the path, if a step fails."""
        draft = Draft(event.document)
        for step in self._steps:
            try:
                for change in step.changes:
                    change.apply(draft)
            except TransformFailed as error:
                raise TransformFailed(f"{step.label}: {error}") from None
        document = draft.document
        if document.keys() != event.document.keys() or any(
            document[name] is not value for name, value in event.document.items() if name != "data"
        ):
            _check(document)
        body = write_document(document).encode() if self._is_structured else event.body
        return self._inner.render(replace(event, document=document, body=body), scope)


def _check(document: dict[str, JsonValue]) -> None:
    try:
        check_event(document)
    except EventError as error:
        raise TransformFailed(f"the result of the steps is not a CloudEvent: {error}") from None


def _missing(path: Path, is_error: bool) -> None:
    if is_error:
        raise TransformFailed(f"the event has no {path.text}")


Container: TypeAlias = "dict[str, JsonValue] | list[JsonValue]"


class Draft:
    """A document of which only the containers that a step changes are copied.

    Invariant: a container is changed only if `_own` has its id. `_own` keeps it alive, so that no id is reused.
    """

    def __init__(self, document: Document) -> None:
        self.document: Document = dict(document)
        self._own: dict[int, Container] = {id(self.document): self.document}
        self._room = MAXIMUM_BYTES

    def take(self, value: JsonValue) -> JsonValue:
        """Return a value to insert. Raises TransformFailed if all inserted values together are too large."""
        self._room -= size_of(value, self._room)
        return value

    def find(self, path: Path) -> JsonValue | MissingValue:
        """Return the value at a path, or MISSING."""
        return path.find(self.document)

    def put(self, path: Path, value: JsonValue) -> None:
        """Write a value at the path, and create missing objects on the way.

        A new element must come right after the last one of its list. Raises TransformFailed if the value cannot be
        written.
        """
        self._write(self._parent(path), path.steps[-1], path, value)

    def remove(self, path: Path) -> JsonValue:
        """Remove and return the value at a path, which must have one; later elements of a list move up."""
        parent = self._parent(path)
        last = path.steps[-1]
        if isinstance(parent, dict):
            return parent.pop(str(last))
        return parent.pop(int(last))

    def rename(self, path: Path, name: str) -> None:
        """Give the member at a path a new name; its position in the object stays the same."""
        parent = self._parent(path)
        assert isinstance(parent, dict)
        last = path.steps[-1]
        members = [(name if key == last else key, value) for key, value in parent.items() if key != name or key == last]
        parent.clear()
        parent.update(members)

    def _parent(self, path: Path) -> Container:
        parent: Container = self.document
        for step, following in zip(path.steps[:-1], path.steps[1:], strict=True):
            parent = self._child(parent, step, path, following)
        return parent

    def _child(self, parent: Container, step: str | int, path: Path, following: str | int) -> Container:
        """Return the container at a step for writing; it must be an object or a list, as `following` requires."""
        value = _member(parent, step)
        if value is MISSING and isinstance(following, str):
            made: Container = {}
            self._write(parent, step, path, made)
            self._own[id(made)] = made
            return made
        if not isinstance(value, dict if isinstance(following, str) else list):
            raise TransformFailed(f"{path.text}: {_obstacle(value, step, following)}")
        assert isinstance(value, dict | list)
        if id(value) not in self._own:
            value = value.copy()
            self._own[id(value)] = value
            self._write(parent, step, path, value)
        return value

    def _write(self, parent: Container, step: str | int, path: Path, value: JsonValue) -> None:
        if isinstance(parent, dict) and isinstance(step, str):
            parent[step] = value
        elif isinstance(parent, list) and isinstance(step, int):
            if step == len(parent):
                parent.append(value)
            elif -len(parent) <= step < len(parent):
                parent[step] = value
            else:
                raise TransformFailed(f"{path.text}: [{step}] is outside a list of {len(parent)}")
        else:
            raise TransformFailed(f"{path.text}: {_obstacle(parent, None, step)}")


def _member(parent: Container, step: str | int) -> JsonValue | MissingValue:
    if isinstance(parent, dict):
        return parent.get(step, MISSING) if isinstance(step, str) else MISSING
    return parent[step] if isinstance(step, int) and -len(parent) <= step < len(parent) else MISSING


def _obstacle(value: JsonValue | MissingValue, step: str | int | None, following: str | int) -> str:
    where = "its parent" if step is None else f"[{step}]" if isinstance(step, int) else repr(step)
    needed = "an object" if isinstance(following, str) else "a list"
    return f"{where} is {'missing' if value is MISSING else type_name(value)}, but must be {needed}"


def copy_value(value: JsonValue) -> JsonValue:
    """Return a deep copy of a value."""
    if isinstance(value, dict):
        return {name: copy_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [copy_value(inner) for inner in value]
    return value


def size_of(value: JsonValue, room: int) -> int:
    """Return the approximate size of a value as JSON text without escapes.

    Raises TransformFailed as soon as the size exceeds `room`, and if the value is nested too deep.
    """
    size, depth = 0, 0
    level: list[JsonValue] = [value]
    while level:
        following: list[JsonValue] = []
        for each in level:
            if isinstance(each, dict):
                size += 2 + sum(len(name) + 4 for name in each)
                following.extend(each.values())
            elif isinstance(each, list):
                size += 2 + len(each)
                following.extend(each)
            elif isinstance(each, str):
                size += len(each) + 2
            else:
                size += len(each.text) if isinstance(each, Number) else 4
            if size > room:
                raise too_large(MAXIMUM_BYTES - room + size)
        depth += 1
        if depth > MAXIMUM_DEPTH:
            raise TransformFailed(f"a value nests deeper than {MAXIMUM_DEPTH}")
        level = following
    return size
