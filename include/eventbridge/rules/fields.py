"""Reads the fields of one mapping in a rule file, and collects all errors in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from eventbridge.config.quantities import parse_duration, parse_rate, parse_size, write_duration, write_size
from eventbridge.errors import RuleError
from eventbridge.event.json_document import Number
from eventbridge.rules.node import Node
from eventbridge.rules.types import fields_of
from eventbridge.rules.vocabulary import FIELDS
from eventbridge.similar_names import nearest, similar

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
NAME_REMEDY = "Use 1 to 100 letters, digits, dots, underscores and hyphens, a letter or digit first"

_SECRET = re.compile(
    r"passw|secret|token|api[-_]?key|authorization|credential|private[-_]?key|^(login|user(name)?)$", re.I
)


class Fields:
    """The fields of one mapping.

    A reading method records an error and returns the default instead of raising, so that one pass finds all errors.
    `close` records an error for each unknown field.
    """

    def __init__(self, node: Node, errors: list[RuleError], what: str) -> None:
        """`node` is the mapping, and `what` is a key of `vocabulary.FIELDS`, e.g. "a rule"."""
        self.node = node
        self.what = what
        self.complete = True  # whether missing required fields are errors
        self.missing: list[str] = []  # the required fields that are not given
        self._errors = errors
        self._nodes: dict[str, Node] = {}
        if isinstance(node.value, dict):
            self._nodes = node.value
        elif not node.spoilt:
            self.add(
                node, f"{what} must be a mapping of fields, not {node.kind()}", "Write fields as name: value below it"
            )

    def nested(self, name: str, what: str) -> Fields:
        """Return the fields of the mapping that is the value of the field `name`, which must be given."""
        return Fields(self._nodes[name], self._errors, what)

    def given_names(self) -> Iterable[str]:
        """Return the names of the fields that are given."""
        return self._nodes

    def add(self, node: Node, message: str, remedy: str) -> None:
        """Record an error in a value."""
        self._errors.append(node.error(message, remedy))

    def has(self, name: str) -> bool:
        """Return whether a field is given, with any value."""
        return name in self._nodes

    def add_to(self, name: str, message: str, remedy: str) -> None:
        """Record an error in a field's value, or in the mapping if the field is not given."""
        self.add(self._nodes.get(name, self.node), message, remedy)

    def get(self, name: str, *, required: bool = False) -> Node | None:
        """Return a field's value, or None if it is not given, empty or has a recorded error."""
        node = self._nodes.get(name)
        if node is None:
            if required and self.complete and isinstance(self.node.value, dict):
                self.missing.append(name)
                self._errors.append(self.node.error_at_key(f"{self.what} needs the field {name}", f"Add {name}: ..."))
            return None
        if node.value is None and not node.spoilt:
            self.add(node, f"{name} has no value", f"Give it one, or remove {name}")
        return None if node.spoilt or node.value is None else node

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        """Return a field's non-empty string, or `default` if it is not given or wrong."""
        node = self.get(name, required=required)
        if node is None:
            return default
        if not isinstance(node.value, str):
            what = "is a number: put it in quotes" if isinstance(node.value, Number) else f"is {node.kind()}"
            self.add(node, f"{name} must be text, but this {what}", f'Write {name}: "..."')
            return default
        if not node.value.strip():
            self.add(node, f"{name} must not be empty", "Give it a value")
            return default
        return node.value

    def name(self, name: str, default: str = "", *, required: bool = False) -> str:
        """Return a field's name, which consists of letters, digits, dots, underscores and hyphens."""
        text = self.text(name, default, required=required)
        if text == default or NAME.fullmatch(text):
            return text
        shown = "this" if ":" in text else repr(text)  # a connection's URI may contain a password
        self.add(self._nodes[name], f"{shown} is not a valid name for a{'n' * (name == 'owner')} {name}", NAME_REMEDY)
        return default

    def names(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return one or more distinct names."""
        node = self.get(name)
        if node is None:
            return default
        if not isinstance(node.value, list) or not node.value:
            what = node.kind() if node.value else "empty"
            self.add(node, f"{name} must be a list of names, but this is {what}", f"Write {name}: [a, b]")
            return default
        names: list[str] = []
        for child in node.value:
            if not isinstance(child.value, str) or not NAME.fullmatch(child.value):
                self.add(child, f"{_format_value(child)} is not a valid name", NAME_REMEDY)
            elif child.value in names:
                self.add(child, f"{child.value!r} is listed twice", "Remove one")
            else:
                names.append(child.value)
        return tuple(names)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        node = self.get(name)
        if node is not None and not isinstance(node.value, bool):
            message = f"{name} must be true or false, but this is {node.kind()}"
            self.add(node, message, f"Write {name}: true or {name}: false")
            return default
        return default if node is None else node.value

    def whole(self, name: str, default: Any, low: int, high: int) -> Any:
        """Return a whole number from `low` to `high`."""
        node = self.get(name)
        if node is None:
            return default
        value = node.value
        if isinstance(value, Number) and re.fullmatch(r"-?\d{1,15}", value.text) and low <= int(value.text) <= high:
            return int(value.text)
        self.add(
            node,
            f"{name} must be a whole number from {low:,} to {high:,}, not {_format_value(node)}",
            f"Write {name}: {default or low}",
        )
        return default

    def real(self, name: str, default: float, low: float, high: float) -> float:
        """Return a number from `low` to `high`."""
        node = self.get(name)
        if node is None:
            return default
        value = node.value
        if isinstance(value, Number) and Number.from_python(low) <= value <= Number.from_python(high):
            return float(value.text)
        self.add(
            node,
            f"{name} must be a number from {low:g} to {high:g}, not {_format_value(node)}",
            f"Write {name}: {default:g}",
        )
        return default

    def duration(self, name: str, default: Any, low: float, high: float) -> Any:
        """Return a duration from `low` to `high` seconds, in seconds."""
        node = self.get(name)
        if node is None:
            return default
        bounds = f"{write_duration(low) if low else '0s'} to {write_duration(high)}"
        try:
            seconds = parse_duration(node.value) if isinstance(node.value, str) else -1.0
        except ValueError:
            seconds = -1.0
        if low <= seconds <= high:
            return seconds
        example = write_duration(high if default is None else default)
        remedy = f"Write a number and its unit (ms, s, m, h or d), such as {name}: {example}"
        self.add(node, f"{name} must be a duration from {bounds}, not {_format_value(node)}", remedy)
        return default

    def size(self, name: str, default: int, low: int, high: int) -> int:
        """Return a size from `low` to `high` bytes, in bytes."""
        node = self.get(name)
        if node is None:
            return default
        text = node.value.text if isinstance(node.value, Number) else node.value
        try:
            size = parse_size(text) if isinstance(text, str) else -1
        except ValueError:
            size = -1
        if low <= size <= high:
            return size
        message = f"{name} must be a size from {write_size(low)} to {write_size(high)}, not {_format_value(node)}"
        self.add(node, message, f"Write a number and its unit (KiB, MiB or GiB), such as {name}: {write_size(default)}")
        return default

    def rate(self, name: str, of: str = "deliveries") -> float | None:
        """Return a rate such as `200/s` or `10/m` as a number per second, or None if it is not given."""
        node = self.get(name)
        if node is None:
            return None
        try:
            return parse_rate(node.value if isinstance(node.value, str) else "")
        except ValueError:
            message = f"{name} must be a number of {of} per second or minute, not {_format_value(node)}"
            self.add(node, message, f"Write {name}: 200/s or {name}: 10/m")
            return None

    def choice(
        self, name: str, default: Any, choices: Iterable[str], later: Iterable[str] = (), *, required: bool = False
    ) -> Any:
        """Return one of `choices`; for one of `later` the error says that this version does not support it."""
        node = self.get(name, required=required)
        if node is None:
            return default
        allowed = list(choices)
        if node.value in allowed:
            return node.value
        if node.value in list(later):
            self.add(node, f"this version does not support the {name} {node.value}", f"Write {_either(allowed)}")
        else:
            remedy = nearest(str(node.value), allowed) or f"Write {_either(allowed)}"
            self.add(node, f"unknown {name} {_format_value(node)} of {self.what}", remedy)
        return default

    def time(self, name: str, default: Any, words: Iterable[str]) -> Any:
        """Return one of `words`, or a time in ISO 8601 with a time zone."""
        node = self.get(name)
        if node is None or node.value in list(words):
            return default if node is None else node.value
        try:
            time = datetime.fromisoformat(node.value) if isinstance(node.value, str) else None
        except ValueError:
            time = None
        if time is not None and time.tzinfo is not None:
            return time
        what = f"{_format_value(node)} has no time zone" if time is not None else f"{_format_value(node)} is not a time"
        self.add(node, what, f"Write {_either([*words, 'a time such as 2013-01-01T00:00:00Z'])}")
        return default

    def mapping(self, name: str, *, required: bool = False) -> dict[str, Node]:
        """Return a mapping's values by key; an empty dict if the field is not given."""
        node = self.get(name, required=required)
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.add(
                node, f"{name} must be a mapping, but this is {node.kind()}", f"Write name: value pairs below {name}"
            )
            return {}
        return node.value

    def refuse_empty(self, name: str, remedy: str) -> None:
        """Record an error if a field is an empty mapping."""
        if name in self._nodes and self._nodes[name].value == {}:
            self.add(self._nodes[name], f"{name} is empty", remedy)

    def refuse(self, names: Iterable[str], message: str, remedy: str) -> None:
        """Record an error for each given field among `names`; `{}` in `message` is replaced by its name."""
        for name in names:
            if name in self._nodes:
                self._errors.append(self._nodes[name].error_at_key(message.format(name), remedy))

    def close(self, own: Collection[str] = (), passed: Collection[str] = ()) -> None:
        """Record an error for every field that is not in the vocabulary, in `own` or in `passed`."""
        for name, node in self._nodes.items():
            if name not in FIELDS[self.what] and name not in own and name not in passed:
                self._errors.append(node.error_at_key(*self._unknown(name, own)))

    def _unknown(self, name: str, own: Collection[str]) -> tuple[str, str]:
        if is_secret_name(name):
            remedy = "Put it into a connection and name that: connection: <id>"
            return f"{name!r} looks like a secret, and rule files must not contain secrets", remedy
        known = [*FIELDS[self.what], *own]
        if slip := similar(name.lower(), known, cutoff=0.9):
            return f"unknown field {name!r} of {self.what}", f"Did you mean {slip[0]}?"
        owners = [what for what in FIELDS if name in fields_of(what)]
        if owners:
            return f"unknown field {name!r} of {self.what}", f"It belongs to {_either(owners)}"
        return f"unknown field {name!r} of {self.what}", nearest(name, known) or f"Known fields: {', '.join(known)}"


def is_secret_name(name: str) -> bool:
    """Return whether a field or parameter with this name is likely to contain a secret."""
    return _SECRET.search(name) is not None


def _either(words: Iterable[str]) -> str:
    listed = list(words)
    return f"{', '.join(listed[:-1])} or {listed[-1]}" if len(listed) > 1 else listed[0]


def _format_value(node: Node) -> str:
    match node.value:
        case bool():
            return str(node.value).lower()
        case Number():
            return node.value.text[:60]
        case str():
            return repr(node.value) if len(node.value) <= 60 else f"{node.value[:60]!r}..."
        case _:
            return node.kind()
