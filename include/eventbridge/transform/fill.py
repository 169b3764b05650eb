"""Renders the forms CONSTANT, JSONPATH and TEMPLATE."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import Event
from eventbridge.event.json_document import JsonValue, Number, write_document
from eventbridge.transform.jsonpath import MISSING, Path
from eventbridge.transform.rendered import MAXIMUM_BYTES, Rendered, Scope, too_large
from eventbridge.transform.template import Placeholder, PlaceholderContext, Template, escape_form, escape_xml

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

Slot = Callable[[Event, Scope], str]

_SURROGATE = re.compile("[\ud800-\udfff]")
_quote = json.encoder.encode_basestring


class ConstantRenderer:
    """Sends the same JSON for every event."""

    def __init__(self, value: JsonValue) -> None:
        self._rendered = Rendered(write_document(value).encode(), JSON)

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the value as JSON."""
        return self._rendered


class PartRenderer:
    """Sends the value at a path as JSON; a missing value is null or a failure."""

    def __init__(self, path: Path, *, missing_is_error: bool) -> None:
        self._path = path
        self._missing_is_error = missing_is_error

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the value as JSON. Raises TransformFailed if it is missing and `missing_is_error`."""
        value = self._path.find(event.document)
        if value is MISSING:
            if self._missing_is_error:
                raise TransformFailed(f"the event has no {self._path.text}")
            value = None
        return Rendered(write_document(value).encode(), JSON)


class TemplateRenderer:
    """Sends a template with its placeholders filled in; inserted values are not searched for placeholders."""

    def __init__(self, template: Template, sources: dict[str, Path | Any], *, missing_is_error: bool) -> None:
        self._is_json = template.is_json
        self._content_type = media_type_of(template)
        self._constants: dict[tuple[str, PlaceholderContext], str] = {}
        self._pieces: list[str] = []
        self._slots: list[tuple[int, Slot]] = []
        for part in template.parts:
            piece = part if isinstance(part, str) else self._piece(part, sources.get(part.name), missing_is_error)
            self._pieces.append(piece)
        self._fixed = sum(map(len, self._pieces))

    def _piece(self, placeholder: Placeholder, source: Path | Any, missing_is_error: bool) -> str:
        """Return the text of a placeholder if it is the same for every event; else add a slot and return ""."""
        if placeholder.name in _PREDEFINED:
            slot = _predefined_slot(_PREDEFINED[placeholder.name], placeholder.context)
        elif isinstance(source, Path):
            slot = _path_slot(placeholder, source, missing_is_error=missing_is_error)
        else:
            return self._constant(placeholder, source)
        self._slots.append((len(self._pieces), slot))
        return ""

    def _constant(self, placeholder: Placeholder, value: Any) -> str:
        """Return a constant's text, which placeholders with the same name and context share."""
        if value is None:
            return nothing_of(placeholder)
        known = (placeholder.name, placeholder.context)
        if known not in self._constants:
            self._constants[known] = WRITERS[placeholder.context](value)
        return self._constants[known]

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the filled-in template, as JSON if it is JSON, else as text.

        Raises TransformFailed if a required value is missing, if a value cannot be written as text, and as soon as the
        output is known to be too large.
        """
        pieces = self._pieces.copy()
        size = self._fixed
        for index, slot in self._slots:
            pieces[index] = piece = slot(event, scope)
            size += len(piece)
            if size > MAXIMUM_BYTES:
                raise too_large(size)
        text = "".join(pieces)
        try:
            return Rendered(text.encode(), self._content_type)
        except UnicodeEncodeError as error:
            if not self._is_json:
                half = f"U+{ord(text[error.start]):04X}"
                raise TransformFailed(
                    f"a value contains half of a surrogate pair ({half}), which a text cannot contain"
                ) from None
            # Only strings in the JSON can contain the half, and there it can be escaped.
            return Rendered(escape_halves(text).encode(), self._content_type)


def media_type_of(template: Template) -> str:
    """Return the content type of a template's output."""
    return template.content_type or (JSON if template.is_json else TEXT)


def escape_halves(text: str) -> str:
    """Return JSON text with every unpaired surrogate written as an escape."""
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _path_slot(placeholder: Placeholder, path: Path, *, missing_is_error: bool) -> Slot:
    find, write, empty = path.find, WRITERS[placeholder.context], nothing_of(placeholder)
    failure = None
    if missing_is_error and placeholder.default is None:
        failure = f"${{{placeholder.name}}}: the event has no {path.text}"

    def fill(event: Event, scope: Scope) -> str:
        value = find(event.document)
        if value is None:
            return empty
        if value is MISSING:
            if failure is not None:
                raise TransformFailed(failure)
            return empty
        return write(value)

    return fill


def _predefined_slot(find: Callable[[Event, Scope], JsonValue], context: PlaceholderContext) -> Slot:
    write = WRITERS[context]
    return lambda event, scope: write(find(event, scope))


def nothing_of(placeholder: Placeholder) -> str:
    """Return the text that a placeholder gets for null and for a missing value."""
    if placeholder.default is not None:
        return placeholder.default
    return "null" if placeholder.context == "value" else ""


def _as_value(value: Any) -> str:
    return _quote(value) if type(value) is str else value.text if type(value) is Number else write_document(value)


def _as_string_content(value: Any) -> str:
    return _quote(_as_text(value))[1:-1]


def _as_text(value: Any) -> str:
    return value if type(value) is str else value.text if type(value) is Number else write_document(value)


def arrival_text(arrived_at: datetime) -> str:
    """Return an aware time as `eb.ingested_at` shows it: 27 characters, in UTC with microseconds."""
    return arrived_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


#: The function that writes a value other than null, for each context.
WRITERS: Final[dict[PlaceholderContext, Callable[[Any], str]]] = {
    "value": _as_value,
    "string": _as_string_content,
    "xml": lambda value: escape_xml(_as_text(value)),
    "form": lambda value: escape_form(_as_text(value)),
    "text": _as_text,
}
_PREDEFINED: Final[dict[str, Callable[[Event, Scope], JsonValue]]] = {
    "eb.rule": lambda event, scope: scope.rule,
    "eb.bus": lambda event, scope: scope.bus,
    "eb.target": lambda event, scope: scope.target,
    "eb.delivery_id": lambda event, scope: scope.delivery_id,
    "eb.ingested_at": lambda event, scope: arrival_text(scope.ingested_at),
    "eb.event": lambda event, scope: event.document,
}
#: The names that every template may use without defining them.
PREDEFINED: Final = tuple(_PREDEFINED)


def constant_size(template: Template, constants: Mapping[str, Any]) -> int:
    """Return how many characters of a template are the same for every event, without building its text."""
    sizes: dict[tuple[str, PlaceholderContext], int] = {}
    total = 0
    for part in template.parts:
        if isinstance(part, str):
            total += len(part)
        elif constants.get(part.name) is not None:
            known = (part.name, part.context)
            if known not in sizes:
                sizes[known] = len(WRITERS[part.context](constants[part.name]))
            total += sizes[known]
    return total
