"""Translates a transform into a list of operations for compiled code, once per (rule, target)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from eventbridge.event.json_document import as_json_value, write_document
from eventbridge.matching.scan.parts import PartPaths, part_paths
from eventbridge.matching.scan.tree import Step
from eventbridge.transform.fill import JSON, WRITERS, escape_halves, media_type_of, nothing_of
from eventbridge.transform.jsonpath import Path, parse_path, sources
from eventbridge.transform.original import STRUCTURED
from eventbridge.transform.template import Placeholder, PlaceholderContext, parse_template

# The kinds of operations.
LITERAL: Final = 0  # write `text`
PART: Final = 1  # write the part at `path`; `text` if it is null, `missing` if it does not exist
BODY: Final = 2  # write the event's own bytes
DELIVERY_ID: Final = 3
ARRIVAL: Final = 4
ABSENT: Final = 5  # hand back if the part at `path` exists
JSON_TYPE: Final = 6  # hand back if the part at `path` exists, is not null, and is not the text `text`
HAND_BACK: Final = 7
PRESENT: Final = 8  # hand back if the part at `path` does not exist

#: The contexts that compiled code writes, by their numbers; Python renders templates with others.
CONTEXTS: Final[dict[PlaceholderContext, int]] = {"value": 0, "string": 1, "text": 2}


class Operation(NamedTuple):
    """One step of a program; `failure` is why a delivery without the part fails, or None if it does not fail."""

    code: int
    text: bytes = b""
    path: tuple[Step, ...] | None = None
    context: int = 0
    missing: bytes = b""
    failure: str | None = None


@dataclass(frozen=True)
class Program:
    """The operations that write a payload, in order, and its media type."""

    operations: tuple[Operation, ...]
    content_type: str


def paths_in(operations: Sequence[Operation]) -> list[tuple[Step, ...]]:
    """Return the distinct paths that operations use."""
    return list(dict.fromkeys(each.path for each in operations if each.path is not None))


class _Definition(Protocol):
    @property
    def form(self) -> str: ...
    @property
    def value(self) -> object: ...
    @property
    def template(self) -> str | None: ...
    @property
    def missing(self) -> str | None: ...
    @property
    def content_type(self) -> str | None: ...


#: The program that hands every delivery back to the Python renderer.
BY_RENDERER: Final = Program((Operation(HAND_BACK),), "")


def compile_program(transform: _Definition, content_mode: str, rule: str, bus: str, target: str) -> Program:
    """Return the program of a transform, which must have no errors, or `BY_RENDERER` if it cannot be compiled."""
    missing_is_error = transform.missing == "error"
    match transform.form, content_mode:
        case "ORIGINAL", "structured":
            return Program((Operation(BODY),), STRUCTURED)
        case "ORIGINAL", "data":
            return _data()
        case "CONSTANT", _:
            return Program((Operation(LITERAL, write_document(as_json_value(transform.value)).encode()),), JSON)
        case "JSONPATH", _:
            return _part(parse_path(str(transform.value)), missing_is_error)
        case "TEMPLATE", _:
            template, _ = parse_template(transform.template or "", content_type=transform.content_type)
            if any(each.context not in CONTEXTS for each in template.placeholders()):
                return BY_RENDERER
            names = sources(transform.value)[0]
            own = {"eb.rule": rule, "eb.bus": bus, "eb.target": target}
            filled = _TemplateOperations(names, own, missing_is_error)
            try:
                operations = [each for part in template.parts for each in filled.operations(part, template.is_json)]
            except UnicodeEncodeError:  # an unpaired surrogate in text, with which every delivery fails
                return BY_RENDERER
            return Program(_join_literals(operations), media_type_of(template))
    return BY_RENDERER


def _data() -> Program:
    """Return the program that writes the data of events whose `datacontenttype` is JSON, null or missing."""
    data, base64, media_type = ("data",), ("data_base64",), ("datacontenttype",)
    is_plain = (
        Operation(ABSENT, path=base64),
        Operation(PRESENT, path=data),
        Operation(JSON_TYPE, JSON.encode(), media_type),
    )
    return Program((*is_plain, Operation(PART, b"null", data, CONTEXTS["value"])), JSON)


def _part(path: Path, missing_is_error: bool) -> Program:
    failure = f"the event has no {path.text}" if missing_is_error else None
    return Program((Operation(PART, b"null", path.steps, CONTEXTS["value"], b"null", failure),), JSON)


class _TemplateOperations:
    def __init__(self, names: dict[str, Path | Any], own: dict[str, str], missing_is_error: bool) -> None:
        self._names = names
        self._own = own
        self._missing_is_error = missing_is_error

    def operations(self, part: str | Placeholder, is_json: bool) -> Iterator[Operation]:
        """Yield the operations that write one part of a template."""
        if isinstance(part, str):
            yield _literal(part, is_json)
        elif part.name in ("eb.delivery_id", "eb.ingested_at"):
            # Both are ASCII text that needs no escapes.
            quote = _literal('"' if part.context == "value" else "", is_json)
            yield from (quote, Operation(DELIVERY_ID if part.name == "eb.delivery_id" else ARRIVAL), quote)
        elif part.name == "eb.event":
            yield Operation(PART, path=(), context=CONTEXTS[part.context])
        else:
            source = self._own.get(part.name, self._names.get(part.name))
            yield self._source_operation(part, source, is_json)

    def _source_operation(self, part: Placeholder, source: Path | Any, is_json: bool) -> Operation:
        nothing = _literal(nothing_of(part), is_json).text
        if isinstance(source, Path):
            failure = None
            if self._missing_is_error and part.default is None:
                failure = f"${{{part.name}}}: the event has no {source.text}"
            return Operation(PART, nothing, source.steps, CONTEXTS[part.context], nothing, failure)
        return Operation(LITERAL, nothing) if source is None else _literal(WRITERS[part.context](source), is_json)


def _literal(text: str, is_json: bool) -> Operation:
    return Operation(LITERAL, (escape_halves(text) if is_json else text).encode())


def _join_literals(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations with consecutive literals joined and empty ones dropped."""
    joined: list[Operation] = []
    for is_literal, run in groupby(operations, lambda each: each.code == LITERAL):
        if not is_literal:
            joined += run
        elif text := b"".join(each.text for each in run):
            joined.append(Operation(LITERAL, text))
    return tuple(joined)


