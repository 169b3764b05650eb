"""The renderer of the form FIELDS: applies steps to a draft of the event, and renders the result as ORIGINAL does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from eventbridge.errors import EventError, TransformFailed
from eventbridge.event.cloudevent import Event, check_event
from eventbridge.event.json_document import JsonValue, write_document
from eventbridge.transform.fields.draft import Draft, copied
from eventbridge.transform.jsonpath import MISSING, MissingValue, Path
from eventbridge.transform.original import StructuredRenderer
from eventbridge.transform.rendered import Rendered, Renderer, Scope

IfPresent = Literal["replace", "keep", "error"]


@dataclass(frozen=True, slots=True)
class Put:
    """`insert` and `update`: a constant or the value of another path at a path; `update` only where a value is."""

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
            raise TransformFailed(f"the event has {self.path.text} already")
        if present and self.if_present == "keep":
            return None
        value: JsonValue | MissingValue = self.value if not isinstance(self.value, Path) else draft.find(self.value)
        if value is MISSING:
            assert isinstance(self.value, Path)
            return _missing(self.value, self.missing_is_error)
        assert not isinstance(value, MissingValue)
        draft.take(value)
        return draft.put(self.path, copied(value) if isinstance(self.value, Path) else value)


@dataclass(frozen=True, slots=True)
class Delete:
    """`delete`: takes the value out."""

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
    """`rename`: another name at the same place, or (`to` is a path) the value taken out and put elsewhere."""

    path: Path
    to: Path
    in_place: bool
    if_present: IfPresent
    missing_is_error: bool

    def apply(self, draft: Draft) -> None:
        """Rename or move the value."""
        if draft.find(self.path) is MISSING:
            return _missing(self.path, self.missing_is_error)
        if draft.find(self.to) is not MISSING and not self._is_inside():
            if self.if_present == "error":
                raise TransformFailed(f"the event has {self.to.text} already")
            if self.if_present == "keep":
                return None
        if self.in_place:
            return draft.rename(self.path, str(self.to.steps[-1]))
        return draft.put(self.to, draft.remove(self.path))

    def _is_inside(self) -> bool:
        """Return whether the value moves into its own place, which is free then: $.data to $.data.order."""
        return self.to.steps[: len(self.path.steps)] == self.path.steps


@dataclass(frozen=True, slots=True)
class Convert:
    """`cast`, `mask`, `hash` and `flatten`: the value replaced by what a function makes of it; null stays null."""

    path: Path
    function: Callable[[JsonValue], JsonValue]
    missing_is_error: bool

    def apply(self, draft: Draft) -> None:
        """Replace the value; TransformFailed, with the path, if the function cannot."""
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
    """One step of a rule file: what its messages call it, and its changes, one for each of its paths."""

    label: str
    changes: tuple[Change, ...]


class FieldsRenderer:
    """The event with all steps applied in order, sent by `inner` as ORIGINAL would send it."""

    def __init__(self, steps: Sequence[Step], inner: Renderer) -> None:
        self._steps = tuple(steps)
        self._inner = inner
        self._is_structured = isinstance(inner, StructuredRenderer)

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the changed event; raises TransformFailed with step and path for a step that cannot be done."""
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
        raise TransformFailed(f"the steps make no CloudEvent: {error}") from None


def _missing(path: Path, is_error: bool) -> None:
    if is_error:
        raise TransformFailed(f"the event has no {path.text}")
