"""Compiles patterns to tables: a primitive test becomes an atom, a branch a bit, and a path gets its look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.branches import NO_ANCHOR, Branch, NumberedBranch, OrderedBranch, order_branches
from eventbridge.matching.kernel.classes import summarise
from eventbridge.matching.kernel.conditions import Conditions, LeafListEffect
from eventbridge.matching.kernel.entries import power_of_two, put_entries
from eventbridge.matching.kernel.lines import put_lines
from eventbridge.matching.kernel.texts import put_texts
from eventbridge.matching.pattern.nodes import Path
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.words import VECTOR_WORDS

CLASS_BYTES: Final = 64 << 20
"""The maximum bytes for the rows of classes; there is room for at least as many rows as a rule set has fixed ones."""

MAXIMUM_ROWS: Final = 65_536
"""The maximum number of rows of classes; `CLASS_BYTES` allows fewer if the rows are long."""

KEY_INTEGERS: Final = 1 << 20
"""The number of integers for the keys of all classes: 4 MiB, 16 for each of MAXIMUM_ROWS rows."""

MEMORY_ENTRIES: Final = 4096
"""The number of short values cached with their class, a power of two: 256 KiB, as more would exceed the CPU's cache."""

FEW_PATHS: Final = 128
"""The maximum number of paths at which an event's AND goes over all columns; with more paths, branches have anchors.

Measured: both cost the same at about 150 paths, and at 5,000 paths anchors are 200 times as fast.
"""

_Integers: TypeAlias = npt.NDArray[np.int64]


class Program(NamedTuple):
    """A compiled rule set: its tables, its paths, and each path's regular expressions with their atoms."""

    tables: t.Tables
    paths: list[Path]
    regexes: dict[int, list[tuple[str, int]]]


def compile_program(branches: Sequence[Sequence[Branch]], class_rows: int, few_paths: int) -> Program:
    """Return the program of a rule set, given the branches of each rule; a rule's number is its position."""
    numbered_branches = [NumberedBranch(rule, branch) for rule, listed in enumerate(branches) for branch in listed]
    numbered: dict[Path, int] = {}
    for _, branch in numbered_branches:
        for effect in branch.effects:
            numbered.setdefault(effect.path, len(numbered))
    anchored = len(numbered) > few_paths
    return _Compiler(order_branches(numbered_branches, anchored=anchored), numbered, anchored, class_rows).compile()


class _Fields(NamedTuple):
    """All leaf lists of all branches, in the order of their branches' bits: one array for each property."""

    bit: _Integers
    path: _Integers
    offset: _Integers  # the list's position among those of its branch at the same path
    can_be_absent: npt.NDArray[np.bool_]
    present: npt.NDArray[np.bool_]
    anchor: npt.NDArray[np.bool_]


