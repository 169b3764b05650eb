"""Programs of many targets laid out as tables for compiled code, in groups with a limited number of paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.parts import PartPaths, part_paths
from eventbridge.matching.scan.tree import Step
from eventbridge.transform.kernel.program import ARRIVAL, Operation, Program, paths_in

GROUP_PATHS: Final = 256
"""Paths that one group of programs looks at: the parts of 10,000 events then take 33 MB."""

FIELDS: Final = 8
"""Numbers per operation: code, place, text's start and length, missing's start and length, part, failure (0: none)."""

_CODE: Final = 0
_PART: Final = 6


class Group(NamedTuple):
    """The programs of targets number `first` to `last` (excluded).

    The operations of target t are rows `first_operation[t - first]` up to the next one's.
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
    """Return the programs in groups, in their order, and the failures: what an operation's failure n + 1 says."""
    # Targets of many rules do the same: what is the same is laid out once, and copied.
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
    """Return the rows of one program; puts what it writes behind `texts`, new failures behind `failures`."""
    rows = []
    for each in operations:
        failure = 0 if each.failure is None else failures.setdefault(each.failure, len(failures)) + 1
        part = -1 if each.path is None else paths[each.path]
        text = len(texts)
        texts += each.text + each.missing
        missing = text + len(each.text)
        rows.append([each.code, each.place, text, len(each.text), missing, len(each.missing), part, failure])
    return np.array(rows, np.int64).reshape(len(rows), FIELDS)
