"""From patterns to tables: every primitive test becomes an atom, every branch a bit, every path its look-ups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventbridge.document import Number
from eventbridge.match.kernel import tables as t
from eventbridge.match.kernel.addresses import MAPPED
from eventbridge.match.kernel.branches import Branch, branches_of
from eventbridge.match.kernel.classify import summarise
from eventbridge.match.kernel.folding import folding_tables
from eventbridge.match.kernel.hashing import SEED, grow, hash_whole, slot_of
from eventbridge.match.kernel.lines import segments
from eventbridge.match.kernel.order import clustered
from eventbridge.match.kernel.texts import build_automata, byte_classes, choose_signs, failures_of
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
    Path,
    Pattern,
    Prefix,
    Regex,
    Suffix,
    Wildcard,
)
from eventbridge.scan.compiled import compiled
from eventbridge.scan.memory import address_of, byte_at, put_int32
from eventbridge.scan.numbers import normal_form, simple_number

CLASS_BYTES: Final = 64 << 20
"""Memory for the rows of classes; a rule set whose fixed rows alone need more gets room for as many again."""

MAXIMUM_ROWS: Final = 65_536
"""Rows of classes that are kept, if a rule set's rows are no longer than `CLASS_BYTES` allows."""

KEY_INTEGERS: Final = 1 << 20

MEMORY_ENTRIES: Final = 4096
"""Short values remembered with their class; a power of two. 256 KiB: more would not stay in the processor's cache."""