GROUP_PATHS: Final = 256
"""The maximum number of paths in one group of programs, at which the parts of 10,000 events take 33 MB."""

FIELDS: Final = 8
"""The numbers of an operation: code, context, start and length of `text` and `missing`, part, failure (0 if none)."""

_CODE: Final = 0
_PART: Final = 6


class Group(NamedTuple):
    """The programs of targets number `first` to `last` (excluded).

    The operations of target t are the rows from `first_operation[t - first]` to `first_operation[t - first + 1]`
    (excluded).
    """

    first: int
    last: int
    operations: npt.NDArray[np.int64]
    first_operation: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint8]
    paths: PartPaths
    has_paths: npt.NDArray[np.bool_]  # per target
    has_arrival: bool


def groups_of(programs: Sequence[Program]) -> tuple[list[Group], list[str]]:
    """Return the programs in groups, in order, and the failures; an operation refers to failure number n as n + 1."""
    # Targets of many rules have equal programs; the rows of each distinct program are built once and copied.
    kinds: dict[tuple[Operation, ...], int] = {}
    kind_of = [kinds.setdefault(program.operations, len(kinds)) for program in programs]
    paths_of = [paths_in(operations) for operations in kinds]
    failures: dict[str, int] = {}
    groups: list[Group] = []
    first = 0
    while first < len(programs):
        paths: dict[tuple[Step, ...], int] = {}
        last = first
        while last < len(programs):
            new = [path for path in paths_of[kind_of[last]] if path not in paths]
            if last > first and len(paths) + len(new) > GROUP_PATHS:
                break
            for path in new:
                paths[path] = len(paths)
            last += 1
        groups.append(_group(first, kind_of[first:last], list(kinds), paths, failures))
        first = last
    return groups, list(failures)


def _group(
    first: int,
    kind_of: Sequence[int],
    kinds: Sequence[tuple[Operation, ...]],
    paths: dict[tuple[Step, ...], int],
    failures: dict[str, int],
) -> Group:
    texts = bytearray()
    rows_of = {kind: _rows(kinds[kind], texts, paths, failures) for kind in dict.fromkeys(kind_of)}
    operations = np.concatenate([rows_of[kind] for kind in kind_of])
    looks = {kind: bool((rows[:, _PART] >= 0).any()) for kind, rows in rows_of.items()}
    return Group(
        first,
        first + len(kind_of),
        operations,
        np.cumsum([0, *(len(rows_of[kind]) for kind in kind_of)], dtype=np.int64),
        np.frombuffer(bytes(texts) + bytes(64), np.uint8),
        part_paths(list(paths)),
        np.array([looks[kind] for kind in kind_of], np.bool_),
        bool((operations[:, _CODE] == ARRIVAL).any()),
    )


def _rows(
    operations: Sequence[Operation], texts: bytearray, paths: dict[tuple[Step, ...], int], failures: dict[str, int]
) -> npt.NDArray[np.int64]:
    """Return the rows of one program; append its texts to `texts` and new failures to `failures`."""
    rows = []
    for each in operations:
        failure = 0 if each.failure is None else failures.setdefault(each.failure, len(failures)) + 1
        part = -1 if each.path is None else paths[each.path]
        text = len(texts)
        texts += each.text + each.missing
        missing = text + len(each.text)
        rows.append([each.code, each.context, text, len(each.text), missing, len(each.missing), part, failure])
    return np.array(rows, np.int64).reshape(len(rows), FIELDS)
