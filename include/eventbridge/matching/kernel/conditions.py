"""The conditions of a rule set as atoms (one primitive test at one path each) and their effects on bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from eventbridge.event.json_document import Number
from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.lines import is_far, normal_form_of
from eventbridge.matching.pattern.address import Block, parse_block
from eventbridge.matching.pattern.nodes import (
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
    Path,
    Prefix,
    Regex,
    Suffix,
    Wildcard,
)


class Conditions:
    """All conditions, added leaf list by leaf list; equal ones are stored once.

    A *position* is the number of a bit in the rows of a path: column x bits from one row to the next + branch.
    `denials` are the `anything-but` conditions by the atoms that violate them; `conjunctions` are the `all` conditions
    by their atoms and denials.
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

    def add(self, effect: LeafListEffect, path: int, positions: Sequence[int]) -> None:
        """Add the conditions of a leaf list, with one position for each branch that has the list."""
        for name in effect.atoms:
            self.atom_bits[self._atom(path, name)] += positions
        for denial in effect.denials:
            self.denial_bits[self._denial(path, denial)] += positions
        for conjunction in effect.conjunctions:
            self.conjunction_bits[self._conjunction(path, conjunction)] += positions

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

    def tests_of_kind(self, kind: str) -> Iterator[tuple[int, Name, int]]:
        """Yield (path, name, atom) of each test whose name begins with `kind`, path by path."""
        for path, atoms in enumerate(self.by_path):
            for name, atom in atoms.items():
                if name[0] == kind:
                    yield path, name, atom

    @property
    def numbers(self) -> dict[int, dict[int, tuple[tuple[str, Number], ...]]]:
        """The bounds of the numeric conditions, by path and atom."""
        found: defaultdict[int, dict[int, tuple[tuple[str, Number], ...]]] = defaultdict(dict)
        for path, name, atom in self.tests_of_kind("number"):
            found[path][atom] = name[1]
        return found

    @property
    def blocks(self) -> dict[int, dict[int, Block]]:
        """The blocks of addresses, by path and atom."""
        found: defaultdict[int, dict[int, Block]] = defaultdict(dict)
        for path, name, atom in self.tests_of_kind("block"):
            found[path][atom] = name[1]
        return found

    @property
    def regexes(self) -> dict[int, list[tuple[str, int]]]:
        """The regular expressions with their atoms, by path."""
        found: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for path, name, atom in self.tests_of_kind("regex"):
            found[path].append((name[1], atom))
        return dict(found)

    @property
    def texts(self) -> list[tuple[int, tuple[bytes, ...], int]]:
        """The `wildcard` and `contains` conditions, as (path, parts, atom)."""
        return [(path, name[1], atom) for path, name, atom in self.tests_of_kind("text")]

    def put(self, tables: t.Tables) -> None:
        """Build the tables of atoms, denials and conjunctions."""
        paths = len(self.by_path)
        words = np.full(3 * paths + 1, -1, np.int32)
        strings = np.full(paths + 1, -1, np.int32)
        for path, name, atom in self.tests_of_kind("word"):
            words[3 * path + name[1]] = atom
        for path, _, atom in self.tests_of_kind("string"):
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


Name: TypeAlias = tuple[Any, ...]
"""The name of a primitive test at a path; equal tests have equal names. The first item is its kind:
("word", 0 to 2 for null, true, false), ("string",) for any string, ("entry", look-up, text), ("text", parts),
("number", bounds), ("block", block), ("regex", expression)."""

Denial: TypeAlias = frozenset[Name]
"""An `anything-but`, identified by the names of the tests that violate it."""

Conjunction: TypeAlias = tuple[frozenset[Name], frozenset[Denial]]
"""An `all`: the names of the tests that it requires, and its denials."""

NO_CONJUNCTION: Final[Conjunction] = frozenset(), frozenset()
"""An `all` that any leaf meets."""

_WORD: Final[dict[bool | None, int]] = {None: 0, True: 1, False: 2}
_FOLDING: Final = (t.FOLDED, t.FOLDED_BEGIN, t.FOLDED_FINISH)

_SHARE_BY_TYPE: Final[dict[type, float]] = {AnythingBut: 0.8, Exists: 0.6, All: 0.3}
_RANGE_SHARE, _HALF_LINE_SHARE, _NON_TEXT_SHARE = 0.05, 0.4, 0.5


@dataclass(eq=False, slots=True)
class LeafListEffect:
    """The effect of a leaf list: `atoms` and `conjunctions` set its bit, and a violated denial clears it.

    `present`: any leaf has the bit unless a denial clears it. `uncertain`: the tables accept too many leaves, so the
    reference matcher decides. `text` is the same for equal lists. `branches.ordered` estimates
    the share of events that meet the list from `certain_share` and `varied`.
    """

    path: Path
    can_be_absent: bool
    present: bool
    uncertain: bool
    atoms: tuple[Name, ...]
    denials: tuple[Denial, ...]
    conjunctions: tuple[Conjunction, ...]
    text: str
    certain_share: float
    varied: tuple[tuple[type, str], ...]


