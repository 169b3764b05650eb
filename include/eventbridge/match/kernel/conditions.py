"""What the conditions of a rule set come to: atoms (one primitive test at one path) and what they do to bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from eventbridge.document import Number
from eventbridge.match.kernel import tables as t
from eventbridge.match.kernel.line_tables import normal_form_of
from eventbridge.pattern.address import Block, parse_block
from eventbridge.pattern.nodes import (
    All,
    AnythingBut,
    Cidr,
    Condition,
    Contains,
    EqualsIgnoreCase,
    Exactly,
    Exists,
    Field,
    Numeric,
    Prefix,
    Regex,
    Suffix,
    Wildcard,
)

_WORD_ATOMS: Final[dict[bool | None, int]] = {None: 0, True: 1, False: 2}


class Conditions:
    """All conditions, entered leaf list by leaf list; equal ones are kept once.

    A *place* is a bit in the rows of a path: column x bits from one row to the next + branch. `denials` are
    `anything-but`s by the atoms that break them, `unions` are `all`s by their atoms and denials.
    """

    def __init__(self) -> None:
        self.uncertain: set[int] = set()  # branches that the reference matcher must decide
        self.atoms: dict[tuple[Any, ...], int] = {}
        self.atom_bits: list[list[int]] = []
        self.atom_denials: list[list[int]] = []
        self.atom_unions: list[list[int]] = []
        self.denials: dict[tuple[int, frozenset[int]], int] = {}
        self.denial_bits: list[list[int]] = []
        self.unions: dict[tuple[int, frozenset[int], frozenset[int]], int] = {}
        self.union_bits: list[list[int]] = []
        self.present: defaultdict[int, list[int]] = defaultdict(list)  # path: places that any leaf sets
        self.numbers: defaultdict[int, dict[int, list[tuple[str, Number]]]] = defaultdict(dict)
        self.blocks: defaultdict[int, dict[int, Block]] = defaultdict(dict)
        self.regexes: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self.texts: list[tuple[int, tuple[bytes, ...], int]] = []  # path, parts, atom

    def add(self, field: Field, path: int, place: int, bit: int) -> None:
        """Enter a leaf list: what sets its bit, place, in a row."""
        negations = [condition for condition in field.conditions if isinstance(condition, AnythingBut)]
        others = [condition for condition in field.conditions if not isinstance(condition, AnythingBut)]
        met_by_any_leaf = [self._add_condition(condition, path, place, bit) for condition in others]
        if negations or any(met_by_any_leaf):
            self.present[path].append(place)
        if not any(met_by_any_leaf):  # else a denial would take away what another condition gives
            for negation in negations:
                self._add_negation(negation, path, place, bit)

    def _add_negation(self, negation: AnythingBut, path: int, place: int, bit: int) -> None:
        atoms = [self._atom(path, inner) for inner in negation.none_of]
        if None in atoms:
            self.uncertain.add(bit)
        else:
            self.denial_bits[self._denial(path, atoms)].append(place)

    def _add_condition(self, condition: Condition, path: int, place: int, bit: int) -> bool:
        """Enter a condition other than `anything-but`; tell whether any leaf meets it, as far as tables can tell."""
        match condition:
            case Exists(there):
                return there
            case All(conditions):
                return self._add_union(conditions, path, place, bit)
            case _:
                atom = self._atom(path, condition)
                if atom is None:
                    self.uncertain.add(bit)
                    return True
                self.atom_bits[atom].append(place)
                return False

    def _add_union(self, conditions: Iterable[Condition], path: int, place: int, bit: int) -> bool:
        atoms: set[int] = set()
        denials: set[int] = set()
        unknown = False
        waiting = list(conditions)
        while waiting:
            condition = waiting.pop()
            if isinstance(condition, All):
                waiting += condition.conditions
            elif isinstance(condition, AnythingBut):
                excluded = [self._atom(path, inner) for inner in condition.none_of]
                unknown |= None in excluded
                denials.add(self._denial(path, excluded))
            elif not isinstance(condition, Exists):
                atom = self._atom(path, condition)
                unknown |= atom is None
                atoms.add(-1 if atom is None else atom)
        if unknown or not (atoms or denials):
            if unknown:
                self.uncertain.add(bit)
            return True
        key = (path, frozenset(atoms), frozenset(denials))
        union = self.unions.setdefault(key, len(self.unions))
        if union == len(self.union_bits):
            self.union_bits.append([])
            for atom in atoms:
                self.atom_unions[atom].append(union)
        self.union_bits[union].append(place)
        return False

    def _denial(self, path: int, atoms: Iterable[int | None]) -> int:
        known = frozenset(atom for atom in atoms if atom is not None)
        denial = self.denials.setdefault((path, known), len(self.denials))
        if denial == len(self.denial_bits):
            self.denial_bits.append([])
            for atom in known:
                self.atom_denials[atom].append(denial)
        return denial

    def _atom(self, path: int, condition: Condition) -> int | None:
        """Return the atom of a primitive test at a path; None for a number whose exponent is too long."""
        match condition:
            case Exactly(str() as text):
                return self._entry(t.EXACT, path, text)
            case Exactly(Number() as number):
                return self._number(path, (("=", number),))
            case Exactly(word):
                return self._named(("word", path, _WORD_ATOMS[word]))  # type: ignore[index]
            case Prefix(text, ignore_case):
                return self._entry(t.FOLDED_BEGIN if ignore_case else t.BEGIN, path, text)
            case Suffix(text, ignore_case):
                return self._entry(t.FOLDED_FINISH if ignore_case else t.FINISH, path, text)
            case EqualsIgnoreCase(text):
                return self._entry(t.FOLDED, path, text)
            case Contains(text):
                return self._text(path, ("", text, "")) if text else self._named(("string", path))
            case Wildcard():
                return self._wildcard(path, condition.parts)
            case Numeric(bounds):
                return self._number(path, bounds)
            case Regex(expression):
                known = len(self.atoms)
                atom = self._named(("regex", path, expression))
                if atom == known:
                    self.regexes[path].append((expression, atom))
                return atom
            case Cidr(text):
                return self._block(path, text)
        raise AssertionError(f"no primitive test: {condition!r}")

    def _named(self, name: tuple[Any, ...]) -> int:
        atom = self.atoms.setdefault(name, len(self.atoms))
        if atom == len(self.atom_bits):
            self.atom_bits.append([])
            self.atom_denials.append([])
            self.atom_unions.append([])
        return atom

    def _entry(self, lookup: int, path: int, text: str) -> int:
        if lookup in (t.FOLDED, t.FOLDED_BEGIN, t.FOLDED_FINISH):
            text = text.casefold()
        if not text and lookup not in (t.EXACT, t.FOLDED):
            return self._named(("string", path))
        return self._named(("entry", lookup, path, _utf8(text)))

    def _wildcard(self, path: int, parts: tuple[str, ...]) -> int:
        if len(parts) == 1:
            return self._entry(t.EXACT, path, parts[0])
        if len(parts) == 2 and not parts[1]:
            return self._entry(t.BEGIN, path, parts[0])
        if len(parts) == 2 and not parts[0]:
            return self._entry(t.FINISH, path, parts[1])
        return self._text(path, parts)

    def _text(self, path: int, parts: Sequence[str]) -> int:
        known = len(self.atoms)
        encoded = tuple(map(_utf8, parts))
        atom = self._named(("text", path, encoded))
        if atom == known:
            self.texts.append((path, encoded, atom))
        return atom

    def _number(self, path: int, bounds: tuple[tuple[str, Number], ...]) -> int | None:
        if any(normal_form_of(number.text)[0] == 2 for _, number in bounds):
            return None
        known = len(self.atoms)
        atom = self._named(("number", path, bounds))
        if atom == known:
            self.numbers[path][atom] = list(bounds)
        return atom

    def _block(self, path: int, text: str) -> int:
        block = parse_block(text)
        assert block is not None, "the parser has checked it"
        known = len(self.atoms)
        atom = self._named(("block", path, block))
        if atom == known:
            self.blocks[path][atom] = block
        return atom

    def put(self, tables: t.Tables, paths: int) -> None:
        """Lay out what atoms, denials and unions do."""
        words = np.full(3 * paths + 1, -1, np.int32)
        strings = np.full(paths + 1, -1, np.int32)
        for name, atom in self.atoms.items():
            if name[0] == "word":
                words[3 * name[1] + name[2]] = atom
            elif name[0] == "string":
                strings[name[1]] = atom
        tables.put(t.PATH_WORDS_ATOM, words)
        tables.put(t.PATH_STRING_ATOM, strings)
        tables.put_lists(t.ATOM_BITS_FIRST, t.ATOM_BITS, self.atom_bits)
        tables.put_lists(t.ATOM_DENIALS_FIRST, t.ATOM_DENIALS, self.atom_denials)
        tables.put_lists(t.ATOM_UNIONS_FIRST, t.ATOM_UNIONS, self.atom_unions)
        tables.put_lists(t.DENIAL_BITS_FIRST, t.DENIAL_BITS, self.denial_bits)
        tables.put_lists(t.UNION_BITS_FIRST, t.UNION_BITS, self.union_bits)
        tables.put_lists(t.UNION_DENIALS_FIRST, t.UNION_DENIALS, [sorted(key[2]) for key in self.unions])
        tables.put(t.UNION_NEED, np.array([len(key[1]) for key in self.unions], np.int32))
        always: list[list[int]] = [[] for _ in range(paths)]
        for (path, atoms, _), union in self.unions.items():
            if not atoms:
                always[path].append(union)
        tables.put_lists(t.PATH_ALWAYS_FIRST, t.ALWAYS, always)
        tables.put(t.DENIAL_STAMP, np.zeros(len(self.denials) + 1, np.int64))
        tables.put(t.UNION_STAMP, np.zeros(len(self.unions) + 1, np.int64))
        tables.put(t.UNION_SEEN, np.zeros(len(self.unions) + 1, np.int32))
        tables.put(t.TOUCHED, np.zeros(len(self.unions) + 1, np.int32))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