_WORD_ATOMS: Final[dict[bool | None, int]] = {None: 0, True: 1, False: 2}
_OPEN: Final = {">": (2, 0), ">=": (1, 0), "<": (0, 0), "<=": (0, 1), "=": (1, 1)}


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
        self.paths: dict[Path, int] = {}
        self.columns: list[list[dict[int, bool]]] = []  # path, column: of each branch with a field, if it may be absent
        self.places: list[list[tuple[int, int, bool]]] = []  # branch, field: path, column, whether it may be absent
        self.uncertain: set[int] = set()
        self.atoms: dict[tuple[Any, ...], int] = {}
        self.atom_bits: list[list[int]] = []
        self.atom_denials: list[list[int]] = []
        self.atom_unions: list[list[int]] = []
        self.denials: dict[tuple[int, frozenset[int]], int] = {}
        self.denial_bits: list[list[int]] = []
        self.unions: dict[tuple[int, frozenset[int], frozenset[int]], int] = {}
        self.union_bits: list[list[int]] = []
        self.present: defaultdict[int, list[int]] = defaultdict(list)  # path: bits that any leaf sets
        self.numbers: defaultdict[int, dict[int, list[tuple[str, Number]]]] = defaultdict(dict)
        self.blocks: defaultdict[int, dict[int, Block]] = defaultdict(dict)
        self.regexes: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self.texts: list[tuple[int, tuple[bytes, ...], int]] = []  # path, parts, atom

    def compile(self) -> Program:
        for bit, branch in enumerate(self.branches):
            self._add_branch(bit, branch)
        tables = self.tables
        tables.put_number(t.WORDS, self.words)
        tables.put_number(t.SUMMARY_WORDS, self.summary_words)
        tables.put_number(t.STRIDE, self.stride)
        tables.put_number(t.PATHS, len(self.paths))
        self._put_conditions()
        self._put_entries()
        self._put_lines()
        self._put_texts()
        self._put_branches()
        self._put_rows()
        longest = 16 + len(self.texts) + sum(map(len, self.regexes.values()))
        tables.put(t.KEY, np.empty(longest, np.int32))
        tables.put(t.ATOMS, np.empty(len(self.atoms) + longest, np.int32))
        return Program(tables, list(self.paths), dict(self.regexes), self.rules, longest)

    # --- branches ---

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
            self._add_field(field, path, place, bit)

    def _add_field(self, field: Field, path: int, place: int, bit: int) -> None:
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

    # --- atoms ---

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
        if any(_normal_form(number.text)[0] == 2 for _, number in bounds):
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

    # --- tables ---

    def _put_conditions(self) -> None:
        tables, paths = self.tables, len(self.paths)
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

    def _put_entries(self) -> None:
        paths = len(self.paths)
        found = [(name[1] * paths + name[2], name[3], atom) for name, atom in self.atoms.items() if name[0] == "entry"]
        owners = np.array([owner for owner, _, _ in found], np.int32)
        lengths = np.array([len(text) for _, text, _ in found], np.int32)
        starts = (np.cumsum(lengths) - lengths).astype(np.int32)
        text = np.frombuffer(b"".join(text for _, text, _ in found) + bytes(8), np.uint8)
        by_owner: list[set[int]] = [set() for _ in range(6 * paths)]
        numbers = {}
        lookups = np.zeros(paths + 1, np.int32)
        for entry, (owner, content, _) in enumerate(found):
            by_owner[owner].add(len(content))
            numbers[owner, content] = entry
            lookups[owner % paths] |= 1 << (owner // paths)
        sizes = [sorted(one) for one in by_owner]
        parents = np.full(len(found), -1, np.int32)
        for entry, (owner, content, _) in enumerate(found):
            lookup = owner // paths
            if lookup in (t.EXACT, t.FOLDED):
                continue
            for size in reversed(sizes[owner]):
                if size < len(content):
                    part = content[len(content) - size :] if lookup in (t.FINISH, t.FOLDED_FINISH) else content[:size]
                    if (owner, part) in numbers:
                        parents[entry] = numbers[owner, part]
                        break
        slots = np.zeros(_power_of_two(2 * len(found) + 16), np.int32)
        kinds = (owners // max(paths, 1)).astype(np.int32)
        _fill_slots(address_of(slots), len(slots) - 1, owners, kinds, starts, lengths, address_of(text))
        for path in self.blocks:
            lookups[path] |= t.LOOKUP_ADDRESS
        for path, _, _ in self.texts:
            lookups[path] |= t.LOOKUP_TEXT
        for path in self.regexes:
            lookups[path] |= t.LOOKUP_REGEX
        tables = self.tables
        tables.put(t.PATH_LOOKUPS, lookups)
        tables.put_number(t.SLOT_MASK, len(slots) - 1)
        tables.put(t.SLOTS, slots)
        tables.put(t.ENTRY_OWNER, owners)
        tables.put(t.ENTRY_START, starts)
        tables.put(t.ENTRY_LENGTH, lengths)
        tables.put(t.ENTRY_ATOM, np.array([atom for _, _, atom in found], np.int32))
        tables.put(t.ENTRY_PARENT, parents)
        tables.put(t.ENTRY_BYTES, text)
        tables.put_lists(t.LENGTHS_FIRST, t.LENGTHS, sizes)
        if lookups.any() and (lookups & t.LOOKUP_ANY_FOLDED).any():
            points, firsts, folded = folding_tables()
            tables.put_number(t.FOLD_COUNT, len(points))
            tables.put(t.FOLD_POINTS, points)
            tables.put(t.FOLD_FIRST, firsts)
            tables.put(t.FOLD_BYTES, folded)

    def _put_lines(self) -> None:
        lines = _Lines()
        of_numbers = np.full(len(self.paths) + 1, -1, np.int32)
        of_addresses = np.full(len(self.paths) + 1, -1, np.int32)
        for path, ranges in self.numbers.items():
            of_numbers[path] = lines.add_numbers(ranges)
        for path, blocks in self.blocks.items():
            of_addresses[path] = lines.add_blocks(blocks)
        self.tables.put(t.PATH_NUMBERS, of_numbers)
        self.tables.put(t.PATH_ADDRESSES, of_addresses)
        lines.put(self.tables)

    def _put_texts(self) -> None:
        tables = self.tables
        signs = choose_signs_by_path(self.texts)
        literals = sorted(set(signs))
        number = {literal: index for index, literal in enumerate(literals)}
        conditions: list[list[int]] = [[] for _ in literals]
        for text, sign in enumerate(signs):
            conditions[number[sign]].append(text)
        tables.put_lists(t.LITERAL_TEXTS_FIRST, t.LITERAL_TEXTS, conditions)
        classes, class_count = byte_classes([sign for _, sign in literals])
        lengths = np.array([len(sign) for _, sign in literals], np.int64)
        states = int(lengths.sum()) + len(self.paths) + 1
        root, moves, literal, link = build_automata(
            np.array([path for path, _ in literals], np.int64),
            np.cumsum(lengths) - lengths,
            lengths,
            np.frombuffer(b"".join(sign for _, sign in literals) + b"\0", np.uint8),
            classes,
            class_count,
            len(self.paths),
            states,
        )
        tables.put(t.BYTE_CLASS, classes)
        tables.put_number(t.CLASS_COUNT, class_count)
        tables.put(t.PATH_ROOT, root)
        tables.put(t.MOVES, moves)
        tables.put(t.STATE_LITERAL, literal)
        tables.put(t.STATE_LINK, link)
        tables.put(t.TEXT_ATOM, np.array([atom for _, _, atom in self.texts], np.int32))
        tables.put(t.TEXT_STAMP, np.zeros(len(self.texts) + 1, np.int64))
        distinct = {part: None for _, parts, _ in self.texts for part in parts}
        start_of, failures, length = {}, [], 0
        for part in distinct:
            start_of[part] = length
            failures += failures_of(part)
            length += len(part)
        counts = np.array([len(parts) for _, parts, _ in self.texts], np.int32)
        tables.put(t.TEXT_PARTS_FIRST, np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)]))
        tables.put(t.PART_START, np.array([start_of[part] for _, parts, _ in self.texts for part in parts], np.int32))
        tables.put(t.PART_LENGTH, np.array([len(part) for _, parts, _ in self.texts for part in parts], np.int32))
        tables.put(t.PART_BYTES, np.frombuffer(b"".join(distinct) + bytes(8), np.uint8))
        tables.put(t.PART_FAILURES, np.array([*failures, 0], np.int32))

    def _put_branches(self) -> None:
        tables = self.tables
        of_rule: defaultdict[int, int] = defaultdict(int)
        for branch in self.branches:
            of_rule[branch.rule] += 1
        flags = np.zeros(self.words * 64, np.uint8)
        for bit, branch in enumerate(self.branches):
            uncertain = branch.uncertain or bit in self.uncertain
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
                row[[place % stride_bits for place in self.present[path] if place // stride_bits == column]] = True
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
        slots = np.zeros(_power_of_two(2 * capacity), np.int32)
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


class _Lines:
    """The points and the segment trees of all lines."""

    def __init__(self) -> None:
        self.points: list[tuple[float, bool, int, int, bytes, int]] = []  # double, simple, sign, power, digits, address
        self.points_first = [0]
        self.firsts: list[npt.NDArray[np.int32]] = []
        self.atoms: list[npt.NDArray[np.int32]] = []
        self.segments_first = [0]
        self.atom_count = 0

    def add_numbers(self, ranges: dict[int, list[tuple[str, Number]]]) -> int:
        points = sorted({number for bounds in ranges.values() for _, number in bounds})
        rank = {number: index for index, number in enumerate(points)}
        last = 2 * len(points)
        low, high, atoms = [], [], []
        for atom, bounds in ranges.items():
            first, final = 0, last
            for sign, number in bounds:
                place = 2 * rank[number]
                if sign == "!=":
                    low.append(0)
                    high.append(place)
                    atoms.append(atom)
                    first = place + 2
                else:
                    after, before = _OPEN[sign]
                    if after:
                        first = max(first, place + after)
                    if sign in ("<", "<=", "="):
                        final = min(final, place + before)
            low.append(first)
            high.append(final)
            atoms.append(atom)
        for number in points:
            side, power, digits = _normal_form(number.text)
            simple, _ = _simple(number.text)
            self.points.append((float(number.text), simple, side, power, digits, 0))
        return self._add(len(points), low, high, atoms)

    def add_blocks(self, blocks: dict[int, Block]) -> int:
        ranges = [(first, last, atom) for atom, block in blocks.items() for first, last in _address_ranges(block)]
        points = sorted({end for first, last, _ in ranges for end in (first, last)})
        rank = {point: index for index, point in enumerate(points)}
        self.points += [(0.0, True, 0, 0, b"", point) for point in points]
        low = [2 * rank[first] + 1 for first, _, _ in ranges]
        high = [2 * rank[last] + 1 for _, last, _ in ranges]
        return self._add(len(points), low, high, [atom for _, _, atom in ranges])

    def _add(self, points: int, low: list[int], high: list[int], atom: list[int]) -> int:
        firsts, atoms = segments(2 * points + 1, low, high, atom)
        self.points_first.append(self.points_first[-1] + points)
        self.firsts.append(firsts + self.atom_count)
        self.segments_first.append(self.segments_first[-1] + len(firsts))
        self.atoms.append(atoms)
        self.atom_count += len(atoms)
        return len(self.points_first) - 2

    def put(self, tables: t.Tables) -> None:
        digits = [point[4] for point in self.points]
        counts = np.array([len(one) for one in digits], np.int32)
        tables.put(t.LINE_POINTS_FIRST, np.array(self.points_first, np.int32))
        tables.put(t.POINT_DOUBLE, np.array([point[0] for point in self.points], np.float64))
        tables.put(t.POINT_SIMPLE, np.array([point[1] for point in self.points], np.uint8))
        tables.put(t.POINT_SIGN, np.array([point[2] for point in self.points], np.int32))
        tables.put(t.POINT_POWER, np.array([point[3] for point in self.points], np.int64))
        tables.put(t.POINT_START, (np.cumsum(counts) - counts).astype(np.int32))
        tables.put(t.POINT_COUNT, counts)
        tables.put(t.POINT_DIGITS, np.frombuffer(b"".join(digits) + bytes(8), np.uint8))
        tables.put(t.POINT_HIGH, np.array([point[5] >> 64 for point in self.points], np.uint64))
        tables.put(t.POINT_LOW, np.array([point[5] & (2**64 - 1) for point in self.points], np.uint64))
        tables.put(t.LINE_SEGMENTS_FIRST, np.array(self.segments_first, np.int32))
        closing = np.array([self.atom_count], np.int32)
        tables.put(t.SEGMENT_ATOMS_FIRST, np.concatenate([*self.firsts, closing]))
        tables.put(t.SEGMENT_ATOMS, np.concatenate([*self.atoms, np.zeros(1, np.int32)]))


def choose_signs_by_path(texts: Sequence[tuple[int, tuple[bytes, ...], int]]) -> list[tuple[int, bytes]]:
    """Return (path, sign) of each text condition; conditions compete with those of their own path only."""
    of_path: defaultdict[int, list[int]] = defaultdict(list)
    for index, (path, _, _) in enumerate(texts):
        of_path[path].append(index)
    signs: list[tuple[int, bytes]] = [(0, b"")] * len(texts)
    for path, indexes in of_path.items():
        for index, sign in zip(indexes, choose_signs([texts[index][1] for index in indexes]), strict=True):
            signs[index] = (path, sign)
    return signs


def _address_ranges(block: Block) -> list[tuple[int, int]]:
    """Return a block's first and last addresses; one of IPv6 without the addresses that count as IPv4."""
    host_bits = block.width - block.mask
    first, last = block.prefix << host_bits, ((block.prefix + 1) << host_bits) - 1
    if block.width == 32:
        return [(first + MAPPED, last + MAPPED)]
    mapped_last = MAPPED + (1 << 32) - 1
    if last < MAPPED or first > mapped_last:
        return [(first, last)]
    return [part for part in ((first, MAPPED - 1), (mapped_last + 1, last)) if part[0] <= part[1]]


def _normal_form(text: str) -> tuple[int, int, bytes]:
    encoded = np.frombuffer(text.encode() + bytes(8), np.uint8)
    digits = np.zeros(len(text) + 8, np.uint8)
    sign, power, count = normal_form(address_of(encoded), 0, len(text), address_of(digits))
    return sign, power, digits[:count].tobytes()


def _simple(text: str) -> tuple[bool, float]:
    encoded = np.frombuffer(text.encode() + bytes(8), np.uint8)
    found: tuple[bool, float] = simple_number(address_of(encoded), 0, len(text))
    return found


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _power_of_two(least: int) -> int:
    return 1 << max(4, (least - 1).bit_length())


@compiled
def _fill_slots(slots: int, mask: int, owners: Any, lookups: Any, starts: Any, lengths: Any, text: int) -> None:
    """Enter every entry under the hash by which its look-up grows: from the beginning, from the end, or at once."""
    for entry in range(owners.shape[0]):
        start, length = int(starts[entry]), int(lengths[entry])
        lookup = lookups[entry]
        if lookup == t.EXACT or lookup == t.FOLDED:
            value = hash_whole(text, start, length)
        else:
            value = SEED
            backward = lookup == t.FINISH or lookup == t.FOLDED_FINISH
            for index in range(length):
                value = grow(value, byte_at(text, start + (length - 1 - index if backward else index)))
        slot = slot_of(value, int(owners[entry]), mask)
        while _taken(slots, slot):
            slot = (slot + 1) & mask
        put_int32(slots, slot, entry + 1)


@compiled
def _taken(slots: int, slot: int) -> bool:
    for index in range(4):
        if byte_at(slots, 4 * slot + index) != 0:
            return True
    return False


@compiled
def _summarise_all(rows: int, words: int, summary_words: int, count: int) -> None:
    for row in range(count):
        start = rows + 8 * row * (words + summary_words)
        summarise(start + 8 * summary_words, words, start)
