"""The operation `flatten`: moves the members of nested objects into the outer object under joined names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eventbridge.errors import TransformFailed
from eventbridge.event.json_document import JsonValue, type_name
from eventbridge.transform.rendered import MAXIMUM_BYTES, too_large


@dataclass(frozen=True, slots=True)
class Flatten:
    """Joins names by `delimiter`; objects more than `depth` levels down stay objects (None: there are none)."""

    delimiter: str
    depth: int | None

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return the flat object; lists and empty objects stay as they are, members keep their order.

        {"a": {"b": {"c": 1}}} becomes {"a.b.c": 1}, with depth 1 {"a.b": {"c": 1}}.
        TransformFailed if it is not an object, or if two members would have one name.
        """
        if not isinstance(value, dict):
            raise TransformFailed(f"it is {type_name(value)}, and only an object can be flattened")
        flat: dict[str, JsonValue] = {}
        size = 0
        for name, inner in self._members(value, "", self.depth):
            size += len(name)
            if size > MAXIMUM_BYTES:
                raise too_large(size)
            if name in flat:
                raise TransformFailed(f"two of its members would be named {name!r}")
            flat[name] = inner
        return flat

    def _members(self, value: dict[str, JsonValue], prefix: str, depth: int | None) -> Iterator[tuple[str, JsonValue]]:
        for name, inner in value.items():
            if isinstance(inner, dict) and inner and depth != 0:
                below = None if depth is None else depth - 1
                yield from self._members(inner, f"{prefix}{name}{self.delimiter}", below)
            else:
                yield prefix + name, inner
