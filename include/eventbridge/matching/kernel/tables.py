"""The tables that the compiled code reads and writes, by name; one address leads to all of them.

`Tables` is a list of addresses. A name below is a position in it: `int32_at(int64_at(tables, ENTRY_ATOM), entry)`.
Entry i of a table `..._FIRST` is where list number i begins in the table that its comment names; the list ends where
the next one begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.memory import address_of

_names = iter(range(1000))

# --- numbers of the rule set -------------------------------------------------------------------------------------
WORDS = next(_names)  # the number of 64-bit words in a row, without its summary: one bit per branch
SUMMARY_WORDS = next(_names)  # the number of words in a row's summary: one bit per word, set if it is not 0
STRIDE = next(_names)  # the number of words from one row to the next: a row is its summary, then its words
PATHS = next(_names)
COLUMNS = next(_names)  # the number of columns of all paths, which are the operands of the AND
ANCHORED = next(_names)  # whether branches have anchors

# --- per path ----------------------------------------------------------------------------------------------------
PATH_LOOKUPS = next(_names)  # bits: which look-ups a string at the path needs, see LOOKUP_* below
PATH_WORDS_ATOM = next(_names)  # 3 per path: the atoms of null, true and false, -1 if unused
PATH_STRING_ATOM = next(_names)  # the atom that any string meets, or -1
PATH_WIDTH = next(_names)  # the number of columns: more than one if a branch has several leaf lists at the path
PATH_COLUMN = next(_names)  # the number of the path's first column, counted path by path
PATH_ABSENT = next(_names)  # the first row of the class for no leaf; unused with anchors
PATH_LACKING = next(_names)  # the first row that admits branches which allow no leaf in the chosen array element, or -1
PATH_NUMBERS = next(_names)  # the path's line of numbers, or -1
PATH_ADDRESSES = next(_names)  # the path's line of addresses, or -1
PATH_ROOT = next(_names)  # the position of the root of the path's automaton in MOVES
PATH_ALWAYS_FIRST = next(_names)  # into ALWAYS: the `all` conditions that require no atom
ALWAYS = next(_names)

# --- columns, most selective first -------------------------------------------------------------------------------
COLUMN_PATH = next(_names)
COLUMN_OFFSET = next(_names)  # the column's position among those of its path

# --- columns, path by path ---------------------------------------------------------------------------------------
TAKEN_FIRST = next(_names)  # into TAKEN_WORD, TAKEN_BITS: the bits that a row has only if the leaf meets a condition
TAKEN_WORD = next(_names)
TAKEN_BITS = next(_names)
ANCHORS_FIRST = next(_names)  # into ANCHORS_WORD, ANCHORS_BITS: the branches whose anchor is in the column
ANCHORS_WORD = next(_names)
ANCHORS_BITS = next(_names)

# --- branches and rules ------------------------------------------------------------------------------------------
BRANCH_RULE = next(_names)
BRANCH_FLAGS = next(_names)  # bits: see BRANCH_* below
BRANCH_FIELDS_FIRST = next(_names)  # into FIELD_PATH, FIELD_OFFSET, FIELD_MAY_BE_ABSENT
FIELD_PATH = next(_names)
FIELD_OFFSET = next(_names)
FIELD_MAY_BE_ABSENT = next(_names)

# --- strings that are looked up as a whole, by prefix or by suffix -----------------------------------------------
SLOT_MASK = next(_names)
SLOTS = next(_names)  # open addressing: entry + 1, 0 where free
ENTRY_OWNER = next(_names)  # look-up * PATHS + path
ENTRY_START = next(_names)  # into ENTRY_BYTES
ENTRY_LENGTH = next(_names)
ENTRY_ATOM = next(_names)
ENTRY_PARENT = next(_names)  # the longest shorter entry that is a prefix (or suffix) of this one, or -1
ENTRY_BYTES = next(_names)
LENGTHS_FIRST = next(_names)  # per owner, into LENGTHS: the lengths of its entries, ascending
LENGTHS = next(_names)

# --- lines: numbers, addresses -----------------------------------------------------------------------------------
LINE_POINTS_FIRST = next(_names)  # per line, into the POINT_ tables
POINT_DOUBLE = next(_names)
POINT_SIMPLE = next(_names)  # byte: whether equal doubles mean equal numbers
POINT_SIGN = next(_names)
POINT_POWER = next(_names)
POINT_START = next(_names)  # into POINT_DIGITS
POINT_COUNT = next(_names)
POINT_DIGITS = next(_names)
POINT_HIGH = next(_names)  # the upper 64 bits of an address
POINT_LOW = next(_names)  # the lower 64 bits
LINE_SEGMENTS_FIRST = next(_names)  # per line, into SEGMENT_ATOMS_FIRST
SEGMENT_ATOMS_FIRST = next(_names)
SEGMENT_ATOMS = next(_names)

# --- wildcards and contains --------------------------------------------------------------------------------------
BYTE_CLASS = next(_names)  # per byte value: its column of the automaton
CLASS_SHIFT = next(_names)  # the logarithm (base 2) of the number of columns
# At a state's position + a byte's column: the position of the next state, inverted (~) if a sign ends there.
MOVES = next(_names)
STATE_SIGN = next(_names)  # the sign that the whole path to the state spells, or -1
STATE_LINK = next(_names)  # the next state of a shorter suffix at which a sign ends, or -1
SIGN_TEXTS_FIRST = next(_names)  # into SIGN_TEXTS: the text conditions that have the sign
SIGN_TEXTS = next(_names)
TEXT_ATOM = next(_names)
TEXT_PARTS_FIRST = next(_names)  # into PART_START, PART_LENGTH
PART_START = next(_names)  # into PART_BYTES and PART_FAILURES
PART_LENGTH = next(_names)
PART_BYTES = next(_names)
PART_FAILURES = next(_names)  # Knuth, Morris and Pratt's failure function

# --- case folding ------------------------------------------------------------------------------------------------
FOLD_COUNT = next(_names)
FOLD_POINTS = next(_names)  # the code points that folding changes, ascending
FOLD_FIRST = next(_names)  # into FOLD_BYTES
FOLD_BYTES = next(_names)

# --- the effect of an atom on a row ------------------------------------------------------------------------------
ATOM_BITS_FIRST = next(_names)  # into ATOM_BITS: the bits that the atom sets
ATOM_BITS = next(_names)
ATOM_DENIALS_FIRST = next(_names)  # into ATOM_DENIALS: the `anything-but` conditions that it violates
ATOM_DENIALS = next(_names)
ATOM_CONJUNCTIONS_FIRST = next(_names)  # into ATOM_CONJUNCTIONS: the `all` conditions that require it
ATOM_CONJUNCTIONS = next(_names)
DENIAL_BITS_FIRST = next(_names)
DENIAL_BITS = next(_names)
CONJUNCTION_NEED = next(_names)  # the number of atoms that an `all` requires
CONJUNCTION_DENIALS_FIRST = next(_names)
CONJUNCTION_DENIALS = next(_names)
CONJUNCTION_BITS_FIRST = next(_names)
CONJUNCTION_BITS = next(_names)

# --- classes: written while matching -----------------------------------------------------------------------------
ROWS = next(_names)
CLASS_CAPACITY = next(_names)  # the maximum number of rows
CLASS_SLOT_MASK = next(_names)
CLASS_SLOTS = next(_names)  # open addressing: class + 1, 0 where free
CLASS_KEY_FIRST = next(_names)  # into CLASS_KEYS
CLASS_ROW = next(_names)
CLASS_KEYS = next(_names)
CLASS_KEYS_CAPACITY = next(_names)
COUNTERS = next(_names)  # see COUNTER_* below
DENIAL_STAMP = next(_names)
CONJUNCTION_STAMP = next(_names)
CONJUNCTION_SEEN = next(_names)
TEXT_STAMP = next(_names)
MEMORY_MASK = next(_names)
MEMORY = next(_names)  # a cache of recent short values: MEMORY_WORDS words each, see class_of
MEMORY_SCORE = next(_names)  # per path: hits minus misses of the cache
KEY = next(_names)  # room for the key of one class
ATOMS = next(_names)  # room for the atoms that one leaf meets
TOUCHED = next(_names)  # room for the `all` conditions that require an atom of one leaf

TABLE_COUNT = next(_names)

# The look-ups of a string; the first six are kinds of entries, as in ENTRY_OWNER.
EXACT, BEGIN, FINISH, FOLDED, FOLDED_BEGIN, FOLDED_FINISH = range(6)
LOOKUP_EXACT, LOOKUP_BEGIN, LOOKUP_FINISH = 1 << EXACT, 1 << BEGIN, 1 << FINISH
LOOKUP_FOLDED, LOOKUP_FOLDED_BEGIN, LOOKUP_FOLDED_FINISH = 1 << FOLDED, 1 << FOLDED_BEGIN, 1 << FOLDED_FINISH
LOOKUP_ADDRESS, LOOKUP_TEXT, LOOKUP_REGEX = 64, 128, 256
LOOKUP_ANY_FOLDED = LOOKUP_FOLDED | LOOKUP_FOLDED_BEGIN | LOOKUP_FOLDED_FINISH

BRANCH_SIMPLE = 1  # the only branch of its rule, and neither uncertain nor negative
BRANCH_NEGATIVE = 2
BRANCH_UNCERTAIN = 4
BRANCH_MAY_CONFLICT = 8
BRANCH_WANTS_MORE = 16  # it has an anchor, and another leaf list that requires a leaf

ROW_OF_ALL, ROW_WITHOUT_ANCHOR = 0, 1  # rows of every rule set: all branches, and those without an anchor

MEMORY_WORDS = 8
MEMORY_BYTES = 32  # the maximum length of a cached value

COUNTER_ROWS, COUNTER_CLASSES, COUNTER_KEYS, COUNTER_CLEARS, COUNTER_STAMP, COUNTER_FIXED_ROWS = range(6)

# A part of a class key is the number of an entry, or that of an interval or atom with one of these bits set.
KEY_INTERVAL = 1 << 29
KEY_ATOM = 1 << 30


class Tables:
    """The arrays by name; `address` leads compiled code to their addresses, and is valid while this object lives."""

    def __init__(self) -> None:
        self._addresses = np.zeros(TABLE_COUNT, np.int64)
        self._arrays: dict[int, npt.NDArray[Any]] = {}
        self.address = address_of(self._addresses)

    def put(self, name: int, array: npt.NDArray[Any]) -> None:
        """Store an array as the table `name`."""
        self._arrays[name] = array
        self._addresses[name] = address_of(array)

    def put_number(self, name: int, value: int) -> None:
        """Store a plain number under `name`."""
        self._addresses[name] = value

    def array(self, name: int) -> npt.NDArray[Any]:
        """Return the array of the table `name`."""
        return self._arrays[name]

    def number(self, name: int) -> int:
        """Return the plain number under `name`."""
        return int(self._addresses[name])

    def put_lists(self, first: int, items: int, lists: list[list[int]]) -> None:
        """Store lists of integers one after another in `items`, and where each begins in `first`."""
        lengths = np.array([len(one) for one in lists], np.int32)
        self.put(first, np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)]))
        self.put(items, np.array([item for one in lists for item in one], np.int32))