class _Compiler:
    def __init__(self, branches: list[OrderedBranch], paths: dict[Path, int], anchored: bool, class_rows: int) -> None:
        self.branches = branches
        self.paths = paths
        self.anchored = anchored
        self.class_rows = class_rows
        self.words = max(1, -(-len(branches) // 64))
        self.summary_words = -(-self.words // 64)
        self.stride = self.summary_words + self.words
        self.tables = t.Tables()
        self.conditions = Conditions(len(paths))

    def compile(self) -> Program:
        fields = self._add_branches()
        tables = self.tables
        tables.put_number(t.WORDS, self.words)
        tables.put_number(t.SUMMARY_WORDS, self.summary_words)
        tables.put_number(t.STRIDE, self.stride)
        tables.put_number(t.PATHS, len(self.paths))
        tables.put_number(t.ANCHORED, int(self.anchored))
        conditions, paths = self.conditions, len(self.paths)
        conditions.put(tables)
        put_entries(tables, conditions)
        put_lines(tables, paths, conditions.numbers, conditions.blocks)
        put_texts(tables, paths, conditions.texts)
        self._put_branches(fields)
        self._put_columns(fields)
        regexes = conditions.regexes
        longest = 16 + len(conditions.texts) + sum(map(len, regexes.values()))
        tables.put(t.KEY, np.empty(longest, np.int32))
        tables.put(t.ATOMS, np.empty(len(conditions.atom_bits) + longest, np.int32))
        return Program(tables, list(self.paths), regexes)

    def _add_branches(self) -> _Fields:
        rows: list[int] = []
        positions: dict[LeafListEffect, list[int]] = {}
        stride_bits = self.stride * 64
        for bit, (_, branch, anchor) in enumerate(self.branches):
            seen: dict[int, int] = {}
            for number, effect in enumerate(branch.effects):
                path = self.paths[effect.path]
                offset = seen.get(path, 0)
                seen[path] = offset + 1
                rows += (bit, path, offset, effect.can_be_absent, effect.present, number == anchor)
                positions.setdefault(effect, []).append(offset * stride_bits + bit)
        for effect, found in positions.items():
            self.conditions.add(effect, self.paths[effect.path], found)
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return _Fields(columns[0], columns[1], columns[2], columns[3] != 0, columns[4] != 0, columns[5] != 0)

    def _put_branches(self, fields: _Fields) -> None:
        tables, count = self.tables, len(self.branches)
        rules = np.zeros(self.words * 64, np.int32)
        rules[:count] = [rule for rule, _, _ in self.branches]
        branches_of_rule = np.bincount(rules[:count])
        wanting = np.bincount(fields.bit[~fields.can_be_absent], minlength=count)
        flags = np.zeros(self.words * 64, np.uint8)
        for bit, (rule, branch, anchor) in enumerate(self.branches):
            if branches_of_rule[rule] == 1 and not branch.uncertain and not branch.negative:
                flags[bit] |= t.BRANCH_SIMPLE
            flags[bit] |= t.BRANCH_NEGATIVE if branch.negative else 0
            flags[bit] |= t.BRANCH_UNCERTAIN if branch.uncertain else 0
            flags[bit] |= t.BRANCH_MAY_CONFLICT if branch.may_conflict else 0
            flags[bit] |= t.BRANCH_WANTS_MORE if anchor != NO_ANCHOR and wanting[bit] > 1 else 0
        tables.put(t.BRANCH_FLAGS, flags)
        tables.put(t.BRANCH_RULE, rules)
        tables.put(t.BRANCH_FIELDS_FIRST, np.searchsorted(fields.bit, np.arange(count + 1)).astype(np.int32))
        tables.put(t.FIELD_PATH, fields.path.astype(np.int32))
        tables.put(t.FIELD_OFFSET, fields.offset.astype(np.int32))
        tables.put(t.FIELD_MAY_BE_ABSENT, fields.can_be_absent.astype(np.uint8))

    def _put_columns(self, fields: _Fields) -> None:
        """Build the columns of all paths, and the fixed rows."""
        tables, paths = self.tables, len(self.paths)
        widths = np.zeros(paths + 1, np.int64)
        np.maximum.at(widths, fields.path, fields.offset + 1)
        first_column = np.cumsum(widths) - widths
        column = first_column[fields.path] + fields.offset
        columns = int(widths.sum())
        without_list = len(self.branches) - np.bincount(column, minlength=columns)
        paths_of = np.repeat(np.arange(paths + 1), widths)
        order = np.lexsort((paths_of, without_list))  # most selective first: the fewest branches without a leaf list
        tables.put_number(t.COLUMNS, columns)
        tables.put(t.COLUMN_PATH, paths_of[order].astype(np.int32))
        tables.put(t.COLUMN_OFFSET, (np.arange(columns) - first_column[paths_of])[order].astype(np.int32))
        tables.put(t.PATH_WIDTH, widths.astype(np.int32))
        tables.put(t.PATH_COLUMN, first_column.astype(np.int32))
        taken_away = ~fields.present
        taken = (t.TAKEN_FIRST, t.TAKEN_WORD, t.TAKEN_BITS)
        anchors = (t.ANCHORS_FIRST, t.ANCHORS_WORD, t.ANCHORS_BITS)
        self._put_words(taken, column[taken_away], fields.bit[taken_away], columns)
        self._put_words(anchors, column[fields.anchor], fields.bit[fields.anchor], columns)
        self._put_fixed_rows(fields, column, widths)

    def _put_words(self, names: tuple[int, int, int], column: _Integers, bit: _Integers, columns: int) -> None:
        """Build tables of one set of bits per column: where its words begin, and the number and bits of each not 0."""
        first, word, bits = names
        position = column * self.words + (bit >> 6)
        order = np.argsort(position, kind="stable")
        position, masks = position[order], np.uint64(1) << (bit[order] & 63).astype(np.uint64)
        begins = np.flatnonzero(np.diff(position, prepend=-1))
        kept = position[begins]
        self.tables.put(first, np.searchsorted(kept, np.arange(columns + 1) * self.words).astype(np.int32))
        self.tables.put(word, (kept % self.words).astype(np.int32))
        self.tables.put(bits, np.bitwise_or.reduceat(masks, begins) if len(begins) else masks)

    def _put_fixed_rows(self, fields: _Fields, column: _Integers, widths: _Integers) -> None:
        tables, count, first = self.tables, len(self.branches), 0
        free = np.ones(count, np.bool_)
        free[fields.bit[fields.anchor]] = False
        fixed = [self._row(np.ones(count, np.bool_)), self._row(free)]
        wanting = ~fields.can_be_absent
        conflicting = np.array([branch.may_conflict for _, branch, _ in self.branches], np.bool_)
        lacking_somewhere = fields.can_be_absent & conflicting[fields.bit]
        absent, lacking = [], []
        by_column = np.argsort(column, kind="stable")
        ends = np.searchsorted(column[by_column], np.arange(int(widths.sum()) + 1))
        for width in widths.tolist():
            of_columns = [by_column[ends[number] : ends[number + 1]] for number in range(first, first + width)]
            first += width
            absent.append(0 if self.anchored else len(fixed))
            if not self.anchored:
                for listed in of_columns:
                    without = np.ones(count, np.bool_)
                    without[fields.bit[listed[wanting[listed]]]] = False
                    fixed.append(self._row(without))
            lacking.append(-1)
            if any(lacking_somewhere[listed].any() for listed in of_columns):
                lacking[-1] = len(fixed)
                for listed in of_columns:
                    lacks = np.zeros(count, np.bool_)
                    lacks[fields.bit[listed[lacking_somewhere[listed]]]] = True
                    fixed.append(self._row(lacks))
        tables.put(t.PATH_ABSENT, np.array(absent, np.int32))
        tables.put(t.PATH_LACKING, np.array(lacking, np.int32))
        self._put_classes(fixed)

    def _row(self, bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        """Return a row of bits that begins with room for its summary."""
        row = np.zeros(self.stride, np.uint64)
        packed = np.packbits(bits, bitorder="little")
        row[self.summary_words :].view(np.uint8)[: len(packed)] = packed
        return row

    def _put_classes(self, fixed: list[npt.NDArray[np.uint64]]) -> None:
        tables, stride = self.tables, self.stride
        capacity = len(fixed) + max(len(fixed), min(self.class_rows, CLASS_BYTES // (8 * stride)))
        # The operating system allocates a page of memory when it is first written, so unused rows cost nothing.
        rows = np.empty(capacity * stride + VECTOR_WORDS, np.uint64)  # the AND reads that far beyond the last row
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
