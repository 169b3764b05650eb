"""The conditions of a rule set as atoms (one primitive test at one path) and their effects on bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from eventbridge.event.json_document import Number
from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.effects import Conjunction, Denial, LeafListEffect, Name
from eventbridge.matching.pattern.address import Block


class Conditions:
    """All conditions, entered leaf list by leaf list; equal ones are kept once.

    A *place* is a bit in the rows of a path: column x bits from one row to the next + branch. `denials` are
    `anything-but`s by the atoms that break them, `conjunctions` are `all`s by their atoms and denials.
    """

    def __init__(self, paths: int) -> None:
        self.by_path: list[dict[Name, int]] = [{} for _ in range(paths)]  # each path's atoms by name
        self.atom_bits: list[list[int]] = []
        self.atom_denials: list[list[int]] = []
        self.atom_conjunctions: list[list[int]] = []
        self.denials: dict[tuple[int, Denial], int] = {}
        self.denial_bits: list[list[int]] = []
        self.conjunctions: dict[tuple[int, Conjunction], int] = {}
        self.conjunction_bits: list[list[int]] = []

    def add(self, effect: LeafListEffect, path: int, places: Sequence[int]) -> None:
        """Enter a leaf list: what sets its bits, one place for each branch that has it."""
        for name in effect.atoms:
            self.atom_bits[self._atom(path, name)] += places
        for denial in effect.denials:
            self.denial_bits[self._denial(path, denial)] += places
        for conjunction in effect.conjunctions:
            self.conjunction_bits[self._conjunction(path, conjunction)] += places

    def _atom(self, path: int, name: Name) -> int:
        atom = self.by_path[path].setdefault(name, len(self.atom_bits))
        if atom == len(self.atom_bits):
            self.atom_bits.append([])
            self.atom_denials.append([])
            self.atom_conjunctions.append([])
        return atom

    def _denial(self, path: int, broken_by: Denial) -> int:
        denial = self.denials.setdefault((path, broken_by), len(self.denials))
        if denial == len(self.denial_bits):
            self.denial_bits.append([])
            for name in broken_by:
                self.atom_denials[self._atom(path, name)].append(denial)
        return denial

    def _conjunction(self, path: int, wanted: Conjunction) -> int:
        conjunction = self.conjunctions.setdefault((path, wanted), len(self.conjunctions))
        if conjunction == len(self.conjunction_bits):
            self.conjunction_bits.append([])
            names, denials = wanted
            for name in names:
                self.atom_conjunctions[self._atom(path, name)].append(conjunction)
            for denial in denials:
                self._denial(path, denial)
        return conjunction

    def of_kind(self, kind: str) -> Iterator[tuple[int, Name, int]]:
        """Yield path, name and atom of each test whose name begins with `kind`, path by path."""
        for path, atoms in enumerate(self.by_path):
            for name, atom in atoms.items():
                if name[0] == kind:
                    yield path, name, atom

    @property
    def numbers(self) -> dict[int, dict[int, tuple[tuple[str, Number], ...]]]:
        """The numeric conditions' bounds by path and atom."""
        found: defaultdict[int, dict[int, tuple[tuple[str, Number], ...]]] = defaultdict(dict)
        for path, name, atom in self.of_kind("number"):
            found[path][atom] = name[1]
        return found

    @property
    def blocks(self) -> dict[int, dict[int, Block]]:
        """The blocks of addresses by path and atom."""
        found: defaultdict[int, dict[int, Block]] = defaultdict(dict)
        for path, name, atom in self.of_kind("block"):
            found[path][atom] = name[1]
        return found

    @property
    def regexes(self) -> dict[int, list[tuple[str, int]]]:
        """The regular expressions with their atoms by path."""
        found: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for path, name, atom in self.of_kind("regex"):
            found[path].append((name[1], atom))
        return dict(found)

    @property
    def texts(self) -> list[tuple[int, tuple[bytes, ...], int]]:
        """The wildcards and `contains`: path, parts, atom."""
        return [(path, name[1], atom) for path, name, atom in self.of_kind("text")]

    def put(self, tables: t.Tables) -> None:
        """Lay out what atoms, denials and conjunctions do."""
        paths = len(self.by_path)
        words = np.full(3 * paths + 1, -1, np.int32)
        strings = np.full(paths + 1, -1, np.int32)
        for path, name, atom in self.of_kind("word"):
            words[3 * path + name[1]] = atom
        for path, _, atom in self.of_kind("string"):
            strings[path] = atom
        tables.put(t.PATH_WORDS_ATOM, words)
        tables.put(t.PATH_STRING_ATOM, strings)
        tables.put_lists(t.ATOM_BITS_FIRST, t.ATOM_BITS, self.atom_bits)
        tables.put_lists(t.ATOM_DENIALS_FIRST, t.ATOM_DENIALS, self.atom_denials)
        tables.put_lists(t.ATOM_CONJUNCTIONS_FIRST, t.ATOM_CONJUNCTIONS, self.atom_conjunctions)
        tables.put_lists(t.DENIAL_BITS_FIRST, t.DENIAL_BITS, self.denial_bits)
        tables.put_lists(t.CONJUNCTION_BITS_FIRST, t.CONJUNCTION_BITS, self.conjunction_bits)
        broken = [[self.denials[path, names] for names in denials] for path, (_, denials) in self.conjunctions]
        tables.put_lists(t.CONJUNCTION_DENIALS_FIRST, t.CONJUNCTION_DENIALS, [sorted(each) for each in broken])
        tables.put(t.CONJUNCTION_NEED, np.array([len(names) for _, (names, _) in self.conjunctions], np.int32))
        always: list[list[int]] = [[] for _ in range(paths)]
        for (path, (names, _)), conjunction in self.conjunctions.items():
            if not names:
                always[path].append(conjunction)
        tables.put_lists(t.PATH_ALWAYS_FIRST, t.ALWAYS, always)
        tables.put(t.DENIAL_STAMP, np.zeros(len(self.denials) + 1, np.int64))
        tables.put(t.CONJUNCTION_STAMP, np.zeros(len(self.conjunctions) + 1, np.int64))
        tables.put(t.CONJUNCTION_SEEN, np.zeros(len(self.conjunctions) + 1, np.int32))
        tables.put(t.TOUCHED, np.zeros(len(self.conjunctions) + 1, np.int32))
