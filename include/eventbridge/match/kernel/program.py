"""From patterns to tables: every primitive test becomes an atom, every branch a bit, every path its look-ups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventbridge.match.kernel import tables as t
from eventbridge.match.kernel.branches import Branch, branches_of
from eventbridge.match.kernel.classes import summarise
from eventbridge.match.kernel.conditions import Conditions
from eventbridge.match.kernel.entry_tables import power_of_two, put_entries
from eventbridge.match.kernel.line_tables import put_lines
from eventbridge.match.kernel.order import clustered
from eventbridge.match.kernel.text_tables import put_texts
from eventbridge.pattern.nodes import (
    Path,
    Pattern,
)
from eventbridge.scan.compiled import compiled
from eventbridge.scan.memory import address_of

CLASS_BYTES: Final = 64 << 20
"""Memory for the rows of classes; a rule set whose fixed rows alone need more gets room for as many again."""

MAXIMUM_ROWS: Final = 65_536
"""Rows of classes that are kept, if a rule set's rows are no longer than `CLASS_BYTES` allows."""

KEY_INTEGERS: Final = 1 << 20

MEMORY_ENTRIES: Final = 4096
"""Short values remembered with their class; a power of two. 256 KiB: more would not stay in the processor's cache."""


class Program(NamedTuple):
    """A rule set compiled: its tables, the paths it wants, and per path the regular expressions with their atoms."""

    tables: t.Tables
    paths: list[Path]
    regexes: dict[int, list[tuple[str, int]]]
    rules: int
    longest_key: int


def compile_program(patterns: Sequence[Pattern], class_rows: int = MAXIMUM_ROWS) -> Program:
    """Return the program of a rule set; a rule's number is its place in `patterns`."""
    branches = [branch for rule, pattern in enumerate(patterns) for branch in branches_of(pattern, rule)]
    return _Compiler(clustered(branches), len(patterns), class_rows).compile()


