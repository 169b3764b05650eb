"""Reads a YAML file into nodes, for `eventbridge.rules.load`.

Anything that YAML parsers read differently, or that JSON cannot express, is reported as an error:
`yes`, `0x1F`, `007`, anchors, tags, keys that are not strings, duplicate keys, line breaks of YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.loader import SafeLoader
from yaml.reader import ReaderError
from yaml.tokens import ScalarToken

from eventbridge.errors import RuleError
from eventbridge.event.json_document import Number
from eventbridge.rules.bounds import (
    MAX_BYTES_FOR_LOCATIONS,
    MAX_IN_PATH,
    MAX_VALUES,
    too_long,
    too_long_path,
    too_many_values,
)
from eventbridge.rules.node import Location, Node, path_of

#: The maximum number of mappings and lists around a value; it limits the recursion that builds the tree.
MAXIMUM_DEPTH: Final = 100
#: Characters that are line breaks in YAML 1.1, which libyaml implements, but not in YAML 1.2.
_DISPUTED_BREAK: Final = re.compile("[\x85\u2028\u2029]")
_SYNTAX_REMEDIES = (
    ("'\\t'", "YAML is indented with spaces: replace the tab"),
    ("mapping values are not allowed", "Put a value that contains ': ' in quotes, and check the indentation"),
    ("<block end>", "Give all fields of a mapping the same indentation"),
    ("could not find expected ':'", "Put ': ' between a key and its value"),
    ("end of stream", "Close the quotes that were opened"),
    ("<stream end>", "Close the bracket that was opened"),
    ("cannot start any token", "Put the value in quotes"),
    ("escape", "Use single quotes, in which a backslash has no special meaning, or write the backslash twice"),
)
_AMBIGUOUS = frozenset(["yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"])
_TRUE, _FALSE = frozenset(("true", "True", "TRUE")), frozenset(("false", "False", "FALSE"))
_SURROGATE = re.compile("[\ud800-\udfff]")
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
# Strings that some parsers of YAML 1.1 or 1.2 read as numbers, whether or not they are numbers in JSON.
_NUMBER_LIKE = re.compile(
    r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.[0-9_]+([eE][-+]?[0-9]+)?)"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    re.ASCII,
)


try:
    from yaml.cyaml import CParser
except ImportError:  # PyYAML was built without libyaml
    CParser = SafeLoader


def read_yaml(content: bytes, file: str, errors: list[RuleError], *, bounded: bool = False) -> Node | None:
    """Return the tree of a file's first document, or None if there is no document or it cannot be parsed.

    Errors, such as a second document, are added to `errors`; `file` is the file's name in messages. If
    `bounded`, the content came with a request, and the limits of `rules.bounds` apply.
    """
    start = Location(file, 1, 1)
    if bounded and (long := too_long(content, file)):
        errors.append(long)
        return None
    text = _text_of(content, file, errors)
    if text is None:
        return None
    try:
        return _tree_of(text, file, errors, bounded=bounded, reports_locations=not bounded or _is_short(content))
    except _TooMany as many:
        errors.append(too_many_values(many.location))
    except _TooLong as long_path:
        errors.append(too_long_path(long_path.location))
    except _TooDeep as deep:
        errors.append(deep.location.error("$", f"values are nested deeper than {MAXIMUM_DEPTH}", "Flatten them"))
    except MarkedYAMLError as error:
        errors.append(_syntax_error(error, file, text))
    except ReaderError as error:
        location = _location_in(file, text[: error.position])
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        errors.append(location.error("$", message, 'Remove it, or escape it within double quotes ("\\u....")'))
    except (ValueError, OverflowError):
        message = "a double-quoted string contains an invalid escape"
        errors.append(start.error("$", message, "Check \\x, \\u and \\U, or use single quotes"))
    except YAMLError as error:
        errors.append(start.error("$", f"the file is not valid YAML: {error}", "Write the file as YAML 1.2"))
    return None


def _is_short(content: bytes) -> bool:
    return len(content) <= MAX_BYTES_FOR_LOCATIONS


def _tree_of(text: str, file: str, errors: list[RuleError], *, bounded: bool, reports_locations: bool) -> Node | None:
    """Return the document's tree. Raises the parser's errors, which have a location if `reports_locations`."""
    tree = _TreeBuilder(file, errors, bounded)
    known = len(errors)
    try:
        return tree.document(_events(CParser(text)))
    except YAMLError:
        if not reports_locations:
            raise
        # PyYAML's pure-Python parser is twenty times slower, but its errors state a location and a cause. If it
        # accepts the text, its tree is returned.
        del errors[known:]
        return tree.document(_events(SafeLoader(text)))


def _text_of(content: bytes, file: str, errors: list[RuleError]) -> str | None:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        location = _location_in(file, error.object[: error.start].decode())
        message = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        errors.append(location.error("$", message, "Save the file as UTF-8"))
        return None
    if found := _DISPUTED_BREAK.search(text):
        location = _location_in(file, text[: found.start()])
        message = f"the character U+{ord(found[0]):04X} is a line break to some YAML parsers and text to others"
        errors.append(location.error("$", message, 'Remove it, or escape it within double quotes ("\\u....")'))
        return None
    return text


def _events(parser: Any) -> Iterator[Event]:
    while (event := parser.get_event()) is not None:
        yield event


class _LimitExceeded(Exception):
    def __init__(self, location: Location) -> None:
        self.location = location


class _TooDeep(_LimitExceeded):
    """A value is nested too deep."""


class _TooMany(_LimitExceeded):
    """The file has too many values."""


class _TooLong(_LimitExceeded):
    """The path of a value is too long."""


@dataclass
class _TreeBuilder:
    """Builds nodes from parse events, which have the locations of keys and show anchors and duplicate keys."""

    file: str
    errors: list[RuleError]
    bounded: bool
    _events: Iterator[Event] = field(init=False)

    def document(self, events: Iterator[Event]) -> Node | None:
        self._events = self._count_events(events) if self.bounded else events
        events = self._events
        top: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                # the location of ---, since libyaml's event begins at the directives above it
                end = event.end_mark
                location = Location(self.file, end.line + 1, max(0, end.column - len("---")) + 1)
                if event.version is not None and tuple(event.version) != (1, 2):
                    self._add(location, "$", "the file declares a YAML version other than 1.2", "Remove the %YAML line")
                if documents > 1:
                    self._add(
                        location,
                        "$",
                        "the file contains a second document",
                        "Remove the --- line, or move the second document to a file of its own",
                    )
                    return top
            elif isinstance(event, NodeEvent):
                location = self._location(event)
                top = self._node(event, "$", location, 0)
        return top

    def _count_events(self, events: Iterator[Event]) -> Iterator[Event]:
        count = 0
        for event in events:
            count += isinstance(event, NodeEvent)
            if count > MAX_VALUES:
                raise _TooMany(self._location(event))
            yield event

    def _node(self, event: NodeEvent, path: str, key: Location, depth: int) -> Node:
        location = self._location(event)
        if depth > MAXIMUM_DEPTH:
            raise _TooDeep(location)
        if self.bounded and len(path) > MAX_IN_PATH:
            raise _TooLong(location)
        if isinstance(event, AliasEvent):
            self._add(location, path, f"the alias *{event.anchor} is not supported", "Write the value out")
            return Node(path, location, key, "", spoilt=True)
        spoilt = self._reject_anchor_and_tag(event, path)
        if isinstance(event, MappingStartEvent):
            known = len(self.errors)
            children = self._mapping(path, depth)
            return Node(path, location, key, children, spoilt=not children and len(self.errors) > known)
        if isinstance(event, SequenceStartEvent):
            return Node(path, location, key, self._sequence(path, depth))
        assert isinstance(event, ScalarEvent)
        value, problem = read_scalar(event.value, quoted=bool(event.style))
        if problem is not None:
            self._add(location, path, *problem)
        # an empty value is reported at its key: the parser gives it the position of the next token, perhaps lines later
        return Node(path, location if event.value else key, key, value, spoilt=spoilt or problem is not None)

    def _reject_anchor_and_tag(self, event: NodeEvent, path: str) -> bool:
        location = self._location(event)
        tag = getattr(event, "tag", None)
        if event.anchor is not None:
            remedy = "Write values out where they are used"
            self._add(location, path, f"the anchor &{event.anchor} is not supported", remedy)
        if tag is not None:
            self._add(
                location,
                path,
                f"the tag {tag} is not supported",
                "Remove it. To mark a value as text, put it in quotes",
            )
        return event.anchor is not None or tag is not None

    def _mapping(self, path: str, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            assert isinstance(event, NodeEvent)
            name = self._key(event, path, depth)
            location = self._location(event)
            child = self._node(self._next_node(), path_of(path, name if name is not None else "?"), location, depth + 1)
            if name is None:
                continue
            if name in children:
                first = children[name].key
                message = f"duplicate key {name!r} in this mapping, first used at {first}"
                self._add(location, child.path, message, "Remove one of them, or merge the two")
                continue
            children[name] = child
        return children

    def _key(self, event: NodeEvent, path: str, depth: int) -> str | None:
        """Return a key; if it is not a string, record an error and return None."""
        location = self._location(event)
        if not isinstance(event, ScalarEvent):
            self._node(event, path, location, depth + 1)  # consumes the events of the key
            self._add(location, path, "a key is a mapping or a list", "Write the key as a string")
            return None
        if not event.style and event.value == "<<":
            self._add(location, path, "merging with << is not supported", "Write the fields out")
            return None
        if self._reject_anchor_and_tag(event, path):
            return None
        value, problem = read_scalar(event.value, quoted=bool(event.style))
        if problem is None and isinstance(value, str):
            return value
        what = (
            f"some YAML parsers do not read the key {event.value!r} as a string" if event.value else "the key is empty"
        )
        self._add(location, path, what, f'Put it in quotes: "{event.value}"')
        return None

    def _sequence(self, path: str, depth: int) -> list[Node]:
        children: list[Node] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            assert isinstance(event, NodeEvent)
            children.append(self._node(event, path_of(path, len(children)), self._location(event), depth + 1))
        return children

    def _next_node(self) -> NodeEvent:
        event = next(self._events)
        assert isinstance(event, NodeEvent)
        return event

    def _location(self, event: Event) -> Location:
        mark = event.start_mark
        return Location(self.file, mark.line + 1, mark.column + 1)

    def _add(self, location: Location, path: str, message: str, remedy: str) -> None:
        self.errors.append(location.error(path, message, remedy))


def _syntax_error(error: MarkedYAMLError, file: str, text: str) -> RuleError:
    mark = error.problem_mark or error.context_mark
    location = Location(file, mark.line + 1, mark.column + 1) if mark is not None else Location(file, 1, 1)
    problem = " ".join(str(error.problem or error.context or "the file is not valid YAML").split())
    begun = error.context_mark
    since = f", {error.context} that begins on line {begun.line + 1}" if begun is not None and begun is not mark else ""
    remedy = _quote_remedy(text, mark) if mark is not None else None
    remedy = remedy or next((remedy for part, remedy in _SYNTAX_REMEDIES if part in problem), "Correct the YAML here")
    return location.error("$", f"invalid YAML: {problem}{since}", remedy)


def _quote_remedy(text: str, mark: Mark) -> str | None:
    """Return the remedy for an error right after a quoted value, or None if the error is elsewhere.

    A value whose closing quote is missing ends at the next quote, often several lines later, and the parser reports
    an error at the text after that quote.
    """
    last = None
    tokens = SafeLoader(text)
    try:
        while tokens.check_token() and tokens.peek_token().start_mark.index < mark.index:
            last = tokens.get_token()
    except YAMLError:
        pass  # the tokens end at the error
    if not isinstance(last, ScalarToken) or last.style not in ("'", '"') or last.end_mark.line != mark.line:
        return None
    if last.start_mark.line < last.end_mark.line:
        begun = last.start_mark.line + 1
        return f"Close the quotes opened on line {begun}: they end at the quote before this position"
    return "Something follows the closing quote: put the whole value in quotes, or escape the quote within it"


def _location_in(file: str, before: str) -> Location:
    """Return the location right after the text `before`."""
    lines = re.split("\r\n|[\r\n]", before)
    return Location(file, len(lines), len(lines[-1]) + 1)


def read_scalar(text: str, *, quoted: bool) -> tuple[str | bool | Number | None, tuple[str, str] | None]:
    """Return a scalar's value, and its error as (message, remedy) or None; a block scalar (| or >) counts as quoted."""
    if _SURROGATE.search(text):
        return text, (
            "the text contains half of a surrogate pair",
            "Write the character itself, or its escape \\U0001....",
        )
    if quoted:
        return text, None
    if text in _NULL:
        return None, None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE, None
    if Number.is_number(text):
        return Number(text), None
    return text, _ambiguity(text)


def _ambiguity(text: str) -> tuple[str, str] | None:
    if text in _AMBIGUOUS:
        truth = "true" if text.lower() in ("yes", "on") else "false"
        return (
            f"{text} without quotes is a boolean to some YAML parsers and text to others",
            f'Write {truth}, or "{text}" if you mean the text',
        )
    if _NUMBER_LIKE.fullmatch(text):
        return (
            f"{text} without quotes is a number to some YAML parsers, but is not written as a JSON number",
            f'Write it in plain decimal digits such as 31 or 0.5, or "{text}" if you mean the text',
        )
    return None