def effect_of(field: Field) -> LeafListEffect:
    """Return the effect of a leaf list."""
    atoms: list[Name] = []
    conjunctions: list[Conjunction] = []
    negations: list[AnythingBut] = []
    texts: list[str] = []
    varied: list[tuple[type, str]] = []
    share, met_by_any_leaf, can_be_absent, uncertain = 0.0, False, False, False
    for condition in field.conditions:
        kind, text = type(condition), _text_of(condition)
        certain = _estimate_share(condition)
        share += certain
        texts.append(text)
        if not certain:
            varied.append((kind, text))
        if isinstance(condition, AnythingBut):
            negations.append(condition)
        elif isinstance(condition, Exists):
            met_by_any_leaf |= condition.there
            can_be_absent |= not condition.there
        elif isinstance(condition, All):
            conjunction = conjunction_of(condition)
            uncertain |= conjunction is None
            if conjunction == NO_CONJUNCTION or conjunction is None:
                met_by_any_leaf = True
            else:
                conjunctions.append(conjunction)
        else:
            name = name_of(condition)
            if name is None:
                met_by_any_leaf = uncertain = True
            else:
                atoms.append(name)
    denials: list[Denial] = []
    if not met_by_any_leaf:  # otherwise a denial would clear the bit, which another condition sets for any leaf
        found = [denial_of(negation) for negation in negations]
        denials = [denial for denial in found if denial is not None]
        uncertain |= None in found
    text = texts[0] if len(texts) == 1 else "".join(sorted(texts))
    present = met_by_any_leaf or bool(negations)
    lists = tuple(atoms), tuple(denials), tuple(conjunctions)
    return LeafListEffect(field.path, can_be_absent, present, uncertain, *lists, text, share, tuple(varied))


def _text_of(condition: Condition) -> str:
    """Return a text that is the same for equal conditions; frequent kinds avoid the slow `repr`."""
    match condition:
        case Exactly(str() as text):
            return text
        case Numeric(bounds):
            return " ".join([f"{sign} {number.text}" for sign, number in bounds])
        case Prefix(text, _) | Suffix(text, _) | Wildcard(text) | Contains(text) | EqualsIgnoreCase(text):
            return f"{type(condition).__name__} {text}"
    return repr(condition)


def _estimate_share(condition: Condition) -> float:
    """Return an estimate of the share of events that meet a condition; 0 if it depends on the other rules' texts."""
    match condition:
        case Numeric(bounds):
            return _RANGE_SHARE if len(bounds) == 2 else _HALF_LINE_SHARE
        case Exactly(value) if not isinstance(value, str):
            return _NON_TEXT_SHARE
    return _SHARE_BY_TYPE.get(type(condition), 0.0)


def conjunction_of(condition: All) -> Conjunction | None:
    """Return the names that an `all` requires, and its denials; None if one of its tests has no name."""
    atoms: set[Name] = set()
    denials: set[Denial] = set()
    waiting = list(condition.conditions)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, All):
            waiting += inner.conditions
        elif isinstance(inner, AnythingBut):
            denial = denial_of(inner)
            if denial is None:
                return None
            denials.add(denial)
        elif not isinstance(inner, Exists):
            name = name_of(inner)
            if name is None:
                return None
            atoms.add(name)
    return frozenset(atoms), frozenset(denials)


def denial_of(negation: AnythingBut) -> Denial | None:
    """Return the names that violate an `anything-but`; None if it contains a number whose exponent is too long."""
    names = [name_of(inner) for inner in negation.none_of]
    return None if None in names else frozenset(name for name in names if name is not None)


def name_of(condition: Condition) -> Name | None:
    """Return the name of a primitive test; None for a number whose exponent is too long."""
    match condition:
        case Exactly(str() as text):
            return _entry(t.EXACT, text)
        case Exactly(Number() as number):
            return _number((("=", number),))
        case Exactly(word):
            return "word", _WORD[word]  # type: ignore[index]
        case Prefix(text, ignore_case):
            return _entry(t.FOLDED_BEGIN if ignore_case else t.BEGIN, text)
        case Suffix(text, ignore_case):
            return _entry(t.FOLDED_FINISH if ignore_case else t.FINISH, text)
        case EqualsIgnoreCase(text):
            return _entry(t.FOLDED, text)
        case Contains(text):
            return _text(("", text, "")) if text else ("string",)
        case Wildcard():
            return _wildcard(condition.parts)
        case Numeric(bounds):
            return _number(bounds)
        case Regex(expression):
            return "regex", expression
        case Cidr(text):
            block = parse_block(text)
            assert block is not None, "the parser has checked it"
            return "block", block
    raise AssertionError(f"no primitive test: {condition!r}")


def _entry(lookup: int, text: str) -> Name:
    if lookup in _FOLDING:
        text = text.casefold()
    if not text and lookup not in (t.EXACT, t.FOLDED):
        return ("string",)
    return "entry", lookup, _utf8(text)


def _wildcard(parts: tuple[str, ...]) -> Name:
    if len(parts) == 1:
        return _entry(t.EXACT, parts[0])
    if len(parts) == 2 and not parts[1]:
        return _entry(t.BEGIN, parts[0])
    if len(parts) == 2 and not parts[0]:
        return _entry(t.FINISH, parts[1])
    return _text(parts)


def _text(parts: Sequence[str]) -> Name:
    return "text", tuple(map(_utf8, parts))


def _number(bounds: tuple[tuple[str, Number], ...]) -> Name | None:
    if any(is_far(normal_form_of(number.text)) for _, number in bounds):
        return None
    return "number", bounds


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