class _Compiler:
    def __init__(self, branches: list[Branch], rules: int, class_rows: int) -> None:
        self.branches = branches
        self.rules = rules
        self.class_rows = class_rows
        self.words = max(1, -(-len(branches) // 64))
        self.summary_words = -(-self.words // 64)
        self.stride = self.summary_words + self.words
        self.tables = t.Tables()
        self.conditions = Conditions()
        self.paths: dict[Path, int] = {}
        self.columns: list[list[dict[int, bool]]] = []  # path, column: of each branch with a field, if it may be absent
        self.places: list[list[tuple[int, int, bool]]] = []  # branch, field: path, column, whether it may be absent

    def compile(self) -> Program:
        for bit, branch in enumerate(self.branches):
            self._add_branch(bit, branch)
        tables = self.tables
        tables.put_number(t.WORDS, self.words)
        tables.put_number(t.SUMMARY_WORDS, self.summary_words)
        tables.put_number(t.STRIDE, self.stride)
        tables.put_number(t.PATHS, len(self.paths))
        conditions, paths = self.conditions, len(self.paths)
        conditions.put(tables, paths)
        put_entries(tables, paths, conditions)
        put_lines(tables, paths, conditions.numbers, conditions.blocks)
        put_texts(tables, paths, conditions.texts)
        self._put_branches()
        self._put_rows()
        longest = 16 + len(conditions.texts) + sum(map(len, conditions.regexes.values()))
        tables.put(t.KEY, np.empty(longest, np.int32))
        tables.put(t.ATOMS, np.empty(len(conditions.atoms) + longest, np.int32))
        return Program(tables, list(self.paths), dict(conditions.regexes), self.rules, longest)

    def _add_branch(self, bit: int, branch: Branch) -> None:
        seen: dict[int, int] = {}
        places: list[tuple[int, int, bool]] = []
        self.places.append(places)
        for field in branch.fields:
            path = self.paths.setdefault(field.path, len(self.paths))
            if path == len(self.columns):
                self.columns.append([])
            column = seen.get(path, 0)
            seen[path] = column + 1
            if column == len(self.columns[path]):
                self.columns[path].append({})
            may_be_absent = field.may_be_absent
            self.columns[path][column][bit] = may_be_absent
            places.append((path, column, may_be_absent))
            place = column * self.stride * 64 + bit
            self.conditions.add(field, path, place, bit)

    def _put_branches(self) -> None:
        tables = self.tables
        of_rule: defaultdict[int, int] = defaultdict(int)
        for branch in self.branches:
            of_rule[branch.rule] += 1
        flags = np.zeros(self.words * 64, np.uint8)
        for bit, branch in enumerate(self.branches):
            uncertain = branch.uncertain or bit in self.conditions.uncertain
            if of_rule[branch.rule] == 1 and not uncertain and not branch.negative:
                flags[bit] |= t.BRANCH_SIMPLE
            flags[bit] |= t.BRANCH_NEGATIVE if branch.negative else 0
            flags[bit] |= t.BRANCH_UNCERTAIN if uncertain else 0
            flags[bit] |= t.BRANCH_MAY_CONFLICT if branch.may_conflict else 0
        tables.put(t.BRANCH_FLAGS, flags)
        rules = np.zeros(self.words * 64, np.int32)
        rules[: len(self.branches)] = [branch.rule for branch in self.branches]
        tables.put(t.BRANCH_RULE, rules)
        places = self.places
        tables.put_lists(t.BRANCH_FIELDS_FIRST, t.FIELD_PATH, [[path for path, _, _ in one] for one in places])
        tables.put(t.FIELD_OFFSET, np.array([offset for one in places for _, offset, _ in one], np.int32))
        tables.put(t.FIELD_MAY_BE_ABSENT, np.array([absent for one in places for _, _, absent in one], np.uint8))

    def _put_rows(self) -> None:
        """Lay out the rows that are there from the start, and room for the classes to come."""
        tables = self.tables
        bits, stride_bits = self.words * 64, self.stride * 64
        everyone = np.zeros(bits, np.bool_)
        everyone[: len(self.branches)] = True
        widths = [len(columns) for columns in self.columns]
        fixed = [self._row(everyone)]
        base: list[npt.NDArray[np.uint64]] = []
        first_base, absent, lacking, selectivity = [], [], [], []
        for path, columns in enumerate(self.columns):
            first_base.append(len(base))
            of_absent, of_lacking = [], []
            for column, fields in enumerate(columns):
                row = everyone.copy()
                row[list(fields)] = False
                selectivity.append((int(row.sum()), path, column))
                absent_bits = [bit for bit, may_be_absent in fields.items() if may_be_absent]
                without = row.copy()
                without[absent_bits] = True
                lacks = np.zeros(bits, np.bool_)
                lacks[[bit for bit in absent_bits if self.branches[bit].may_conflict]] = True
                row[
                    [place % stride_bits for place in self.conditions.present[path] if place // stride_bits == column]
                ] = True
                base.append(self._row(row))
                of_absent.append(self._row(without))
                of_lacking.append(lacks)
            absent.append(len(fixed))
            fixed += of_absent
            lacking.append(len(fixed) if any(row.any() for row in of_lacking) else -1)
            if lacking[-1] >= 0:
                fixed += [self._row(row) for row in of_lacking]
        selectivity.sort()
        tables.put_number(t.COLUMNS, len(selectivity))
        tables.put(t.COLUMN_PATH, np.array([path for _, path, _ in selectivity], np.int32))
        tables.put(t.COLUMN_OFFSET, np.array([column for _, _, column in selectivity], np.int32))
        tables.put(t.PATH_WIDTH, np.array([*widths, 0], np.int32))
        tables.put(t.PATH_BASE, np.array([*first_base, 0], np.int32))
        tables.put(t.PATH_ABSENT, np.array([*absent, 0], np.int32))
        tables.put(t.PATH_LACKING, np.array([*lacking, 0], np.int32))
        tables.put(t.BASE_ROWS, np.concatenate([*base, np.zeros(1, np.uint64)]))
        self._put_classes(fixed)

    def _row(self, bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        """Return a row with room for its summary in front."""
        row = np.zeros(self.stride, np.uint64)
        row[self.summary_words :] = np.packbits(bits, bitorder="little").view(np.uint64)
        return row

    def _put_classes(self, fixed: list[npt.NDArray[np.uint64]]) -> None:
        tables, stride = self.tables, self.stride
        capacity = len(fixed) + max(len(fixed), min(self.class_rows, CLASS_BYTES // (8 * stride)))
        # The system gives memory page by page as it is written: what no class uses costs nothing.
        rows = np.empty(capacity * stride, np.uint64)
        rows[: len(fixed) * stride] = np.concatenate(fixed)
        _summarise_all(address_of(rows), self.words, self.summary_words, len(fixed))
        slots = np.zeros(power_of_two(2 * capacity), np.int32)
        tables.put(t.ROWS, rows)
        tables.put_number(t.CLASS_CAPACITY, capacity)
        tables.put_number(t.CLASS_SLOT_MASK, len(slots) - 1)
        tables.put(t.CLASS_SLOTS, slots)
        tables.put(t.CLASS_KEY_FIRST, np.zeros(capacity + 1, np.int32))
        tables.put(t.CLASS_ROW, np.zeros(capacity, np.int32))
        tables.put(t.CLASS_KEYS, np.empty(KEY_INTEGERS, np.int32))
        tables.put_number(t.CLASS_KEYS_CAPACITY, KEY_INTEGERS)
        counters = np.zeros(8, np.int64)
        counters[t.COUNTER_ROWS] = counters[t.COUNTER_FIXED_ROWS] = len(fixed)
        tables.put(t.COUNTERS, counters)
        tables.put_number(t.MEMORY_MASK, MEMORY_ENTRIES - 1)
        tables.put(t.MEMORY, np.zeros(MEMORY_ENTRIES * t.MEMORY_WORDS, np.uint64))
        tables.put(t.MEMORY_SCORE, np.zeros(len(self.paths) + 1, np.int32))


@compiled
def _summarise_all(rows: int, words: int, summary_words: int, count: int) -> None:
    for row in range(count):
        start = rows + 8 * row * (words + summary_words)
        summarise(start + 8 * summary_words, words, start)
